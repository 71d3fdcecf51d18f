"""The network side of one client: connections, requests, and cluster metadata.

    network = NetworkClient(ClientConfig(COMMON, bootstrap_servers="a:9092"), client_id="orders-1")
    await network.start()
    response = await network.send(broker_id, request)
    await network.close()

It opens connections on demand, retries after a back-off, and closes unresponsive ones. Everything runs on one event
loop, that of `start`; a C thread (`ClientIo`) moves the bytes. `send` carries requests that Python decodes; `submit`
carries Produce and Fetch, whose frames kernels encode and decode. Source: org.apache.kafka.clients.NetworkClient.
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
"""The first Metadata version that can forbid the creation of topics."""
SECOND_CONNECTIONS: Final = 2**32
"""The id of a broker's second connection is the broker id plus this number, which no broker id reaches."""


class RequestOf(NamedTuple):
    """A request whose fields depend on the version; `build(version)` creates it."""

    kind: type[Request]
    build: Callable[[int], Request]


class NetworkClient:
    """Owns the connections, the I/O thread and the metadata of one client.

    All methods belong to the loop's thread.
    """

    def __init__(self, config: ClientConfig, *, client_id: str | None = None) -> None:
        """ConfigError for invalid addresses in bootstrap.servers."""
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
        """Gets metadata from a bootstrap server, and then keeps it current.

        With api.version it returns before the first metadata. NoBrokersAvailableError after bootstrap.timeout.ms;
        AuthenticationError.
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
        """Returns when a bootstrap server has sent metadata. NoBrokersAvailableError, AuthenticationError."""
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
                raise NoBrokersAvailableError(f"no broker at {servers} answered within {timeout_ms} ms{why}")
            await asyncio.sleep(min(backoff.delay_s(attempts), left_s))
            attempts += 1

    def learn_api_version(self, config: ClientConfig) -> None:
        """Sets the brokers' release in a client's configuration.

        It comes from the API versions of a connection.
        """
        for connection in self._connections.by_node.values():
            if connection.api_versions:
                config.learn_api_version(broker_version(connection.api_versions))
                return

    async def close(self) -> None:
        """Closes all connections. A second call does nothing.

        Requests in flight fail with KafkaConnectionError.
        """
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
        await self._connections.close_security()

    def _on_lost(self, node_id: int) -> None:
        # The broker may be gone for good.
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
        """The decoded response, in the newest version that both sides support.

        The version lies between `min_version` and `max_version`. Connects if necessary. `timeout_ms` (default
        request.timeout.ms) starts when the request is sent.

        KafkaConnectionError: no connection, or it was lost; RequestTimedOutError: no response in time, the connection
        closes; NodeNotReadyError: the reconnect back-off is not over; UnsupportedVersionError; StaleMetadataError:
        unknown node; KafkaProtocolError: an invalid response. The caller checks the error codes in the response.
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
        """As `send`, to the least loaded broker, then to the others."""
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
        """As `send`, to the broker that accepts requests for the controller.

        StaleMetadataError when no controller is known. The caller handles NOT_CONTROLLER in the response
        (`cluster.invalidate()`).
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
        """(response, version) of a Metadata request to any broker.

        For ClusterMetadata. It rebootstraps when no known broker is reachable, or when a broker asks for it (KIP-899,
        KIP-1102).
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
            raise StaleMetadataError("a starting broker knows no brokers yet")
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
        """Sends a frame that encodes itself, and sets its correlation id.

        The future gives the parsed response frame, or None once a request without response is written. It fails with
        KafkaConnectionError or RequestTimedOutError, after the I/O thread has released the frame. The caller reports a
        throttle time in the response (`throttled`). NodeNotReadyError at once without a connection: `await ready()`
        first.
        """
        connection = self._connections.by_node.get(node_id)
        if connection is None or connection.state is not ConnectionState.READY or connection.closing:
            raise NodeNotReadyError(f"there is no connection to broker {node_id}")
        return self._connections.submit(connection, api_key, version, request, response, timeout_ms)

    def throttled(self, node_id: int, api_key: int, version: int, throttle_ms: int) -> None:
        """Reports a throttle time in a response to `submit` (KIP-219).

        The node is not ready until the time has passed.
        """
        connection = self._connections.by_node.get(node_id)
        if connection is not None and throttle_ms > 0:
            self._connections.throttle(connection, api_key, version, throttle_ms)

    # --- nodes --------------------------------------------------------------------------------------------------------

    async def ready(self, node_id: int) -> None:
        """Returns when a request may be sent to the node.

        Connects, and waits while the broker throttles this client. NodeNotReadyError: the reconnect back-off is not
        over; KafkaConnectionError: the connection failed; AuthenticationError; UnsupportedVersionError: the broker is
        too old; StaleMetadataError: unknown node.
        """
        await self._connections.ready(node_id)

    def is_ready(self, node_id: int) -> bool:
        """Whether a request may be sent to the node now."""
        connection = self._connections.by_node.get(node_id)
        return connection is not None and connection.is_ready(time.monotonic())

    def in_flight(self, node_id: int) -> int:
        """Number of requests in flight to the node."""
        connection = self._connections.by_node.get(node_id)
        return 0 if connection is None else connection.pending

    def beside(self, node_id: int) -> int:
        """The node id of a second connection to a broker.

        Requests on it do not wait behind a request on the first one.
        """
        node = self.cluster.node(node_id)
        if node is not None:
            self.cluster.add_node(node._replace(node_id=SECOND_CONNECTIONS + node_id))
        return SECOND_CONNECTIONS + node_id

    def connection_delay_s(self, node_id: int) -> float:
        """Seconds until another attempt makes sense.

        The rest of the reconnect back-off or the throttling, else 0.
        """
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
        """The id of the least loaded node that is not in `but`.

        The load is the number of requests in flight. Connected nodes come first, then connecting ones, then nodes whose
        back-off is over, the least recently tried first. NodeNotReadyError without any.
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
            raise NodeNotReadyError("no broker is reachable now")
        return best

    async def version(self, node_id: int, api_key: int, low: int, high: int) -> int:
        """The newest API version from low to high that the node serves.

        Connects if necessary. UnsupportedVersionError.
        """
        await self.ready(node_id)
        return self.negotiated(node_id, api_key, low, high)

    def negotiated(self, node_id: int, api_key: int, low: int, high: int) -> int:
        """As `version`, for a node that was connected before. UnsupportedVersionError."""
        connection = self._connections.by_node.get(node_id)
        served = connection.api_versions.get(api_key) if connection is not None else None
        if served is None or min(high, served[1]) < max(low, served[0]):
            serves = f"versions {served[0]} to {served[1]}" if served else "no version"
            raise UnsupportedVersionError(
                f"{ApiKeys(api_key).title} is needed in versions {low} to {high}, but "
                f"{connection or f'broker {node_id}'} serves {serves}"
            )
        return min(high, served[1])

    def finalized_feature(self, node_id: int, name: str) -> int:
        """The level of a cluster feature, 0 when unknown.

        The level is from the node's last connect.
        """
        connection = self._connections.by_node.get(node_id)
        return 0 if connection is None else connection.features.get(name, 0)

    def disconnect(self, node_id: int) -> None:
        """Closes the connection to a node.

        Requests in flight fail with KafkaConnectionError.
        """
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
        """Whether a known broker is usable soon: connected, connecting or throttled."""
        by_node = self._connections.by_node
        known = [by_node[node_id] for node_id in self.cluster.brokers() if node_id in by_node]
        return any(each.state is not ConnectionState.DISCONNECTED and not each.closing for each in known)

    def _rebootstrap(self, why: str) -> bool:
        """Replaces the known brokers by the bootstrap servers.

        Returns False if the configuration forbids it, or if only bootstrap servers are known.
        """
        if not self._rebootstraps or self.cluster.bootstrapping:
            return False
        log.info("Rebootstrapping: %s", why)
        self._without_metadata_since_s = time.monotonic()
        for node_id in self.cluster.brokers():
            self.disconnect(node_id)
        self.cluster.bootstrap(self._bootstrap_nodes())
        for server in self.cluster.brokers():
            if server in self._connections.by_node:
                self._connections.forget(server)
        return True

    def _take_over_bootstrap(self, brokers: Any) -> None:
        """Turns a bootstrap server's connection into that of the broker there.

        Other idle connections to bootstrap servers close.
        """
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
        """The result of `ClientMetrics.snapshot`. Any thread."""
        return self.metrics.snapshot(prefix)
