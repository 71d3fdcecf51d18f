"""People of a console: logins, sessions, rights in each cluster, and how much one user may run at a time."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import httpx

from kafkapy_console.errors import ForbiddenError, TooBusyError
from kafkapy_console.security.audit import Audit
from kafkapy_console.security.oidc import Oidc
from kafkapy_console.security.passwords import DECOY, matches
from kafkapy_console.security.roles import EVERYTHING, Access, access_of
from kafkapy_console.security.sessions import Session, Sessions
from kafkapy_console.services.clients import Clients
from kafkapy_console.settings import Level, RoleRule, Settings

__all__ = ["People", "http_client"]

MOST_STREAMS = 200
MOST_STREAMS_OF_USER = 20
"""Searches, tails and downloads at the same time, of all users."""
HTTP_TIMEOUT_S = 10
CREDENTIALS = {
    "sasl.username",
    "sasl.password",
    "sasl.plain.username",
    "sasl.plain.password",
    "sasl.jaas.config",
}
"""Keys that a person who logs in with a Kafka user replaces."""
LOGIN_TRIES = 5
LOGIN_PAUSE_S = 30.0


def http_client(ca_file: str | None) -> httpx.AsyncClient:
    """A client for another service; `ca_file` has the authorities that it trusts."""
    verify: ssl.SSLContext | bool = True if ca_file is None else ssl.create_default_context(cafile=ca_file)
    return httpx.AsyncClient(timeout=HTTP_TIMEOUT_S, verify=verify, follow_redirects=False)


@dataclass
class _Tries:
    failed: int = 0
    until: float = 0.0


class People:
    """Sessions and rights of all clusters of a process. Used on one loop."""

    def __init__(self, settings: Settings, audit: Audit) -> None:
        self.settings = settings
        self.sessions = Sessions(settings.secret, settings.session_hours * 3600, self._session_ended)
        self._audit = audit
        self._by_session: dict[str, Clients] = {}
        self._streams: Counter[str] = Counter()
        """Running searches, live views and downloads by user."""
        self._tries: dict[str, _Tries] = {}
        self._hashing = asyncio.Semaphore(2)
        self._closing: set[asyncio.Task[None]] = set()
        self._http = None if settings.oidc is None else http_client(settings.oidc.ca_file)
        self.oidc = None if settings.oidc is None or self._http is None else Oidc(settings.oidc, self._http)

    async def close(self) -> None:
        """Close the clients of sessions."""
        await asyncio.gather(*self._closing, return_exceptions=True)
        for clients in self._by_session.values():
            await clients.close()
        if self._http is not None:
            with contextlib.suppress(Exception):
                await self._http.aclose()

    # --- sessions ---------------------------------------------------------------------------------------------------

    @property
    def needs_login(self) -> bool:
        """Whether pages need a session of a person who logged in."""
        return self.settings.login != "none"

    @property
    def only_acls(self) -> bool:
        """Whether the brokers alone decide what a person may do."""
        return self.settings.login == "sasl" and not self.settings.roles

    def anonymous(self) -> Session:
        """A session before a login; without logins it may do everything."""
        if self.needs_login:
            return self.sessions.begin("anonymous", Access(()), logged_in=False)
        return self._begin("anonymous", (), EVERYTHING)

    def _begin(self, user: str, groups: Sequence[str], default: Access) -> Session:
        """A session with the rights that the roles give, or `default` without any role in the settings."""
        rules = self.settings.roles
        if not rules:
            return self.sessions.begin(user, default, logged_in=True)
        everywhere = access_of([rule for rule in rules if not rule.clusters], user, groups)
        by_cluster = {
            each.name: access_of(
                [rule for rule in rules if not rule.clusters or each.name in rule.clusters], user, groups
            )
            for each in self.settings.clusters
        }
        return self.sessions.begin(user, everywhere, logged_in=True, by_cluster=by_cluster)

    async def log_in(self, user: str, password: str, peer: str) -> Session:
        """A session of a person with a password. ForbiddenError."""
        tries = self._tries.setdefault(f"{peer} {user}", _Tries())
        now = asyncio.get_running_loop().time()
        if now < tries.until:
            raise ForbiddenError(f"Too many failed logins: try again in {tries.until - now:.0f} seconds.")
        if len(self._tries) > 10_000:
            self._tries.clear()
        # Counted before the check: others that come meanwhile count too.
        tries.failed += 1
        if tries.failed >= LOGIN_TRIES:
            tries.failed, tries.until = 0, now + LOGIN_PAUSE_S
        session = await (self._by_kafka if self.settings.login == "sasl" else self._by_file)(user, password)
        if session is None:
            self._audit.write(user[:100], "log in", peer, "refused")
            raise ForbiddenError("This name with this password is not known.")
        tries.failed, tries.until = 0, 0.0
        self._audit.write(user, "log in", peer)
        return session

    async def _by_file(self, user: str, password: str) -> Session | None:
        stored = self.settings.users.get(user)
        # A hash takes memory and time: few at once.
        async with self._hashing:
            right = await asyncio.to_thread(matches, password, stored or DECOY)
        if not right or stored is None:
            return None
        return self._begin(user, (), access_of([RoleRule(Level.VIEWER, ("*",))], user, ()))

    async def _by_kafka(self, user: str, password: str) -> Session | None:
        """A person's own Kafka user: the brokers decide what it may do."""
        from kafkapy.errors import AuthenticationError

        keys = {"sasl.username": user, "sasl.password": password}
        shared = {name: value for name, value in self.settings.kafka.items() if name not in CREDENTIALS}
        clients = Clients({**shared, **keys})
        try:
            async with self._hashing:
                await (await clients.admin()).describe_cluster()
        except AuthenticationError:
            await clients.close()
            return None
        except BaseException:
            await clients.close()
            raise
        session = self._begin(user, (), EVERYTHING)
        self._by_session[session.id] = clients
        return session

    def log_in_by_oidc(self, user: str, groups: tuple[str, ...], peer: str) -> Session:
        """A session of a person whom the identity provider knows."""
        self._audit.write(user, "log in", peer, details={"groups": list(groups)})
        return self._begin(user, groups, access_of([RoleRule(Level.VIEWER, ("*",))], user, groups))

    def _session_ended(self, session: Session) -> None:
        clients = self._by_session.pop(session.id, None)
        if clients is not None:
            task = asyncio.ensure_future(clients.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def kafka_clients(self, session: Session) -> Clients:
        """The clients of a person who logged in with a Kafka user. ForbiddenError."""
        found = self._by_session.get(session.id)
        if found is None:
            raise ForbiddenError("Log in again: this session has no Kafka user.")
        return found

    # --- bounds -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def stream(self, session: Session) -> Iterator[None]:
        """Counts a search, tail or download. TooBusyError when there are too many, of all users or of one."""
        # Without a login, a session is a browser.
        user = session.user if self.needs_login else session.id
        if self._streams.total() >= MOST_STREAMS:
            raise TooBusyError("Too many searches, live views and downloads run now. Try again later.")
        if self._streams[user] >= MOST_STREAMS_OF_USER:
            raise TooBusyError(f"{MOST_STREAMS_OF_USER} searches, live views and downloads of yours run. End some.")
        self._streams[user] += 1
        try:
            yield
        finally:
            self._streams[user] -= 1
            if not self._streams[user]:
                del self._streams[user]
