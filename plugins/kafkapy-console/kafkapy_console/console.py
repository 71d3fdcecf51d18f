"""The state of a running console: settings, clients, sessions, remote services, background work."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import httpx

from kafkapy_console.errors import BadInputError, ForbiddenError, NotFoundError, TooBusyError
from kafkapy_console.records.masking import Masks
from kafkapy_console.records.registry import Registry
from kafkapy_console.records.schemas import Schemas
from kafkapy_console.security.audit import Audit
from kafkapy_console.security.oidc import Oidc
from kafkapy_console.security.passwords import DECOY, matches
from kafkapy_console.security.roles import EVERYTHING, Access, access_of
from kafkapy_console.security.sessions import Session, Sessions
from kafkapy_console.services.clients import Clients
from kafkapy_console.services.history import History
from kafkapy_console.services.jobs import Jobs
from kafkapy_console.services.rest_services import ConnectCluster, Metrics
from kafkapy_console.settings import Level, RoleRule, Settings

__all__ = ["Console", "number"]

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

logger = logging.getLogger("kafkapy.console")


@dataclass
class _Tries:
    failed: int = 0
    until: float = 0.0


class Console:
    """Everything that requests share. Used on one loop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.audit = Audit(settings.audit_file)
        self.masks = Masks(settings.masks)
        self.sessions = Sessions(settings.secret, settings.session_hours * 3600, self._session_ended)
        self.jobs = Jobs()
        self._own = Clients(settings.kafka)
        self._by_session: dict[str, Clients] = {}
        self._http: list[httpx.AsyncClient] = []
        self._streams: Counter[str] = Counter()
        """Running searches, live views and downloads by user."""
        self._tries: dict[str, _Tries] = {}
        self._hashing = asyncio.Semaphore(2)
        self._closing: set[asyncio.Task[None]] = set()

        registry = settings.registry
        self.registry = (
            None
            if registry is None
            else Registry(self._client(registry.ca_file), registry.url, _auth(registry.user, registry.password))
        )
        self.schemas = Schemas(self.registry, settings.schema_dir)
        self.connect = {
            each.name: ConnectCluster(self._client(each.ca_file), each.name, each.url, _auth(each.user, each.password))
            for each in settings.connect
        }
        self.metrics = Metrics(self._client(None), settings.metrics_urls)
        self.oidc = None if settings.oidc is None else Oidc(settings.oidc, self._client(settings.oidc.ca_file))
        # With a login by Kafka users the console itself has no principal to poll with.
        self.history = History(None if settings.login == "sasl" else self._own)

    def _client(self, ca_file: str | None) -> httpx.AsyncClient:
        import ssl

        verify: ssl.SSLContext | bool = True if ca_file is None else ssl.create_default_context(cafile=ca_file)
        client = httpx.AsyncClient(timeout=HTTP_TIMEOUT_S, verify=verify, follow_redirects=False)
        self._http.append(client)
        return client

    # --- life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Starts the background work. A cluster that is away is no reason not to start."""
        self.history.start()

    async def close(self) -> None:
        """Ends background work and closes all clients."""
        await self.history.close()
        await self.jobs.close()
        await asyncio.gather(*self._closing, return_exceptions=True)
        for clients in [*self._by_session.values(), self._own]:
            await clients.close()
        for http in self._http:
            with contextlib.suppress(Exception):
                await http.aclose()
        self.audit.close()

    # --- people -----------------------------------------------------------------------------------------------------

    @property
    def needs_login(self) -> bool:
        """Whether pages need a session of a person who logged in."""
        return self.settings.login != "none"

    def anonymous(self) -> Session:
        """A session before a login; without logins it may do everything."""
        access = Access(()) if self.needs_login else self._access("anonymous", (), EVERYTHING)
        return self.sessions.begin("anonymous", access, logged_in=not self.needs_login)

    def _access(self, user: str, groups: tuple[str, ...], default: Access) -> Access:
        return access_of(self.settings.roles, user, groups) if self.settings.roles else default

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
            self.audit.write(user[:100], "log in", peer, "refused")
            raise ForbiddenError("This name with this password is not known.")
        tries.failed, tries.until = 0, 0.0
        self.audit.write(user, "log in", peer)
        return session

    async def _by_file(self, user: str, password: str) -> Session | None:
        stored = self.settings.users.get(user)
        # A hash takes memory and time: few at once.
        async with self._hashing:
            right = await asyncio.to_thread(matches, password, stored or DECOY)
        if not right or stored is None:
            return None
        viewer = access_of([RoleRule(Level.VIEWER, ("*",))], user, ())
        return self.sessions.begin(user, self._access(user, (), viewer), logged_in=True)

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
        session = self.sessions.begin(user, self._access(user, (), EVERYTHING), logged_in=True, kafka=keys)
        self._by_session[session.id] = clients
        return session

    def log_in_by_oidc(self, user: str, groups: tuple[str, ...], peer: str) -> Session:
        """A session of a person whom the identity provider knows."""
        self.audit.write(user, "log in", peer, details={"groups": list(groups)})
        viewer = access_of([RoleRule(Level.VIEWER, ("*",))], user, groups)
        return self.sessions.begin(user, self._access(user, groups, viewer), logged_in=True)

    def _session_ended(self, session: Session) -> None:
        clients = self._by_session.pop(session.id, None)
        if clients is not None:
            task = asyncio.ensure_future(clients.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    # --- parts ------------------------------------------------------------------------------------------------------

    def clients(self, session: Session) -> Clients:
        """The Kafka clients of a session."""
        if self.settings.login != "sasl":
            return self._own
        found = self._by_session.get(session.id)
        if found is None:
            raise ForbiddenError("Log in again: this session has no Kafka user.")
        return found

    def clients_name(self) -> str:
        """The name of the cluster when the settings give none: the first address."""
        return self._own.bootstrap_servers.split(",")[0]

    def needed_registry(self) -> Registry:
        """The schema registry. ConsoleError without one."""
        if self.registry is None:
            raise NotFoundError("No schema registry is configured: the setting registry.url names one.")
        return self.registry

    def connect_cluster(self, name: str) -> ConnectCluster:
        """A cluster of Kafka Connect by name. ConsoleError."""
        if name not in self.connect:
            raise NotFoundError(f"No Connect cluster {name} is configured.")
        return self.connect[name]

    def check_may_change(self) -> None:
        """ForbiddenError in a read-only console."""
        if self.settings.read_only:
            raise ForbiddenError("This console is read-only: it changes nothing.")

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


def _auth(user: str | None, password: str | None) -> tuple[str, str] | None:
    return None if user is None else (user, password or "")


def number(text: str | None, name: str, low: int, high: int, default: int | None = None) -> int:
    """A number of a form. BadInputError with the bounds."""
    if not (text or "").strip():
        if default is None:
            raise BadInputError(f"{name} is needed.")
        return default
    try:
        value = int(str(text).strip().replace("_", "").replace(",", ""))
    except ValueError:
        raise BadInputError(f"{name} is no whole number: {str(text)[:50]!r}.") from None
    if not low <= value <= high:
        raise BadInputError(f"{name} is {value}, but must be from {low} to {high}.")
    return value
