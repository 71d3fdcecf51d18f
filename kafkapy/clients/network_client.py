"""The connections of one client: made when needed, tried again after a back-off, given up when they do not answer.

    network = NetworkClient(ClientConfig(COMMON, bootstrap_servers="a:9092"), client_id="orders-1")
    await network.start()
    response = await network.send(broker_id, request)
    await network.close()

Everything here runs on one event loop, the one that `start` runs on; bytes are the business of a C thread (`ClientIo`).
Requests that Python decodes go through `send`; Produce and Fetch, whose frames have kernels of their own, through
`submit`. Source: org.apache.kafka.clients.NetworkClient.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kafkapy._speedups.clients.io.frames import RequestFrame, ResponseFrame
from kafkapy.clients.backoff import Backoff
from kafkapy.clients.broker_version import broker_version
from kafkapy.clients.cluster import BrokerNode, ClusterMetadata
from kafkapy.clients.connection import ConnectionState, NodeConnection, canonical_names, parse_bootstrap
from kafkapy.clients.connections import Connections, request_header
from kafkapy.clients.metrics import ClientMetrics
from kafkapy.config.clients import ClientConfig
from kafkapy.errors import (
    AuthenticationError,
    ErrorCode,
    KafkaConnectionError,
    KafkaError,
    NoBrokersAvailableError,
    NodeNotReadyError,
    StaleMetadataError,
    UnsupportedVersionError,
    error_for,
)
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.protocol.registry import ApiKeys
from kafkapy.protocol.schema import Request

__all__ = ["NetworkClient", "RequestOf", "request_header"]

log = logging.getLogger(__name__)

METADATA_LOW: Final = 4
"""The first Metadata version that can say whether a topic may be created."""
SECOND_CONNECTIONS: Final = 2**32
"""A broker's second connection is that of a node with this much more of an id, which no broker has."""


class RequestOf(NamedTuple):
    """A request whose fields depend on the version that is chosen: `build(version)` makes it."""

    kind: type[Request]
    build: Callable[[int], Request]


class NetworkClient:
    """Owns the connections, the I/O thread and the cluster metadata of one client. All methods on the loop's thread."""

    def __init__(self, config: ClientConfig, *, client_id: str | None = None) -> None:
        """ConfigError for bootstrap.servers that are no addresses."""
        self.config = config
        self.client_id = config["client.id"] if client_id is None else client_id
        self.closed = False
        self.metrics = ClientMetrics(config["metrics.num.samples"], config["metrics.sample.window.ms"] / 1000)
        self._servers = parse_bootstrap(config["bootstrap.servers"])
        self._rebootstraps = config["metadata.recovery.strategy"].lower() == "rebootstrap"
        self._rebootstrap_after_s = config["metadata.recovery.rebootstrap.trigger.ms"] / 1000
        self._without_metadata_since_s: float | None = None
        self.cluster = ClusterMetadata(config, self.send_metadata, self._bootstrap_nodes())
        self._connections = Connections(config, self.client_id, self.metrics, self.cluster.node, self._on_lost)
        self._updater: asyncio.Task[None] | None = None

    # --- start and end ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Gets metadata from a bootstrap server, and keeps it current from then on.

        With api.version it does not wait for the first metadata. NoBrokersAvailableError after bootstrap.timeout.ms
        without success; AuthenticationError.
        """
        self._connections.start()
        if self.config["api.version"] is not None:
            self._updater = asyncio.ensure_future(self._keep_current())
            return
        await self._expand_servers()
        await self.bootstrap(self.config["bootstrap.timeout.ms"])
        self._updater = asyncio.ensure_future(self.cluster.keep_current())

    async def _keep_current(self) -> None:
        await self._expand_servers()
        await self.cluster.keep_current()

    async def _expand_servers(self) -> None:
        if self.config["client.dns.lookup"] == "resolve_canonical_bootstrap_servers_only":
            self._servers = await canonical_names(self._servers) or self._servers
            self.cluster.bootstrap(self._bootstrap_nodes())

    async def bootstrap(self, timeout_ms: float) -> None:
        """Returns when a bootstrap server has given metadata. NoBrokersAvailableError, AuthenticationError."""
        deadline_s = time.monotonic() + timeout_ms / 1000
        backoff = Backoff(self.config["retry.backoff.ms"], self.config["retry.backoff.max.ms"])
        attempts = 0
        last: KafkaError | None = None
        while True:
            left_s = deadline_s - time.monotonic()
            try:
                async with asyncio.timeout(max(left_s, 0.001)):
                    await self.cluster.refresh()
                break
            except TimeoutError:
                pass
            except AuthenticationError:
                raise
            except KafkaError as error:
                if not error.retriable:
                    raise
                if not isinstance(error, NodeNotReadyError) or last is None:
                    last = error
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                servers = ", ".join(f"{host}:{port}" for host, port in self._servers)
                why = f": {last}" if last is not None else ""
                raise NoBrokersAvailableError(f"no broker at {servers} has answered within {timeout_ms} ms{why}")
            await asyncio.sleep(min(backoff.delay_s(attempts), left_s))
            attempts += 1

    def learn_api_version(self, config: ClientConfig) -> None:
        """Has a client's configuration know the release of the brokers, as a connection tells it."""
        for connection in self._connections.by_node.values():
            if connection.api_versions:
                config.learn_api_version(broker_version(connection.api_versions))
                return

    async def close(self) -> None:
        """Closes every connection; what is in flight fails with KafkaConnectionError. May be called again."""
        if self.closed:
            return
        self.closed = True
        tasks = [*self._connections.cancel(), *self.cluster.cancel()]
        if self._updater is not None:
            self._updater.cancel()
            tasks.append(self._updater)
        self._connections.close()
        if tasks:
            await asyncio.wait(tasks)

    def _on_lost(self, node_id: int) -> None:
        # It may be that the broker is gone for good.
        if node_id in self.cluster.brokers():
            self.cluster.invalidate()

    # --- requests -----------------------------------------------------------------------------------------------------

    async def send(
        self,
        node_id: int,
        request: Request | RequestOf,
        *,
        timeout_ms: int | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> Any:
        """The decoded response, in the newest version that both sides know, from `min_version` to `max_version`.
        Connects first where needed.

        `timeout_ms` (request.timeout.ms by default) runs from when the request is sent. KafkaConnectionError: no
        connection, or lost; RequestTimedOutError: no answer in time, the connection is given up; NodeNotReadyError: too
        early to connect again; UnsupportedVersionError; StaleMetadataError: no such node; KafkaProtocolError: what came
        is no answer. Error codes in the response are the caller's to look at.
        """
        return (await self._exchange(node_id, request, timeout_ms, min_version, max_version))[0]

    async def _exchange(
        self, node_id: int, request: Request | RequestOf, timeout_ms: int | None, low: int | None, high: int | None
    ) -> tuple[Any, int]:
        """(decoded response, version)."""
        connection = self._connections.by_node.get(node_id)
        if connection is None or not connection.is_ready(time.monotonic()):
            connection = await self._connections.ready(node_id)
        kind = request.kind if isinstance(request, RequestOf) else request
        version = self._choose(connection, kind, low, high)
        if isinstance(request, RequestOf):
            request = request.build(version)
        return await self._connections.round_trip(connection, request, version, timeout_ms), version

    async def send_any(
        self,
        request: Request | RequestOf,
        *,
        timeout_ms: int | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> Any:
        """As `send`, to the least loaded broker; where that cannot be reached, to the others in turn."""
        return (await self._exchange_any(request, timeout_ms, min_version, max_version))[0]

    async def _exchange_any(
        self, request: Request | RequestOf, timeout_ms: int | None, low: int | None, high: int | None
    ) -> tuple[Any, int]:
        tried: set[int] = set()
        error: KafkaError | None = None
        while True:
            try:
                node_id = self.least_loaded_node(tried)
            except NodeNotReadyError as nobody:
                raise error or nobody from None
            tried.add(node_id)
            try:
                return await self._exchange(node_id, request, timeout_ms, low, high)
            except (KafkaConnectionError, NodeNotReadyError, StaleMetadataError) as failed:
                error = failed

    async def send_to_controller(
        self,
        request: Request | RequestOf,
        *,
        timeout_ms: int | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> Any:
        """As `send`, to the broker that takes requests for the controller. StaleMetadataError when none is known; a
        NOT_CONTROLLER in the response is the caller's to act on (`cluster.invalidate()`).
        """
        if self.cluster.controller is None:
            await self.cluster.refresh()
        controller = self.cluster.controller
        if controller is None:
            raise StaleMetadataError("the cluster has no controller at the moment")
        return await self.send(
            controller.node_id, request, timeout_ms=timeout_ms, min_version=min_version, max_version=max_version
        )

    async def send_metadata(self, request: MetadataRequest) -> tuple[Any, int]:
        """(response, version) of a Metadata request to any broker; begins again with the bootstrap servers when no
        known broker can be reached, or one says so (KIP-899, KIP-1102). For ClusterMetadata.
        """
        now_s = time.monotonic()
        if self._without_metadata_since_s is None:
            self._without_metadata_since_s = now_s
        elif now_s - self._without_metadata_since_s >= self._rebootstrap_after_s:
            self._rebootstrap("no metadata for too long")
        try:
            response, version = await self._exchange_any(request, None, METADATA_LOW, None)
        except (KafkaConnectionError, NodeNotReadyError, StaleMetadataError):
            if self._some_broker_connected() or not self._rebootstrap("none of the known brokers can be reached"):
                raise
            response, version = await self._exchange_any(request, None, METADATA_LOW, None)
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._rebootstrap("a broker asks for it")
            raise error_for(response.error_code)
        if not response.brokers:
            raise StaleMetadataError("a broker that is starting knows no brokers yet")
        self._without_metadata_since_s = None
        self._take_over_bootstrap(response.brokers)
        return response, version

    # --- the data plane -----------------------------------------------------------------------------------------------

    def submit(
        self,
        node_id: int,
        api_key: int,
        version: int,
        request: RequestFrame,
        response: ResponseFrame | None,
        timeout_ms: int,
    ) -> asyncio.Future[Any]:
        """Sends a frame that encodes itself; the future gives the parsed response frame, or None once a request without
        response is written. Its correlation id is set here.

        The future fails with KafkaConnectionError or RequestTimedOutError, and not before the I/O thread is done with
        the frame. A throttle time in the response is the caller's to report (`throttled`). NodeNotReadyError at once
        when there is no connection: `await ready()` comes first.
        """
        connection = self._connections.by_node.get(node_id)
        if connection is None or connection.state is not ConnectionState.READY or connection.closing:
            raise NodeNotReadyError(f"there is no connection to broker {node_id}")
        return self._connections.submit(connection, api_key, version, request, response, timeout_ms)

    def throttled(self, node_id: int, api_key: int, version: int, throttle_ms: int) -> None:
        """A response to `submit` had a throttle time: the node is not ready until it has passed (KIP-219)."""
        connection = self._connections.by_node.get(node_id)
        if connection is not None and throttle_ms > 0:
            self._connections.throttle(connection, api_key, version, throttle_ms)

    # --- nodes --------------------------------------------------------------------------------------------------------

    async def ready(self, node_id: int) -> None:
        """Returns when a request may be sent to the node: connects, and waits while the broker throttles this client.

        NodeNotReadyError: too early to connect again; KafkaConnectionError: that failed; AuthenticationError;
        UnsupportedVersionError: the broker is too old; StaleMetadataError: no such node.
        """
        await self._connections.ready(node_id)

    def is_ready(self, node_id: int) -> bool:
        """Whether a request may be sent to the node now."""
        connection = self._connections.by_node.get(node_id)
        return connection is not None and connection.is_ready(time.monotonic())

    def in_flight(self, node_id: int) -> int:
        """Requests to the node that are not answered yet."""
        connection = self._connections.by_node.get(node_id)
        return 0 if connection is None else connection.pending

    def beside(self, node_id: int) -> int:
        """The id of a node that is a second connection to a broker, for what is not to wait behind a request there."""
        node = self.cluster.node(node_id)
        if node is not None:
            self.cluster.add_node(node._replace(node_id=SECOND_CONNECTIONS + node_id))
        return SECOND_CONNECTIONS + node_id

    def connection_delay_s(self, node_id: int) -> float:
        """Seconds until it makes sense to try the node again: the rest of its back-off or throttling, else 0."""
        connection = self._connections.by_node.get(node_id)
        if connection is None:
            return 0.0
        if connection.closing:
            return float(self.config["reconnect.backoff.ms"]) / 1000
        if connection.state is ConnectionState.READY:
            return max(connection.throttled_until_s - time.monotonic(), 0.0)
        if connection.state is ConnectionState.DISCONNECTED:
            return max(connection.reconnect_at_s - time.monotonic(), 0.0)
        return 0.0

    def least_loaded_node(self, but: set[int] | None = None) -> int:
        """The id of the node with the fewest requests in flight, not among `but`: connected, else connecting, else one
        that may be connected to now, the least recently tried first. NodeNotReadyError when there is none.
        """
        now_s = time.monotonic()
        nodes = [node_id for node_id in self.cluster.brokers() if not but or node_id not in but]
        random.shuffle(nodes)
        best: int | None = None
        rank: tuple[int, float] = (3, 0.0)
        for node_id in nodes:
            connection = self._connections.by_node.get(node_id)
            if connection is None:
                candidate = (2, 0.0)
            elif connection.is_ready(now_s):
                candidate = (0, connection.pending)
            elif connection.preparing:
                candidate = (1, 0.0)
            elif connection.can_connect(now_s):
                candidate = (2, connection.last_attempt_s)
            else:
                continue
            if candidate < rank:
                best, rank = node_id, candidate
        if best is None:
            raise NodeNotReadyError("no broker can be reached now")
        return best

    async def version(self, node_id: int, api_key: int, low: int, high: int) -> int:
        """The newest version of an API from low to high that the node serves; connects. UnsupportedVersionError."""
        await self.ready(node_id)
        return self.negotiated(node_id, api_key, low, high)

    def negotiated(self, node_id: int, api_key: int, low: int, high: int) -> int:
        """The same of a node that was connected before. UnsupportedVersionError."""
        connection = self._connections.by_node.get(node_id)
        served = connection.api_versions.get(api_key) if connection is not None else None
        if served is None or min(high, served[1]) < max(low, served[0]):
            serves = f"versions {served[0]} to {served[1]}" if served else "no version"
            raise UnsupportedVersionError(
                f"{ApiKeys(api_key).title} is needed in version {low} to {high}, but "
                f"{connection or f'broker {node_id}'} serves {serves}"
            )
        return min(high, served[1])

    def finalized_feature(self, node_id: int, name: str) -> int:
        """The level of a feature of the cluster, as the node said when it was connected to; 0 when it is not known."""
        connection = self._connections.by_node.get(node_id)
        return 0 if connection is None else connection.features.get(name, 0)

    def disconnect(self, node_id: int) -> None:
        """Gives up the connection to a node; what is in flight fails with KafkaConnectionError."""
        connection = self._connections.by_node.get(node_id)
        if connection is not None:
            self._connections.disconnect(connection)

    def _choose(
        self, connection: NodeConnection, request: Request | type[Request], low: int | None, high: int | None
    ) -> int:
        versions = request.VERSIONS
        return self.negotiated(
            connection.node_id,
            request.API_KEY,
            versions.low if low is None else max(low, versions.low),
            versions.high if high is None else min(high, versions.high),
        )

    # --- bootstrap servers --------------------------------------------------------------------------------------------

    def _bootstrap_nodes(self) -> list[BrokerNode]:
        return [BrokerNode(-1 - index, host, port) for index, (host, port) in enumerate(self._servers)]

    def _some_broker_connected(self) -> bool:
        """Whether a known broker may be asked again soon: it is throttled, say, or being connected to."""
        by_node = self._connections.by_node
        known = [by_node[node_id] for node_id in self.cluster.brokers() if node_id in by_node]
        return any(each.state is not ConnectionState.DISCONNECTED and not each.closing for each in known)

    def _rebootstrap(self, why: str) -> bool:
        """Forgets the known brokers for the bootstrap servers, if that is wanted and there are any."""
        if not self._rebootstraps or self.cluster.bootstrapping:
            return False
        log.info("Beginning again with the bootstrap servers: %s", why)
        self._without_metadata_since_s = time.monotonic()
        for node_id in self.cluster.brokers():
            self.disconnect(node_id)
        self.cluster.bootstrap(self._bootstrap_nodes())
        for server in self.cluster.brokers():
            if server in self._connections.by_node:
                self._connections.forget(server)
        return True

    def _take_over_bootstrap(self, brokers: Any) -> None:
        """The connection to a bootstrap server becomes that of the broker that listens there; others are closed."""
        by_address = {(broker.host, broker.port): broker.node_id for broker in brokers}
        by_node = self._connections.by_node
        for node_id in [node_id for node_id in by_node if node_id < 0]:
            connection = by_node[node_id]
            broker_id = by_address.get((connection.host, connection.port))
            before = by_node.get(broker_id) if broker_id is not None else None
            vacant = before is None or (before.state is ConnectionState.DISCONNECTED and not before.pending)
            if broker_id is not None and vacant and connection.state is ConnectionState.READY:
                del by_node[node_id]
                connection.node_id = broker_id
                by_node[broker_id] = connection
            elif not connection.pending:
                self._connections.forget(node_id)

    def metrics_snapshot(self, prefix: str) -> dict[str, dict[str, float]]:
        """What `ClientMetrics.snapshot` gives. Any thread."""
        return self.metrics.snapshot(prefix)
