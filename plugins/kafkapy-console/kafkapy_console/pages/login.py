"""Login and logout."""

from __future__ import annotations

from starlette.responses import PlainTextResponse, Response

from kafkapy_console.errors import ForbiddenError, NotFoundError
from kafkapy_console.security.sessions import Session
from kafkapy_console.web import Form, Visit, action, local_path, public_page

__all__ = ["ROUTES"]

CALLBACK = "/login/oidc/callback"


async def login_page(visit: Visit) -> Response:
    """The form with name and password, or the link to the identity provider."""
    onward = local_path(visit.query.text("next", 4000) or "/")
    if not visit.place.people.needs_login or visit.session.logged_in:
        return visit.leave(onward)
    return visit.render("login.html", mode=visit.place.people.settings.login, next=onward, text="")


async def log_in(visit: Visit, form: Form) -> Response:
    """Check name and password; a login gets a new session id."""
    onward = local_path(form.text("next", 4000) or "/")
    if visit.place.people.settings.login not in ("users", "sasl"):
        raise NotFoundError("This console has no login with a password.")
    try:
        session = await visit.place.people.log_in(form.needed("user", 200), form.raw("password")[:1000], _peer(visit))
    except ForbiddenError as error:
        return visit.render("login.html", 403, mode=visit.place.people.settings.login, next=onward, text=str(error))
    _enter(visit, session)
    return visit.leave(onward)


async def begin_oidc(visit: Visit) -> Response:
    """To the identity provider."""
    if visit.place.people.oidc is None:
        raise NotFoundError("This console has no login by an identity provider.")
    return visit.leave(await visit.place.people.oidc.begin(_callback(visit), visit.session.id))


async def finish_oidc(visit: Visit) -> Response:
    """Back from the identity provider."""
    if visit.place.people.oidc is None:
        raise NotFoundError("This console has no login by an identity provider.")
    user = await visit.place.people.oidc.finish(visit.request.query_params, _callback(visit), visit.session.id)
    _enter(visit, visit.place.people.log_in_by_oidc(user.name, user.groups, _peer(visit)))
    return visit.leave("/")


async def log_out(visit: Visit, form: Form) -> Response:
    """Ends the session."""
    del form
    visit.audit("log out", _peer(visit))
    visit.place.people.sessions.end(visit.session)
    visit.session = visit.place.people.anonymous()
    return visit.leave("/login")


async def health(visit: Visit) -> Response:
    """For supervisors: the console runs. The cluster may be away."""
    del visit
    return PlainTextResponse("ok\n")


def _enter(visit: Visit, session: Session) -> None:
    visit.place.people.sessions.end(visit.session)
    visit.session = session


def _callback(visit: Visit) -> str:
    return str(visit.request.base_url).rstrip("/") + CALLBACK


def _peer(visit: Visit) -> str:
    return visit.request.client.host if visit.request.client else "unknown"


ROUTES = [
    public_page("/login", login_page),
    public_page("/login/oidc", begin_oidc),
    public_page(CALLBACK, finish_oidc),
    public_page("/health", health),
    action("/login", log_in, changes=False),
    action("/logout", log_out, changes=False),
]
