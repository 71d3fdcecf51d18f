"""Pages and actions: sessions, templates, forms with tokens, errors as banners.

Every address is a `page` (GET, reads) or an `action` (POST, changes). An action is refused without the token of the
session's forms, from another site, without the role, and in a read-only console, before its code runs.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from kafkapy.errors import KafkaError
from kafkapy_console.console import Console
from kafkapy_console.errors import (
    UNEXPECTED,
    BadInputError,
    ConsoleError,
    ForbiddenError,
    NotFoundError,
    cluster_is_away,
    sentence,
    status_of,
)
from kafkapy_console.place import Place
from kafkapy_console.security.roles import Access
from kafkapy_console.security.sessions import Session, cookie_name
from kafkapy_console.services.clients import Clients
from kafkapy_console.settings import RESERVED, Level
from kafkapy_console.text import FILTERS
from kafkapy_console.version import __version__

__all__ = [
    "Form",
    "OnlyWithRole",
    "Visit",
    "action",
    "failed",
    "local_path",
    "not_found",
    "page",
    "public_page",
    "templates",
]

MOST_BODY = 8 << 20
"""Bytes of a form: a record to produce may be some megabytes."""
SAFE = ":/%#?=@[]!$&'()*+,;"
"""Characters that RedirectResponse keeps in an address; it quotes all others."""
THEMES = ("light", "dark")
SECTIONS = {
    "topics", "groups", "transactions", "acls", "rights", "users", "quotas", "tokens", "reassignments", "jobs",
    "features", "audit",
}  # fmt: skip
REFUSALS = (400, 409, 502)
"""Statuses of actions whose form may be mended: a value, the brokers or another service refuse it."""

logger = logging.getLogger("kafkapy.console")

templates = Environment(
    loader=PackageLoader("kafkapy_console"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
templates.filters.update(FILTERS)
templates.globals["version"] = __version__
templates.globals["Level"] = Level


class Form:
    """The fields of a form. Texts are stripped at their ends unless `raw` is asked."""

    def __init__(self, fields: Mapping[str, list[str]]) -> None:
        self._fields = fields

    def raw(self, name: str) -> str:
        """A field as it was sent; "" when it is missing."""
        return self._fields.get(name, [""])[-1]

    def text(self, name: str, most: int = 1000) -> str:
        """A field; "" when it is missing. BadInputError when it is too long."""
        value = self.raw(name).strip()
        if len(value) > most:
            raise BadInputError(f"{name} has more than {most} characters.")
        return value

    def needed(self, name: str, most: int = 1000) -> str:
        """A field that must not be empty."""
        value = self.text(name, most)
        if not value:
            raise BadInputError(f"{name.replace('_', ' ').capitalize()} is needed.")
        return value

    def choice(self, name: str, choices: tuple[str, ...] | list[str], default: str | None = None) -> str:
        """One of the choices. BadInputError."""
        value = self.text(name) or (default or "")
        if value not in choices:
            raise BadInputError(f"{name} must be one of {', '.join(choices)}.")
        return value

    def all(self, name: str) -> list[str]:
        """All values of a field."""
        return [value for value in self._fields.get(name, []) if value]

    def __contains__(self, name: str) -> bool:
        return bool(self._fields.get(name))


class Visit:
    """A request with its session: what handlers get."""

    def __init__(self, request: Request, place: Place, session: Session) -> None:
        self.request = request
        self.place = place
        self.session = session
        self._typed: Form | None = None

    @property
    def console(self) -> Console:
        """The cluster of the address. NotFoundError on a page before all clusters."""
        if not isinstance(self.place, Console):
            raise NotFoundError("This page is about no cluster.")
        return self.place

    @property
    def access(self) -> Access:
        """The rights of the session in the cluster of the address."""
        return self.session.access_in(self.place.cluster)

    @property
    def clients(self) -> Clients:
        """The Kafka clients of the session."""
        return self.console.clients(self.session)

    @property
    def query(self) -> Form:
        """The fields of the address."""
        return Form({name: self.request.query_params.getlist(name) for name in self.request.query_params})

    def path(self, name: str) -> str:
        """A part of the address, decoded: routes match the encoded path, so that a name may have a slash."""
        return unquote(str(self.request.path_params[name]))

    def require(self, level: Level, name: str | None = None) -> None:
        """ForbiddenError unless the session's roles allow the level for a name."""
        self.access.require(level, name)

    def can(self, level: Level, name: str | None = None) -> bool:
        """Whether a button for a change is shown."""
        return not self.place.settings.read_only and self.access.may(level, name)

    def audit(self, action: str, about: str, **details: Any) -> None:
        """A line in the audit log for an action that was carried out."""
        self.place.audit.write(self.session.user, action, about, details=details)

    def flash(self, text: str, kind: str = "ok") -> None:
        """A sentence on top of the next page."""
        self.session.flashes.append((kind, text, self.place.cluster))

    def _flashed(self, text: str, cluster: str) -> str:
        """The sentence of a flash; on a page of another cluster it names its own."""
        return text if cluster in ("", self.place.cluster) else f"Cluster {cluster}: {text}"

    @property
    def is_fragment(self) -> bool:
        """Whether htmx asks for a part of a page."""
        return self.request.headers.get("HX-Request") == "true" and "HX-Boosted" not in self.request.headers

    def render(self, template: str, code: int = 200, /, **context: Any) -> Response:
        """A page, or a fragment of one."""
        theme = self.request.cookies.get("theme", "")
        place = self.place
        flashes, self.session.flashes = ([], self.session.flashes) if self.is_fragment else (self.session.flashes, [])
        names = {
            "visit": self,
            "session": self.session,
            "can": self.can,
            "access": self.access,
            "typed": self.typed,
            "csrf": place.people.sessions.token(self.session),
            "path": self.request.url.path,
            "root": place.root,
            "in_cluster": isinstance(place, Console),
            "cluster_name": place.title,
            "clusters": self.clusters,
            "section": self._section(),
            "settings": place.settings,
            "theme": theme if theme in THEMES else "",
            "flashes": [(kind, self._flashed(text, cluster)) for kind, text, cluster in flashes],
            "has_registry": place.registry is not None,
            "has_connect": bool(place.connect),
            "needs_login": place.people.needs_login,
        }
        return HTMLResponse(templates.get_template(template).render(**{**names, **context}), code)

    @property
    def clusters(self) -> list[Console]:
        """Those of several clusters in which the session has a role."""
        return [each for each in self.place.all_clusters if self.session.access_in(each.cluster).grants]

    @property
    def grants(self) -> list[tuple[Level, tuple[str, ...]]]:
        """The rights in the cluster of the address; on a page before all clusters, those in any."""
        if isinstance(self.place, Console) or not self.place.all_clusters:
            return list(self.access.grants)
        return [each for found in self.clusters for each in self.session.access_in(found.cluster).grants]

    def _section(self) -> str:
        """The part of the console that the page is in, when each cluster has it: a link to another cluster keeps it."""
        first = self.request.url.path.removeprefix(self.place.root).strip("/").partition("/")[0]
        return first if first in SECTIONS else ""

    def typed(self, name: str, default: Any = "") -> Any:
        """The text of a field in a form that was refused, for its page; else the default."""
        return self._typed.raw(name) if self._typed is not None and name in self._typed else default

    async def refused(self, form: Form, form_page: Handler, error: Exception) -> Response:
        """The page of a form again, with the reason and the typed texts: browsers do not store the page."""
        self._typed = form
        self.flash(sentence(error), "bad")
        response = await form_page(self)
        response.status_code = status_of(error)
        return response

    def redirect(self, path: str) -> Response:
        """To another page of the cluster, after an action."""
        return self.leave(self.place.root + path)

    def leave(self, path: str) -> Response:
        """To a page of any cluster, or of none."""
        if self.request.headers.get("HX-Request") == "true":
            return Response(headers={"HX-Redirect": quote(path, safe=SAFE)})
        return RedirectResponse(path, 303)


Handler = Callable[[Visit], Awaitable[Response]]
ActionHandler = Callable[[Visit, Form], Awaitable[Response]]


def page(path: str, handler: Handler, level: Level = Level.VIEWER) -> Route:
    """A page for people who are logged in and have any role of the level; handlers check names."""
    return Route(path, _endpoint(handler, level), methods=["GET"], name=f"get:{path}")


def public_page(path: str, handler: Handler) -> Route:
    """A page for everybody: the login."""
    return Route(path, _endpoint(handler, None), methods=["GET"], name=f"get:{path}")


def action(
    path: str,
    handler: ActionHandler,
    level: Level = Level.EDITOR,
    *,
    changes: bool = True,
    form_page: Handler | None = None,
) -> Route:
    """An action. `changes` is false for one that changes nothing in the cluster (login, logout).

    A refused form comes again on `form_page` with its texts; without one the answer is the page of the error.
    """

    @wraps(handler)
    async def checked(visit: Visit) -> Response:
        form = None
        try:
            if changes:
                visit.place.check_may_change()
            _check_origin(visit.request)
            form = await _form(visit.request)
            token = visit.request.headers.get("X-CSRF-Token") or form.raw("_csrf")
            if not visit.place.people.sessions.is_token(visit.session, token):
                raise ForbiddenError("This form is too old, or came from another site. Load the page again.")
            return await handler(visit, form)
        except Exception as error:
            # A part may have been done before the failure.
            if changes:
                refused = isinstance(error, ConsoleError) and error.status == 403
                outcome = "refused" if refused else f"failed: {type(error).__name__}"
                visit.place.audit.write(visit.session.user, path, visit.request.url.path, outcome)
            if form_page is not None and form is not None and status_of(error) in REFUSALS:
                return await visit.refused(form, form_page, error)
            raise

    needed = level if changes else None
    return Route(path, _endpoint(checked, needed), methods=["POST"], name=f"post:{path}")


def _endpoint(handler: Handler, level: Level | None) -> Callable[[Request], Awaitable[Response]]:
    @wraps(handler)
    async def serve(request: Request) -> Response:
        place: Place = request.app.state.place
        people = place.people
        cookie = cookie_name(request.url.port)
        session = people.sessions.find(request.cookies.get(cookie))
        begun = session is None
        if session is None:
            session = people.anonymous()
        visit = Visit(request, place, session)
        response = await _answer(visit, handler, level)
        if begun or visit.session is not session:
            response.set_cookie(
                cookie,
                visit.session.id,
                httponly=True,
                samesite="lax",
                secure=people.settings.secure_cookies or request.url.scheme == "https",
                path="/",
            )
        return response

    return serve


async def _answer(visit: Visit, handler: Handler, level: Level | None) -> Response:
    try:
        if level is not None:
            _check_fetch(visit.request)
            if visit.place.people.needs_login and not visit.session.logged_in:
                return visit.leave("/login?next=" + quote(_here(visit.request), safe=""))
            if not any(granted >= level for granted, _ in visit.grants):
                if visit.request.method == "POST":
                    visit.place.audit.write(visit.session.user, visit.request.url.path, "", "refused")
                raise ForbiddenError(f"Your roles do not allow this: it needs the role {level.name.lower()}.")
        return await handler(visit)
    except (ConsoleError, KafkaError, ValueError) as error:
        return failed(visit, error)
    except Exception as error:
        logger.exception("Page %s failed", visit.request.scope["path"])
        return failed(visit, error)


def failed(visit: Visit, error: Exception) -> Response:
    """The page of an error: a banner with a sentence, never a stack trace."""
    status = status_of(error)
    unexpected = not isinstance(error, (ConsoleError, KafkaError, ValueError))
    text = UNEXPECTED if unexpected else sentence(error)
    template = "fragments/banner.html" if visit.is_fragment else "error.html"
    return visit.render(
        template, status, text=text, away=cluster_is_away(error), status=status, kind=type(error).__name__
    )


def _here(request: Request) -> str:
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


async def _form(request: Request) -> Form:
    kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind not in ("application/x-www-form-urlencoded", ""):
        raise BadInputError("Only forms are accepted.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BODY:
            raise BadInputError(f"The form is larger than {MOST_BODY >> 20} MiB.")
    try:
        text = body.decode()
        fields = parse_qs(
            text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=20_000, errors="strict"
        )
        return Form(fields)
    except ValueError:
        raise BadInputError("The form is not valid.") from None


def _check_fetch(request: Request) -> None:
    """A link of another site may lead here; its scripts and pictures may not make the console work."""
    headers = request.headers
    foreign = headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none")
    if foreign and headers.get("Sec-Fetch-Mode") != "navigate":
        raise ForbiddenError("This request came from another site.")


def _check_origin(request: Request) -> None:
    """Browsers say where a form comes from; other clients do not, and they have no cookie of a person."""
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        raise ForbiddenError("This form came from another site.")
    origin = request.headers.get("Origin")
    if origin and origin != "null" and urlsplit(origin).netloc.lower() != request.headers.get("Host", "").lower():
        raise ForbiddenError("This form came from another site.")
    if origin == "null":
        raise ForbiddenError("This form came from no site.")


def local_path(text: str) -> str:
    """A path of this console to go on to, / for anything else."""
    parts = urlsplit(text)
    if parts.scheme or parts.netloc or not text.startswith("/") or text.startswith(("//", "/\\")) or "\n" in text:
        return "/"
    return text


async def not_found(request: Request, error: Exception) -> Response:
    """The page for an unknown address; before a login, the login."""
    del error
    return await _endpoint(_no_page, None)(request)


async def _no_page(visit: Visit) -> Response:
    path = visit.request.url.path
    first = unquote(path.strip("/").partition("/")[0])
    if first in RESERVED:
        raise NotFoundError("There is no such page.")
    if visit.place.people.needs_login and not visit.session.logged_in:
        return visit.leave("/login?next=" + quote(_here(visit.request), safe=""))
    if visit.place.all_clusters and not isinstance(visit.place, Console):
        if path == f"/{first}" and first in [each.cluster for each in visit.clusters]:
            return visit.leave(f"/{first}/")
        raise NotFoundError(f"This console has no cluster {first[:100]}.")
    raise NotFoundError("There is no such page.")


class OnlyWithRole:
    """Serves a cluster to people with a role in it. To others it is as unknown as a name of no cluster."""

    def __init__(self, app: ASGIApp, console: Console) -> None:
        self._app = app
        self._console = console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "http":
            request = Request(scope)
            if self._is_hidden_from(request):
                response = await not_found(request, NotFoundError("hidden"))
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_hidden_from(self, request: Request) -> bool:
        people = self._console.people
        session = people.sessions.find(request.cookies.get(cookie_name(request.url.port)))
        if session is None:
            # The page begins the session that the browser gets.
            session = people.anonymous()
            people.sessions.end(session)
        return not session.access_in(self._console.cluster).grants
