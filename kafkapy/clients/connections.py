"""All connections of one client, and the requests on them.

A node is connected to when it is first needed (`ready`), given up when it does not answer in time or was not used for
long, and tried again after a back-off. Everything happens on one event loop; the bytes are the business of a C thread
(`ClientIo`).
Source: org.apache.kafka.clients.NetworkClient, InFlightRequests, org.apache.kafka.common.network.Selector.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from kafkapy._speedups.clients.io.client_io import ClientIo
from kafkapy._speedups.clients.io.frames import BytesFrame, BytesResponse, RequestFrame, ResponseFrame
from kafkapy._speedups.protocol.encoder import encode_message
from kafkapy.clients.authenticator import authenticator_for
from kafkapy.clients.backoff import Backoff
from kafkapy.clients.cluster import BrokerNode
from kafkapy.clients.connection import ConnectionState, InFlight, NodeConnection, open_socket
from kafkapy.clients.metrics import ClientMetrics
from kafkapy.clients.throttling import client_throttles
from kafkapy.config.clients import ClientConfig
from kafkapy.errors import (
    ErrorCode,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    NodeNotReadyError,
    RequestTimedOutError,
    StaleMetadataError,
    error_for,
)
from kafkapy.protocol.header import RequestHeader, decode_response, request_header_version
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
from kafkapy.protocol.registry import ApiKeys
from kafkapy.protocol.schema import DecodeError, Request
from kafkapy.version import __version__

__all__ = ["Connections", "request_header"]

log = logging.getLogger(__name__)

SOFTWARE_NAME: Final = "kafkapy"
NEVER: Final = float("inf")
SWEEP_SLACK_S: Final = 0.001
OF_OURS: Final = (errno.EBADMSG, errno.EMSGSIZE)
"""Why we have closed a connection: no retry is likely to help."""
GONE: Final = {
    0: "it was closed",
    errno.EBADMSG: "what came is no answer to what was asked",
    errno.EMSGSIZE: "a response was announced that is larger than receive.message.max.bytes",
}


@lru_cache(maxsize=4096)
def request_header(api_key: int, version: int, client_id: str | None) -> bytes:
    """The header of a request without the frame's size; the correlation id, at offset 4, is 0."""
    header = RequestHeader(request_api_key=api_key, request_api_version=version, correlation_id=0, client_id=client_id)
    return header.encode(request_header_version(api_key, version))


class Connections:
    """Owns the sockets and the I/O thread. Made by a NetworkClient, which says where nodes are (`node`) and hears of
    lost ones (`on_lost`). Used on the client's loop only.
    """

    def __init__(
        self,
        config: ClientConfig,
        client_id: str,
        metrics: ClientMetrics,
        node: Callable[[int], BrokerNode | None],
        on_lost: Callable[[int], None],
    ) -> None:
        self.by_node: dict[int, NodeConnection] = {}
        self.closed = False
        self._config = config
        self._client_id = client_id
        self._metrics = metrics
        metrics.refresh = self._count_bytes
        self._node = node
        self._on_lost = on_lost
        self._authenticator = authenticator_for(config)
        self._reconnect = Backoff(config["reconnect.backoff.ms"], config["reconnect.backoff.max.ms"])
        self._setup = Backoff(
            config["socket.connection.setup.timeout.ms"], config["socket.connection.setup.timeout.max.ms"]
        )
        self._request_timeout_ms: int = config["request.timeout.ms"]
        idle_ms = config["connections.max.idle.ms"]
        self._max_idle_s = idle_ms / 1000 if idle_ms >= 0 else NEVER
        self._io = ClientIo(_largest_response(config))
        self._channels: dict[int, NodeConnection] = {}
        self._correlation_id = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_s = NEVER

    def start(self) -> asyncio.AbstractEventLoop:
        """Binds this to the running loop, when it is not yet. IllegalStateError after `close`."""
        if self.closed:
            raise IllegalStateError("the client is closed")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._io.fileno(), self._on_events)
        return self._loop

    def cancel(self) -> list[asyncio.Task[None]]:
        """No request is taken any more; gives the attempts to connect, which are being cancelled."""
        self.closed = True
        tasks = [connection.task for connection in self.by_node.values() if connection.task is not None]
        for task in tasks:
            task.cancel()
        return tasks

    def close(self) -> None:
        """Closes every connection and ends the I/O thread; what is in flight fails with KafkaConnectionError."""
        self.closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._io.fileno())
        self._count_bytes()
        self._metrics.refresh = None
        self._io.close()
        for connection in {*self.by_node.values(), *self._channels.values()}:
            connection.state = ConnectionState.DISCONNECTED
            connection.channel = 0
            self._fail_in_flight(connection, "the client was closed")
        self._channels.clear()
        self._metrics.connection_count = 0

    def _count_bytes(self) -> None:
        """Brings the byte counts of the metrics up to date. Any thread."""
        self._metrics.bytes_in = self._io.bytes_in()
        self._metrics.bytes_out = self._io.bytes_out()

    # --- requests -----------------------------------------------------------------------------------------------------

    async def round_trip(
        self, connection: NodeConnection, request: Request, version: int, timeout_ms: int | None = None
    ) -> Any:
        """The decoded response to a request in that version. See `NetworkClient.send` for the errors."""
        api_key = request.API_KEY
        frame = BytesFrame(encode_message(request, version, request_header(api_key, version, self._client_id)))
        if timeout_ms is None:
            timeout_ms = self._request_timeout_ms
        answer = await self.submit(connection, api_key, version, frame, BytesResponse(), timeout_ms)
        try:
            _, response = decode_response(api_key, version, answer.frame)
        except DecodeError as error:
            self.disconnect(connection)
            raise KafkaProtocolError(
                f"{connection} does not answer {request.NAME} version {version} as a Kafka broker: {error}"
            ) from None
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms:
            self.throttle(connection, api_key, version, throttle_ms)
        return response

    def submit(
        self,
        connection: NodeConnection,
        api_key: int,
        version: int,
        request: RequestFrame,
        response: ResponseFrame | None,
        timeout_ms: int,
    ) -> asyncio.Future[Any]:
        """See `NetworkClient.submit`; the connection need not be ready, only connected (KafkaConnectionError)."""
        loop = self._loop
        if self.closed or loop is None:
            raise IllegalStateError("the client is closed" if self.closed else "the client was not started")
        if connection.channel == 0 or connection.closing:
            raise KafkaConnectionError(f"the connection to {connection} was lost")
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        request.correlation_id = correlation_id
        now_s = time.monotonic()
        entry = InFlight(loop.create_future(), correlation_id, now_s, timeout_ms / 1000)
        if response is None:
            connection.silent.append(entry)
        else:
            response.context = entry
            connection.in_flight[correlation_id] = entry
        connection.last_active_s = now_s
        self._io.submit(connection.channel, request, response)
        if entry.deadline_s < self._sweep_s:
            self._sweep_at(entry.deadline_s, now_s)
        self._metrics.submitted(connection.node_id, now_s)
        return entry.future

    def throttle(self, connection: NodeConnection, api_key: int, version: int, throttle_ms: int) -> None:
        """A response asked the client to wait."""
        now_s = time.monotonic()
        self._metrics.throttle_ms.record(throttle_ms, now_s)
        if client_throttles(api_key, version):
            connection.throttled_until_s = max(connection.throttled_until_s, now_s + throttle_ms / 1000)

    def _on_events(self) -> None:
        """The I/O thread has something."""
        now_s = time.monotonic()
        for channel, what, error in self._io.events():
            if what is None:
                self._on_gone(channel, error)
                continue
            connection = self._channels[channel]
            connection.last_active_s = now_s
            if isinstance(what, ResponseFrame):
                entry: InFlight = what.context
                what.context = None
                connection.in_flight.pop(entry.correlation_id, None)
            else:
                entry = connection.silent.popleft()
                what = None
            self._metrics.answered(connection.node_id, now_s, now_s - entry.started_s)
            if error:
                _fail(entry, KafkaError(f"the request could not be encoded: {os.strerror(error)}"))
            elif not entry.future.done():
                entry.future.set_result(what)

    # --- connecting ---------------------------------------------------------------------------------------------------

    async def ready(self, node_id: int) -> NodeConnection:
        """The connection to a node, which takes a request now. See `NetworkClient.ready` for the errors."""
        loop = self.start()
        while True:
            now_s = time.monotonic()
            connection = self._connection(node_id)
            if connection.state is ConnectionState.READY and not connection.closing:
                if now_s >= connection.throttled_until_s:
                    return connection
                await asyncio.sleep(connection.throttled_until_s - now_s)
                self.start()
                continue
            if connection.task is None:
                if connection.closing or now_s < connection.reconnect_at_s:
                    raise NodeNotReadyError(f"{connection} is not connected, and it is too early for another attempt")
                connection.last_attempt_s = now_s
                connection.state = ConnectionState.CONNECTING
                connection.error = None
                connection.task = loop.create_task(self._connect(connection))
            await asyncio.wait([connection.task])
            self.start()
            if connection.state is not ConnectionState.READY:
                raise _again(connection)

    def _connection(self, node_id: int) -> NodeConnection:
        """The node's connection in whatever state. StaleMetadataError."""
        connection = self.by_node.get(node_id)
        if connection is not None and connection.state is not ConnectionState.DISCONNECTED:
            return connection
        node = self._node(node_id)
        if node is None:
            raise StaleMetadataError(f"broker {node_id} is not known")
        if connection is None:
            connection = self.by_node[node_id] = NodeConnection(node_id, node.host, node.port)
        elif (connection.host, connection.port) != (node.host, node.port):
            connection.moved(node.host, node.port)
        return connection

    async def _connect(self, connection: NodeConnection) -> None:
        """Leaves the connection ready, or disconnected with an `error`."""
        try:
            made = await open_socket(connection, self._config, self._setup.delay_s(connection.setup_attempts))
            try:
                connection.channel = self._io.add(made.fileno())
            except BaseException:
                made.close()
                raise
            made.detach()
            self._channels[connection.channel] = connection
            now_s = time.monotonic()
            connection.last_active_s = now_s
            self._metrics.connected(now_s)
            connection.state = ConnectionState.CHECKING_API_VERSIONS
            await self._authenticator.authenticate(connection)
            await self._learn_versions(connection)
            connection.connected()
            self._sweep_at(now_s + self._max_idle_s, now_s)
        except (OSError, KafkaError) as error:
            self._not_connected(connection, error)
        except BaseException:
            self._not_connected(connection, KafkaConnectionError("the attempt to connect was given up"))
            raise
        finally:
            connection.task = None

    def _not_connected(self, connection: NodeConnection, error: Exception) -> None:
        if isinstance(error, OSError):
            error = KafkaConnectionError(f"{connection} cannot be reached: {_why(error)}")
        connection.error = error
        # A broker that is away is tried again and again: each reason is a warning once.
        level = logging.DEBUG if self.closed or connection.warned == str(error) else logging.WARNING
        connection.warned = str(error)
        log.log(level, "%s", error)
        if connection.channel:
            # The rest is done when the I/O thread says that it is gone.
            self.disconnect(connection)
        elif connection.state is not ConnectionState.DISCONNECTED:
            connection.disconnected(time.monotonic(), self._reconnect)
            self._lost(connection)

    async def _learn_versions(self, connection: NodeConnection) -> None:
        """The newest ApiVersions is tried first; a broker that does not know it says which it knows, or answers in
        version 0 (KIP-511).
        """
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        version = request.VERSIONS.high
        response = await self.round_trip(connection, request, version)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            offered = [each.max_version for each in response.api_keys if each.api_key == ApiKeys.API_VERSIONS]
            response = await self.round_trip(connection, request, min(offered[0], version - 1) if offered else 0)
        if response.error_code:
            name = ErrorCode.of(response.error_code).name
            raise error_for(response.error_code, f"{connection} refuses to say what it serves: {name}")
        connection.api_versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        connection.features = {each.name: each.max_version_level for each in response.finalized_features}

    # --- disconnecting ------------------------------------------------------------------------------------------------

    def disconnect(self, connection: NodeConnection) -> None:
        """Gives up a connection. What is in flight fails when the I/O thread is done with it."""
        if connection.channel and not connection.closing and not self.closed:
            connection.closing = True
            self._io.close_channel(connection.channel)

    def forget(self, node_id: int) -> None:
        """Gives up a node whose id stands for nothing any more."""
        connection = self.by_node.pop(node_id)
        if connection.task is not None:
            connection.task.cancel()
        self.disconnect(connection)

    def _on_gone(self, channel: int, error: int) -> None:
        connection = self._channels.pop(channel)
        why = GONE.get(error) or os.strerror(error).lower()
        if not connection.closing:
            log.log(
                logging.WARNING if error in OF_OURS else logging.INFO, "Lost the connection to %s: %s", connection, why
            )
        now_s = time.monotonic()
        self._metrics.disconnected(now_s)
        connection.disconnected(now_s, self._reconnect)
        self._fail_in_flight(connection, why)
        self._lost(connection)

    def _lost(self, connection: NodeConnection) -> None:
        if self.by_node.get(connection.node_id) is connection:
            self._on_lost(connection.node_id)

    def _fail_in_flight(self, connection: NodeConnection, why: str) -> None:
        entries = [*connection.in_flight.values(), *connection.silent]
        connection.in_flight.clear()
        connection.silent.clear()
        self._metrics.in_flight -= len(entries)
        for entry in entries:
            if entry.timed_out:
                _fail(entry, RequestTimedOutError(f"{connection} has not answered in time"))
            else:
                _fail(entry, KafkaConnectionError(f"the connection to {connection} was lost: {why}"))

    # --- deadlines ----------------------------------------------------------------------------------------------------

    def _sweep_at(self, at_s: float, now_s: float) -> None:
        """Has `_on_sweep` called at that time, unless that happens earlier anyway."""
        if self._loop is None or at_s >= self._sweep_s:
            return
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep_s = at_s
        self._sweep = self._loop.call_later(max(at_s - now_s, 0) + SWEEP_SLACK_S, self._on_sweep)

    def _on_sweep(self) -> None:
        """Requests that were not answered in time cost their connection, as in Kafka; unused connections are closed."""
        self._sweep = None
        self._sweep_s = NEVER
        now_s = time.monotonic()
        next_s = NEVER
        for connection in list(self._channels.values()):
            if connection.closing:
                continue
            deadlines = []
            for entry in (*connection.in_flight.values(), *connection.silent):
                entry.timed_out = entry.deadline_s <= now_s
                deadlines.append(entry.deadline_s)
            idle_s = connection.last_active_s + self._max_idle_s
            if deadlines and min(deadlines) <= now_s:
                log.info("%s has not answered in time, it is disconnected", connection)
                self.disconnect(connection)
            elif not deadlines and idle_s <= now_s:
                log.debug("%s was not used for long, it is disconnected", connection)
                self.disconnect(connection)
            else:
                next_s = min([next_s, *(deadlines or [idle_s])])
        self._sweep_at(next_s, now_s)


def _largest_response(config: ClientConfig) -> int:
    """In bytes: receive.message.max.bytes, but where that is not given it is no obstacle to a large fetch.max.bytes."""
    most: int = config["receive.message.max.bytes"]
    if "receive.message.max.bytes" not in config.given:
        most = max(most, 2 * config.get("fetch.max.bytes", 0))
    return min(most, 2**31 - 1)


def _why(error: OSError) -> str:
    if isinstance(error, TimeoutError) and not error.errno:
        return "the connection was not made in time"
    if isinstance(error, socket.gaierror) or not error.errno:
        return (error.strerror or str(error)).lower()
    return os.strerror(error.errno).lower()


def _again(connection: NodeConnection) -> KafkaError:
    """The error of the last attempt, for one more caller."""
    error = connection.error
    if isinstance(error, KafkaError):
        return type(error)(str(error))
    return KafkaConnectionError(f"{connection} has closed the connection")


def _fail(entry: InFlight, error: Exception) -> None:
    if not entry.future.done():
        entry.future.set_exception(error)
