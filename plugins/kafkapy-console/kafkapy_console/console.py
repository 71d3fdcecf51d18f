"""A cluster of a running console: settings, clients, remote services, background work."""

from __future__ import annotations

import contextlib

import httpx

from kafkapy_console.errors import BadInputError, NotFoundError
from kafkapy_console.place import Place
from kafkapy_console.records.masking import Masks
from kafkapy_console.records.registry import Registry
from kafkapy_console.records.schemas import Schemas
from kafkapy_console.security.audit import Audit
from kafkapy_console.security.people import People, http_client
from kafkapy_console.security.sessions import Session
from kafkapy_console.services.clients import Clients
from kafkapy_console.services.history import History
from kafkapy_console.services.jobs import Jobs
from kafkapy_console.services.rest_services import ConnectCluster, Metrics
from kafkapy_console.settings import Settings

__all__ = ["Console", "number"]


class Console(Place):
    """Everything that requests about one cluster share. Used on one loop."""

    def __init__(self, settings: Settings, people: People, audit: Audit, cluster: str = "") -> None:
        super().__init__(settings, people, audit, cluster)
        self.masks = Masks(settings.masks)
        self.jobs = Jobs()
        self._own = Clients(settings.kafka)
        self._http: list[httpx.AsyncClient] = []

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
        # With a login by Kafka users the console itself has no principal to poll with.
        self.history = History(None if people.settings.login == "sasl" else self._own)

    def _client(self, ca_file: str | None) -> httpx.AsyncClient:
        client = http_client(ca_file)
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
        await self._own.close()
        for http in self._http:
            with contextlib.suppress(Exception):
                await http.aclose()

    # --- parts ------------------------------------------------------------------------------------------------------

    @property
    def title(self) -> str:
        """The name of the cluster; the first address of a broker when the settings give none."""
        return self.settings.name or self._own.bootstrap_servers.split(",")[0]

    def clients(self, session: Session) -> Clients:
        """The Kafka clients of a session."""
        return self.people.kafka_clients(session) if self.people.settings.login == "sasl" else self._own

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
