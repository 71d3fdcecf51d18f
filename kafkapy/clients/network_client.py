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
import contextlib
import logging
import os
import random
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from kafkapy._speedups.client_io import BytesFrame, BytesResponse, ClientIo, RequestFrame, ResponseFrame
from kafkapy._speedups.codec import encode_message
from kafkapy.clients.authenticator import authenticator_for
from kafkapy.clients.backoff import Backoff
from kafkapy.clients.cluster import BrokerNode, ClusterMetadata
from kafkapy.clients.connection import (
    ConnectionState,
    InFlight,
    NodeConnection,
    canonical_names,
    open_socket,
    parse_bootstrap,
)
from kafkapy.clients.metrics import ClientMetrics
from kafkapy.clients.throttling import client_throttles
from kafkapy.config.clients import ClientConfig
from kafkapy.errors import (
    AuthenticationError,
    ErrorCode,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    NoBrokersAvailableError,
    NodeNotReadyError,
    RequestTimedOutError,
    StaleMetadataError,
    UnsupportedVersionError,
    error_for,
)
from kafkapy.protocol.header import RequestHeader, decode_response, request_header_version
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.protocol.registry import ApiKeys
from kafkapy.protocol.schema import DecodeError, Request
from kafkapy.version import __version__

__all__ = ["NetworkClient", "RequestOf", "request_header"]

log = logging.getLogger(__name__)

SOFTWARE_NAME: Final = "kafkapy"
METADATA_LOW: Final = 4
"""The first Metadata version that can say whether a topic may be created."""
NEVER: Final = float("inf")


class RequestOf(NamedTuple):
    """A request whose fields depend on the version that is chosen: `build(version)` makes it."""

    kind: type[Request]
    build: Callable[[int], Request]


@lru_cache(maxsize=4096)
def request_header(api_key: int, version: int, client_id: str | None) -> bytes:
    """The header of a request without the frame's size; the correlation id, at offset 4, is 0."""
    header = RequestHeader(request_api_key=api_key, request_api_version=version, correlation_id=0, client_id=client_id)
    return header.encode(request_header_version(api_key, version))


class NetworkClient:
    """Owns the connections, the I/O thread and the cluster metadata of one client. All methods on the loop's thread."""

    def __init__(self, config: ClientConfig, *, client_id: str | None = None) -> None:
        """ConfigError for bootstrap.servers that are no addresses."""
        self.config = config
        self.client_id = config["client.id"] if client_id is None else client_id
        self.closed = False
        self.metrics = ClientMetrics(config["metrics.num.samples"], config["metrics.sample.window.ms"] / 1000)
        self._servers = parse_bootstrap(config["bootstrap.servers"])
        self._authenticator = authenticator_for(config)
        self._reconnect = Backoff(config["reconnect.backoff.ms"], config["reconnect.backoff.max.ms"])
        self._setup = Backoff(
            config["socket.connection.setup.timeout.ms"], config["socket.connection.setup.timeout.max.ms"]
        )
        self._request_timeout_ms: int = config["request.timeout.ms"]
        idle_ms = config["connections.max.idle.ms"]
        self._max_idle_s = idle_ms / 1000 if idle_ms >= 0 else NEVER
        self._rebootstraps = config["metadata.recovery.strategy"].lower() == "rebootstrap"
        self._rebootstrap_after_s = config["metadata.recovery.rebootstrap.trigger.ms"] / 1000
        self._without_metadata_since_s: float | None = None
        self.cluster = ClusterMetadata(self, self._bootstrap_nodes())
        self._io = ClientIo(config["receive.message.max.bytes"])
        self._connections: dict[int, NodeConnection] = {}
        self._channels: dict[int, NodeConnection] = {}
        self._correlation_id = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._updater: asyncio.Task[None] | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._pid = os.getpid()

    # --- start and end ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Gets metadata from a bootstrap server, and keeps it current from then on.

        NoBrokersAvailableError after bootstrap.timeout.ms without success; AuthenticationError.
        """
        self._begin()
        if self.config["client.dns.lookup"] == "resolve_canonical_bootstrap_servers_only":
            self._servers = await canonical_names(self._servers) or self._servers
            self.cluster.bootstrap(self._bootstrap_nodes())
        timeout_ms = self.config["bootstrap.timeout.ms"]
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
        self._updater = asyncio.ensure_future(self.cluster.keep_current())

    def _begin(self) -> asyncio.AbstractEventLoop:
        if self.closed:
            raise IllegalStateError("the client is closed")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._io.fileno(), self._on_events)
        return self._loop

    async def close(self) -> None:
        """Closes every connection; what is in flight fails with KafkaConnectionError. May be called again."""
        if self.closed:
            return
        self.closed = True
        tasks = [connection.task for connection in self._connections.values() if connection.task is not None]
        if self._updater is not None:
            tasks.append(self._updater)
        tasks += self.cluster.cancel()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._abandon()

    def _abandon(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._io.fileno())
        self._count_bytes()
        self._io.close()
        for connection in self._connections.values():
            connection.state = ConnectionState.DISCONNECTED
            self._fail_in_flight(connection, "the client was closed")
        self._channels.clear()

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
        connection = self._connections.get(node_id)
        if connection is None or not connection.is_ready(self._now()):
            await self.ready(node_id)
            connection = self._connections[node_id]
        kind = request.kind if isinstance(request, RequestOf) else request
        version = self._choose(connection, kind, low, high)
        if isinstance(request, RequestOf):
            request = request.build(version)
        return await self._round_trip(connection, request, version, timeout_ms), version

    async def _round_trip(
        self, connection: NodeConnection, request: Request, version: int, timeout_ms: int | None
    ) -> Any:
        api_key = request.API_KEY
        frame = BytesFrame(encode_message(request, version, request_header(api_key, version, self.client_id)))
        if timeout_ms is None:
            timeout_ms = self._request_timeout_ms
        answer = await self._submit(connection, api_key, version, frame, BytesResponse(), timeout_ms)
        try:
            _, response = decode_response(api_key, version, answer.frame)
        except DecodeError as error:
            self._disconnect(connection)
            raise KafkaProtocolError(
                f"{connection} does not answer {request.NAME} version {version} as a Kafka broker: {error}"
            ) from None
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms:
            self._throttle(connection, api_key, version, throttle_ms)
        return response

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
            if not self._rebootstrap("none of the known brokers can be reached"):
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
        the frame. A throttle time in the response is the caller's to report (`throttled`). NodeNotReadyError at once when
        there is no connection: `await ready()` comes first.
        """
        connection = self._connections.get(node_id)
        if connection is None or connection.state is not ConnectionState.READY or connection.closing:
            raise NodeNotReadyError(f"there is no connection to broker {node_id}")
        return self._submit(connection, api_key, version, request, response, timeout_ms)

    def _submit(
        self,
        connection: NodeConnection,
        api_key: int,
        version: int,
        request: RequestFrame,
        response: ResponseFrame | None,
        timeout_ms: int,
    ) -> asyncio.Future[Any]:
        loop = self._loop
        if self.closed or loop is None:
            raise IllegalStateError("the client is closed" if self.closed else "the client was not started")
        if connection.channel == 0 or connection.closing:
            raise KafkaConnectionError(f"the connection to {connection} was lost")
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        request.correlation_id = correlation_id
        now_s = time.monotonic()
        entry = InFlight(loop.create_future(), correlation_id, api_key, version, now_s, timeout_ms / 1000)
        if response is None:
            connection.silent.append(entry)
        else:
            response.context = entry
            connection.in_flight[correlation_id] = entry
        connection.last_active_s = now_s
        self._io.submit(connection.channel, request, response)
        if self._sweep is None or entry.deadline_s < self._sweep_s:
            self._sweep_at(entry.deadline_s, now_s)
        metrics = self.metrics
        metrics.in_flight += 1
        metrics.requests.record(1, now_s)
        metrics.node(connection.node_id).requests.record(1, now_s)
        return entry.future

    def throttled(self, node_id: int, api_key: int, version: int, throttle_ms: int) -> None:
        """A response to `submit` had a throttle time: the node is not ready until it has passed (KIP-219)."""
        connection = self._connections.get(node_id)
        if connection is not None and throttle_ms > 0:
            self._throttle(connection, api_key, version, throttle_ms)

    def _throttle(self, connection: NodeConnection, api_key: int, version: int, throttle_ms: int) -> None:
        now_s = time.monotonic()
        self.metrics.throttle_ms.record(throttle_ms, now_s)
        if client_throttles(api_key, version):
            connection.throttled_until_s = max(connection.throttled_until_s, now_s + throttle_ms / 1000)

    def _on_events(self) -> None:
        """The I/O thread has something."""
        now_s = time.monotonic()
        metrics = self.metrics
        for channel, what, error in self._io.events():
            if what is None:
                self._on_gone(channel, error)
                continue
            connection = self._channels[channel]
            if isinstance(what, ResponseFrame):
                entry = what.context
                what.context = None
                connection.in_flight.pop(entry.correlation_id, None)
                result: Any = what
            else:
                entry = connection.silent.popleft()
                result = None
            connection.last_active_s = now_s
            metrics.in_flight -= 1
            if error:
                self._fail(entry, KafkaError(f"the request could not be encoded: {os.strerror(error)}"))
                continue
            latency_ms = (now_s - entry.started_s) * 1000
            metrics.responses.record(1, now_s)
            metrics.latency_ms.record(latency_ms, now_s)
            node = metrics.node(connection.node_id)
            node.responses.record(1, now_s)
            node.latency_ms.record(latency_ms, now_s)
            if not entry.future.done():
                entry.future.set_result(result)

    @staticmethod
    def _fail(entry: InFlight, error: Exception) -> None:
        if not entry.future.done():
            entry.future.set_exception(error)

    # --- nodes --------------------------------------------------------------------------------------------------------

    async def ready(self, node_id: int) -> None:
        """Returns when a request may be sent to the node: connects, and waits while the broker throttles this client.

        NodeNotReadyError: too early to connect again; KafkaConnectionError: that failed; AuthenticationError;
        UnsupportedVersionError: the broker is too old; StaleMetadataError: no such node.
        """
        loop = self._begin()
        while True:
            now_s = self._now()
            connection = self._connection(node_id)
            if connection.state is ConnectionState.READY and not connection.closing:
                if now_s >= connection.throttled_until_s:
                    return
                await asyncio.sleep(connection.throttled_until_s - now_s)
                continue
            if connection.task is None:
                if connection.closing or now_s < connection.reconnect_at_s:
                    raise NodeNotReadyError(f"{connection} is not connected, and it is too early for another attempt")
                connection.last_attempt_s = now_s
                connection.state = ConnectionState.CONNECTING
                connection.task = loop.create_task(self._connect(connection))
            await asyncio.wait([connection.task])
            if connection.state is not ConnectionState.READY:
                error = connection.error
                if self.closed:
                    raise IllegalStateError("the client is closed")
                if isinstance(error, KafkaError) and not isinstance(error, KafkaConnectionError):
                    raise type(error)(str(error))
                raise KafkaConnectionError(str(error) if error else f"{connection} has closed the connection") from None

    def is_ready(self, node_id: int) -> bool:
        """Whether a request may be sent to the node now."""
        connection = self._connections.get(node_id)
        return connection is not None and connection.is_ready(self._now())

    def in_flight(self, node_id: int) -> int:
        """Requests to the node that are not answered yet."""
        connection = self._connections.get(node_id)
        return 0 if connection is None else connection.pending

    def connection_delay_s(self, node_id: int) -> float:
        """Seconds until it makes sense to try the node again: the rest of its back-off or throttling, else 0."""
        connection = self._connections.get(node_id)
        if connection is None:
            return 0.0
        if connection.state is ConnectionState.READY:
            return max(connection.throttled_until_s - self._now(), 0.0)
        if connection.state is ConnectionState.DISCONNECTED:
            return max(connection.reconnect_at_s - self._now(), 0.0)
        return 0.0

    def least_loaded_node(self, but: set[int] | None = None) -> int:
        """The id of the node with the fewest requests in flight, not among `but`: connected, else connecting, else one
        that may be connected to now, the least recently tried first. NodeNotReadyError when there is none.
        """
        now_s = self._now()
        nodes = [node_id for node_id in self.cluster.brokers() if not but or node_id not in but]
        random.shuffle(nodes)
        best: int | None = None
        rank: tuple[int, float] = (3, 0.0)
        for node_id in nodes:
            connection = self._connections.get(node_id)
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
        connection = self._connections.get(node_id)
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
        connection = self._connections.get(node_id)
        return 0 if connection is None else connection.features.get(name, 0)

    def disconnect(self, node_id: int) -> None:
        """Gives up the connection to a node; what is in flight fails with KafkaConnectionError."""
        connection = self._connections.get(node_id)
        if connection is not None:
            self._disconnect(connection)

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

    def _now(self) -> float:
        return time.monotonic()

    def _connection(self, node_id: int) -> NodeConnection:
        """The node's connection in whatever state. StaleMetadataError."""
        connection = self._connections.get(node_id)
        if connection is not None and connection.state is not ConnectionState.DISCONNECTED:
            return connection
        node = self.cluster.node(node_id)
        if node is None:
            raise StaleMetadataError(f"broker {node_id} is not known")
        if connection is None:
            connection = self._connections[node_id] = NodeConnection(node_id, node.host, node.port)
        elif (connection.host, connection.port) != (node.host, node.port):
            connection.moved(node.host, node.port)
        return connection

    # --- connecting ---------------------------------------------------------------------------------------------------

    async def _connect(self, connection: NodeConnection) -> None:
        """Leaves the connection ready, or disconnected with an `error`."""
        try:
            made = await open_socket(connection, self.config, self._setup.delay_s(connection.setup_attempts))
            connection.channel = self._io.add(made.fileno())
            made.detach()
            self._channels[connection.channel] = connection
            now_s = time.monotonic()
            connection.last_active_s = now_s
            self.metrics.connections_created.record(1, now_s)
            self.metrics.connection_count += 1
            connection.state = ConnectionState.CHECKING_API_VERSIONS
            await self._authenticator.authenticate(connection)
            await self._learn_versions(connection)
            connection.connected()
            self._sweep_at(now_s + self._max_idle_s, now_s)
        except (OSError, KafkaError) as error:
            self._not_connected(connection, error)
        except BaseException:
            self._not_connected(connection, KafkaConnectionError("the client was closed"))
            raise
        finally:
            connection.task = None

    def _not_connected(self, connection: NodeConnection, error: Exception) -> None:
        if isinstance(error, TimeoutError):
            why = "the connection was not made in time"
        elif isinstance(error, OSError):
            why = (error.strerror or str(error)).lower()
        else:
            why = str(error)
        text = f"{connection} cannot be reached: {why}" if isinstance(error, OSError) else why
        connection.error = KafkaConnectionError(text) if isinstance(error, OSError) else error
        log.log(logging.DEBUG if self.closed else logging.WARNING, "%s", text)
        if connection.channel:
            # The rest is done when the I/O thread says that it is gone.
            self._disconnect(connection)
        elif connection.state is not ConnectionState.DISCONNECTED:
            connection.disconnected(time.monotonic(), self._reconnect)

    async def _learn_versions(self, connection: NodeConnection) -> None:
        """The newest ApiVersions is tried first; a broker that does not know it says which it knows, or answers in
        version 0 (KIP-511).
        """
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        version = request.VERSIONS.high
        response = await self._round_trip(connection, request, version, None)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            offered = [each.max_version for each in response.api_keys if each.api_key == ApiKeys.API_VERSIONS]
            version = min(offered[0], version - 1) if offered else 0
            response = await self._round_trip(connection, request, max(version, 0), None)
        if response.error_code:
            raise error_for(
                response.error_code, f"{connection} refuses ApiVersions: {ErrorCode.of(response.error_code).name}"
            )
        connection.api_versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        connection.features = {each.name: each.max_version_level for each in response.finalized_features}

    def _disconnect(self, connection: NodeConnection) -> None:
        if connection.channel and not connection.closing:
            connection.closing = True
            self._io.close_channel(connection.channel)

    def _on_gone(self, channel: int, error: int) -> None:
        connection = self._channels.pop(channel)
        why = os.strerror(error).lower() if error else "it was closed"
        ours = connection.closing
        now_s = time.monotonic()
        self.metrics.connections_closed.record(1, now_s)
        self.metrics.connection_count -= 1
        if not ours:
            log.info("%s has closed the connection%s", connection, f": {os.strerror(error).lower()}" if error else "")
        connection.disconnected(now_s, self._reconnect)
        self._fail_in_flight(connection, why)
        if self._connections.get(connection.node_id) is connection and connection.node_id in self.cluster.brokers():
            # It may be that the broker is gone for good.
            self.cluster.invalidate()

    def _fail_in_flight(self, connection: NodeConnection, why: str) -> None:
        entries = [*connection.in_flight.values(), *connection.silent]
        connection.in_flight.clear()
        connection.silent.clear()
        self.metrics.in_flight -= len(entries)
        for entry in entries:
            if entry.timed_out:
                self._fail(entry, RequestTimedOutError(f"{connection} has not answered in time"))
            else:
                self._fail(entry, KafkaConnectionError(f"the connection to {connection} was lost: {why}"))

    # --- bootstrap servers --------------------------------------------------------------------------------------------

    def _bootstrap_nodes(self) -> list[BrokerNode]:
        return [BrokerNode(-1 - index, host, port) for index, (host, port) in enumerate(self._servers)]

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
            if server in self._connections and not self._connections[server].channel:
                del self._connections[server]
        return True

    def _take_over_bootstrap(self, brokers: Any) -> None:
        """The connection to a bootstrap server becomes that of the broker that listens there; others are closed."""
        by_address = {(broker.host, broker.port): broker.node_id for broker in brokers}
        for node_id in [node_id for node_id in self._connections if node_id < 0]:
            connection = self._connections[node_id]
            broker_id = by_address.get((connection.host, connection.port))
            if broker_id is not None and broker_id not in self._connections and connection.channel:
                del self._connections[node_id]
                connection.node_id = broker_id
                self._connections[broker_id] = connection
            elif not connection.pending and connection.task is None:
                del self._connections[node_id]
                self._disconnect(connection)

    # --- deadlines ----------------------------------------------------------------------------------------------------

    _sweep_s = NEVER

    def _sweep_at(self, at_s: float, now_s: float) -> None:
        """Has `_on_sweep` called at that time, unless that happens earlier anyway."""
        if self._loop is None or at_s == NEVER or (self._sweep is not None and self._sweep_s <= at_s):
            return
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep_s = at_s
        self._sweep = self._loop.call_later(max(at_s - now_s, 0) + 0.001, self._on_sweep)

    def _on_sweep(self) -> None:
        """Requests that were not answered in time cost their connection, as in Kafka; unused connections are closed."""
        self._sweep = None
        self._sweep_s = NEVER
        now_s = time.monotonic()
        next_s = NEVER
        for connection in list(self._channels.values()):
            if connection.closing:
                continue
            late = [
                entry for entry in (*connection.in_flight.values(), *connection.silent) if entry.deadline_s <= now_s
            ]
            if late:
                for entry in late:
                    entry.timed_out = True
                log.info("%s has not answered in time, it is disconnected", connection)
                self._disconnect(connection)
            elif connection.pending:
                deadlines = (entry.deadline_s for entry in (*connection.in_flight.values(), *connection.silent))
                next_s = min(next_s, *deadlines)
            elif connection.last_active_s + self._max_idle_s <= now_s:
                log.debug("%s was not used for long, it is disconnected", connection)
                self._disconnect(connection)
            if not connection.closing:
                next_s = min(next_s, connection.last_active_s + self._max_idle_s)
        self._sweep_at(max(next_s, now_s), now_s)

    def _count_bytes(self) -> None:
        self.metrics.bytes_in = self._io.bytes_in()
        self.metrics.bytes_out = self._io.bytes_out()

    def metrics_snapshot(self, prefix: str) -> dict[str, dict[str, float]]:
        """What `ClientMetrics.snapshot` gives, with the bytes of now. Any thread, but not while `close` runs."""
        if not self.closed:
            with contextlib.suppress(KafkaError):
                self._count_bytes()
        return self.metrics.snapshot(prefix)
