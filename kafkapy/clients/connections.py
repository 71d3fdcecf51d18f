"""All connections of one client, and the requests on them.

A connection opens when its node is first needed (`ready`), closes when the node does not answer in time or is idle for
long, and opens again after a back-off. Everything runs on one event loop; a C thread (`ClientIo`) moves the bytes.
Source: org.apache.kafka.clients.NetworkClient, InFlightRequests, org.apache.kafka.common.network.Selector.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import socket
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkapy._speedups.clients.io.client_io import SECURED, ClientIo
from kafkapy._speedups.clients.io.frames import BytesFrame, BytesResponse, RequestFrame, ResponseFrame
from kafkapy._speedups.protocol.encoder import encode_message
from kafkapy.clients.backoff import Backoff
from kafkapy.clients.cluster import BrokerNode
from kafkapy.clients.connection import FURTHER, ConnectionState, InFlight, NodeConnection, open_socket
from kafkapy.clients.metrics import ClientMetrics
from kafkapy.clients.throttling import client_throttles
from kafkapy.config.clients import ClientConfig
from kafkapy.errors import (
    AuthenticationError,
    ConfigError,
    ErrorCode,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    NodeNotReadyError,
    RequestTimedOutError,
    SslAuthenticationError,
    StaleMetadataError,
    error_for,
)
from kafkapy.garbage import resting
from kafkapy.protocol.header import RequestHeader, decode_response, request_header_version
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
from kafkapy.protocol.registry import ApiKeys
from kafkapy.protocol.schema import DecodeError, Request
from kafkapy.version import __version__

if TYPE_CHECKING:
    from kafkapy._speedups.base.tls import TlsContext
    from kafkapy.clients.authenticator import SaslAuthenticator
    from kafkapy.clients.tls import PythonTls

__all__ = ["Connections", "EncodedRequest", "request_header"]

log = logging.getLogger(__name__)

SOFTWARE_NAME: Final = "kafkapy"
NEVER: Final = float("inf")
SHARE_OF_SESSION: Final = (0.85, 0.95)
BETWEEN_REAUTHENTICATIONS_S: Final = 1.1
"""Brokers refuse the second of two re-authentications that begin within a second."""
SWEEP_SLACK_S: Final = 0.001
LARGE_BYTES: Final = 64 * 1024
"""The garbage collector rests while a larger response is decoded: all of its objects are alive."""
OF_OURS: Final = (errno.EBADMSG, errno.EMSGSIZE)
"""The errors for which the client closes a connection; a retry is unlikely to help."""
UNANSWERED: Final = (0, errno.ECONNRESET, errno.EPIPE)
"""The errors when the peer closes a connection."""
GONE: Final = {
    0: "it was closed",
    errno.EBADMSG: "the response does not match a request",
    errno.EMSGSIZE: "a response is larger than receive.message.max.bytes",
}


@lru_cache(maxsize=4096)
def request_header(api_key: int, version: int, client_id: str | None) -> bytes:
    """The header of a request without the frame size.

    The correlation id, at offset 4, is 0.
    """
    header = RequestHeader(request_api_key=api_key, request_api_version=version, correlation_id=0, client_id=client_id)
    return header.encode(request_header_version(api_key, version))


class EncodedRequest(NamedTuple):
    """A request whose body is encoded already, for one version."""

    kind: type[Request]
    body: bytes

    @property
    def API_KEY(self) -> int:
        """As of the request's class."""
        return self.kind.API_KEY

    @property
    def NAME(self) -> str:
        """As of the request's class."""
        return self.kind.NAME


class Connections:
    """Owns the sockets and the I/O thread of a client.

    A NetworkClient creates it, supplies the nodes' addresses (`node`), and learns of lost nodes (`on_lost`). Only the
    client's loop uses it.
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
        self._authenticator = _authenticator(config)
        self._tls, self._python_tls = _tls(config)
        self._plain = config["security.protocol"] == "PLAINTEXT"
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
        """Binds this to the running loop, once. IllegalStateError after `close`."""
        if self.closed:
            raise IllegalStateError("the client is closed")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._io.fileno(), self._on_events)
        return self._loop

    def cancel(self) -> list[asyncio.Task[None]]:
        """Refuses further requests, and returns the connection attempts that it cancels."""
        self.closed = True
        tasks = [connection.task for connection in self.by_node.values() if connection.task is not None]
        for connection in self._channels.values():
            if isinstance(connection.reauthentication, asyncio.Task):
                tasks.append(connection.reauthentication)
        for task in tasks:
            task.cancel()
        return tasks

    async def close_security(self) -> None:
        """Ends the background work of the SASL login and of Python's TLS."""
        if self._authenticator is not None:
            await self._authenticator.close()
        if self._python_tls is not None:
            await self._python_tls.close()

    def close(self) -> None:
        """Closes all connections and ends the I/O thread.

        Requests in flight fail with KafkaConnectionError.
        """
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
        """Updates the byte counts of the metrics. Any thread."""
        self._metrics.bytes_in = self._io.bytes_in()
        self._metrics.bytes_out = self._io.bytes_out()

    # --- requests -----------------------------------------------------------------------------------------------------

    async def round_trip(
        self,
        connection: NodeConnection,
        request: Request | EncodedRequest,
        version: int,
        timeout_ms: int | None = None,
    ) -> Any:
        """The decoded response to a request of this version.

        Errors as in `NetworkClient.send`.
        """
        if timeout_ms is None:
            timeout_ms = self._request_timeout_ms
        frame = self._frame(request, version)
        answer = await self.submit(connection, request.API_KEY, version, frame, BytesResponse(), timeout_ms)
        return self._decoded(connection, request, version, answer)

    def _frame(self, request: Request | EncodedRequest, version: int) -> BytesFrame:
        header = request_header(request.API_KEY, version, self._client_id)
        if isinstance(request, EncodedRequest):
            return BytesFrame(header + request.body)
        return BytesFrame(encode_message(request, version, header))

    def _decoded(self, connection: NodeConnection, request: Request | EncodedRequest, version: int, answer: Any) -> Any:
        api_key = request.API_KEY
        try:
            with resting(keeps=False) if len(answer.frame) > LARGE_BYTES else nullcontext():
                _, response = decode_response(api_key, version, answer.frame)
        except DecodeError as error:
            self.disconnect(connection)
            raise KafkaProtocolError(
                f"{connection} sent an invalid response to {request.NAME} version {version}: {error}"
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
        *,
        passes: bool = False,
    ) -> asyncio.Future[Any]:
        """See `NetworkClient.submit`. The connection must be connected, not ready (KafkaConnectionError).

        During a re-authentication the request waits for its end, unless it `passes`.
        """
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
        if connection.held is None or passes:
            self._io.submit(connection.channel, request, response)
        else:
            connection.held.append(partial(self._io.submit, connection.channel, request, response))
        if entry.deadline_s < self._sweep_s:
            self._sweep_at(entry.deadline_s, now_s)
        self._metrics.submitted(connection.node_id, now_s)
        return entry.future

    def throttle(self, connection: NodeConnection, api_key: int, version: int, throttle_ms: int) -> None:
        """Records a throttle time from a response."""
        now_s = time.monotonic()
        self._metrics.throttle_ms.record(throttle_ms, now_s)
        if client_throttles(api_key, version):
            connection.throttled_until_s = max(connection.throttled_until_s, now_s + throttle_ms / 1000)

    def _on_events(self) -> None:
        """Handles the events of the I/O thread."""
        now_s = time.monotonic()
        for channel, what, error in self._io.events():
            if what is None:
                self._on_gone(channel, error)
                continue
            connection = self._channels[channel]
            connection.last_active_s = now_s
            if what is SECURED:
                if connection.secured is not None and not connection.secured.done():
                    connection.secured.set_result(None)
                continue
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
        """The connection to a node, ready for a request.

        Errors as in `NetworkClient.ready`.
        """
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
                if isinstance(connection.error, AuthenticationError) and now_s < connection.reconnect_at_s:
                    raise _again(connection)
                if connection.closing or now_s < connection.reconnect_at_s:
                    raise NodeNotReadyError(f"{connection} is not connected, and its reconnect back-off is not over")
                connection.last_attempt_s = now_s
                connection.state = ConnectionState.CONNECTING
                connection.error = None
                connection.task = loop.create_task(self._connect(connection))
            await asyncio.wait([connection.task])
            self.start()
            if connection.state is not ConnectionState.READY:
                raise _again(connection)

    def _connection(self, node_id: int) -> NodeConnection:
        """The node's connection in any state. StaleMetadataError for an unknown node."""
        connection = self.by_node.get(node_id)
        if connection is not None and connection.state is not ConnectionState.DISCONNECTED:
            return connection
        node = self._node(node_id)
        if node is None:
            raise StaleMetadataError(f"broker {node_id % FURTHER} is not known")
        if connection is None:
            connection = self.by_node[node_id] = NodeConnection(node_id, node.host, node.port)
        elif (connection.host, connection.port) != (node.host, node.port):
            connection.moved(node.host, node.port)
        return connection

    async def _connect(self, connection: NodeConnection) -> None:
        """Connects; leaves the connection ready, or disconnected with an `error`."""
        try:
            timeout_s = self._setup.delay_s(connection.setup_attempts)
            made = await open_socket(connection, self._config, timeout_s)
            if self._python_tls is not None:
                made = await self._secured(self._python_tls, connection, made, timeout_s)
            try:
                if self._tls is None:
                    connection.channel = self._io.add(made.fileno())
                else:
                    connection.channel = self._io.add(made.fileno(), self._tls, connection.host, connection.port)
            except BaseException:
                made.close()
                raise
            made.detach()
            self._channels[connection.channel] = connection
            now_s = time.monotonic()
            connection.last_active_s = now_s
            self._metrics.connected(now_s)
            connection.state = ConnectionState.CHECKING_API_VERSIONS
            if self._tls is not None:
                await self._handshake(connection, timeout_s)
            if self._authenticator is None:
                await self._learn_versions(connection)
            else:
                lifetime_ms = await self._authenticate(self._authenticator, connection)
                await self._learn_versions(connection)
                self._reauthenticate_after(connection, lifetime_ms)
            connection.connected()
            self._sweep_at(now_s + self._max_idle_s, now_s)
        except (OSError, KafkaError) as error:
            self._not_connected(connection, error)
        except BaseException:
            self._not_connected(connection, KafkaConnectionError("the connection attempt was cancelled"))
            raise
        finally:
            connection.task = None

    async def _handshake(self, connection: NodeConnection, timeout_s: float) -> None:
        """Returns when the I/O thread has done the TLS handshake. SslAuthenticationError, KafkaConnectionError."""
        assert self._loop is not None
        connection.secured = self._loop.create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await connection.secured
        except TimeoutError:
            raise KafkaConnectionError(
                f"{connection} did not finish the TLS handshake within {timeout_s:g} s"
            ) from None
        finally:
            connection.secured = None

    async def _secured(
        self, tls: PythonTls, connection: NodeConnection, made: socket.socket, timeout_s: float
    ) -> socket.socket:
        """As `_handshake`, through Python's ssl."""
        try:
            async with asyncio.timeout(timeout_s):
                return await tls.secured(made, connection.host)
        except SslAuthenticationError as error:
            raise _gone(connection, SslAuthenticationError, str(error)) from None
        except ConnectionError:
            raise _gone(connection, KafkaConnectionError, "it was closed (during the TLS handshake)") from None
        except TimeoutError:
            raise KafkaConnectionError(
                f"{connection} did not finish the TLS handshake within {timeout_s:g} s"
            ) from None

    def _not_connected(self, connection: NodeConnection, error: Exception) -> None:
        if isinstance(error, OSError):
            error = KafkaConnectionError(f"{connection} cannot be reached: {_why(error)}")
        connection.error = error
        # The client retries an absent broker indefinitely; each reason is a warning once.
        level = logging.DEBUG if self.closed or connection.warned == str(error) else logging.WARNING
        connection.warned = str(error)
        log.log(level, "%s", error)
        if connection.channel:
            # The event of the I/O thread completes the disconnect.
            self.disconnect(connection)
        elif connection.state is not ConnectionState.DISCONNECTED:
            connection.disconnected(time.monotonic(), self._reconnect)
            self._lost(connection)

    async def _authenticate(
        self, authenticator: SaslAuthenticator, connection: NodeConnection, *, again: bool = False
    ) -> int:
        """Authenticates by SASL, and returns the session's lifetime in ms. Errors as in `SaslAuthenticator`."""

        async def ask(request: Request, version: int) -> Any:
            # Requests of the client wait, these do not. They do not count as use of an idle connection.
            used_s = connection.last_active_s
            timeout_ms = self._request_timeout_ms
            frame, response = self._frame(request, version), BytesResponse()
            answer = await self.submit(connection, request.API_KEY, version, frame, response, timeout_ms, passes=True)
            if again:
                connection.last_active_s = used_s
            return self._decoded(connection, request, version, answer)

        versions = connection.api_versions if again else None
        began_s = time.monotonic()
        try:
            lifetime_ms = await authenticator.authenticate(str(connection), connection.host, ask, versions)
        except AuthenticationError:
            self._metrics.authenticated(time.monotonic(), 0, successful=False, again=again)
            raise
        now_s = time.monotonic()
        self._metrics.authenticated(now_s, now_s - began_s, successful=True, again=again)
        return lifetime_ms

    def _reauthenticate_after(self, connection: NodeConnection, lifetime_ms: int, least_s: float = 0.0) -> None:
        """Schedules the next authentication. As in Java at 85 to 95 % of the session, at random against storms."""
        assert self._loop is not None
        if lifetime_ms > 0:
            delay_s = max(least_s, lifetime_ms / 1000 * random.uniform(*SHARE_OF_SESSION))
            connection.reauthentication = self._loop.call_later(delay_s, self._begin_reauthentication, connection)

    def _begin_reauthentication(self, connection: NodeConnection) -> None:
        assert self._loop is not None and self._authenticator is not None
        connection.reauthentication = None
        if connection.state is ConnectionState.READY and not connection.closing and not self.closed:
            connection.held = []
            task = self._loop.create_task(self._reauthenticate(self._authenticator, connection))
            connection.reauthentication = task

    async def _reauthenticate(self, authenticator: SaslAuthenticator, connection: NodeConnection) -> None:
        """Authenticates an open connection again (KIP-368).

        Requests in flight get their responses, and later ones wait: the broker serves none within the exchange.
        """
        channel = connection.channel
        try:
            lifetime_ms = await self._authenticate(authenticator, connection, again=True)
        except (OSError, KafkaError) as error:
            if connection.channel == channel:
                connection.reauthentication = None
                self._not_connected(connection, error)
            return
        held, connection.held = connection.held or (), None
        for submit in held:
            submit()
        self._reauthenticate_after(connection, lifetime_ms, BETWEEN_REAUTHENTICATIONS_S)

    async def _learn_versions(self, connection: NodeConnection) -> None:
        """Learns the API versions of a broker.

        The first request has the newest ApiVersions version. A broker that does not support it answers with its
        versions, or in version 0 (KIP-511).
        """
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        version = request.VERSIONS.high
        response = await self.round_trip(connection, request, version)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            offered = [each.max_version for each in response.api_keys if each.api_key == ApiKeys.API_VERSIONS]
            response = await self.round_trip(connection, request, min(offered[0], version - 1) if offered else 0)
        if response.error_code:
            name = ErrorCode.of(response.error_code).name
            raise error_for(response.error_code, f"{connection} did not return its API versions: {name}")
        connection.api_versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        connection.features = {each.name: each.max_version_level for each in response.finalized_features}

    # --- disconnecting ------------------------------------------------------------------------------------------------

    def disconnect(self, connection: NodeConnection) -> None:
        """Closes a connection.

        Its requests fail when the I/O thread has released them.
        """
        if connection.channel and not connection.closing and not self.closed:
            connection.closing = True
            self._io.close_channel(connection.channel)

    def forget(self, node_id: int) -> None:
        """Forgets a node whose id is obsolete."""
        connection = self.by_node.pop(node_id)
        if connection.task is not None:
            connection.task.cancel()
        self.disconnect(connection)

    def _on_gone(self, channel: int, error: int) -> None:
        connection = self._channels.pop(channel)
        why = self._io.reason(channel) or GONE.get(error) or os.strerror(error).lower()
        if error in UNANSWERED and connection.state is ConnectionState.CHECKING_API_VERSIONS and self._plain:
            why += " before the broker answered (does the listener need TLS? see security.protocol)"
        kind: type[KafkaError] = KafkaConnectionError
        if error == errno.EPROTO and connection.state is not ConnectionState.READY:
            kind = SslAuthenticationError
        if not connection.closing:
            log.log(
                logging.WARNING if error in OF_OURS else logging.INFO, "Lost the connection to %s: %s", connection, why
            )
        now_s = time.monotonic()
        self._metrics.disconnected(now_s)
        connection.disconnected(now_s, self._reconnect)
        if connection.secured is not None and not connection.secured.done():
            connection.secured.set_exception(_gone(connection, kind, f"{why} (during the TLS handshake)"))
        self._fail_in_flight(connection, why, kind)
        self._lost(connection)

    def _lost(self, connection: NodeConnection) -> None:
        if self.by_node.get(connection.node_id) is connection:
            self._on_lost(connection.node_id)

    def _fail_in_flight(
        self, connection: NodeConnection, why: str, kind: type[KafkaError] = KafkaConnectionError
    ) -> None:
        entries = [*connection.in_flight.values(), *connection.silent]
        connection.in_flight.clear()
        connection.silent.clear()
        self._metrics.in_flight -= len(entries)
        for entry in entries:
            if entry.timed_out:
                _fail(entry, RequestTimedOutError(f"{connection} did not respond in time"))
            else:
                _fail(entry, _gone(connection, kind, why))

    def hand_over(self, connection: NodeConnection) -> tuple[ClientIo, int, float | None]:
        """Gives up an idle, ready connection for another thread.

        Returns the I/O kernel, the channel, and the end of the SASL session. The caller has the kernel give the socket
        to that thread. The end is in time.monotonic() seconds, 5 to 15 % before the broker's; None: the session has no
        end. The node may then be connected again at once.
        """
        ends_s: float | None = None
        if isinstance(connection.reauthentication, asyncio.TimerHandle):
            assert self._loop is not None
            ends_s = time.monotonic() + connection.reauthentication.when() - self._loop.time()
        connection.closing = True
        if self.by_node.get(connection.node_id) is connection:
            del self.by_node[connection.node_id]
        return self._io, connection.channel, ends_s

    # --- deadlines ----------------------------------------------------------------------------------------------------

    def _sweep_at(self, at_s: float, now_s: float) -> None:
        """Schedules `_on_sweep` for this time, unless an earlier one is scheduled."""
        if self._loop is None or at_s >= self._sweep_s:
            return
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep_s = at_s
        self._sweep = self._loop.call_later(max(at_s - now_s, 0) + SWEEP_SLACK_S, self._on_sweep)

    def _on_sweep(self) -> None:
        """Disconnects nodes with overdue requests, as Kafka does, and closes idle connections."""
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
                log.info("%s did not respond in time; disconnecting", connection)
                self.disconnect(connection)
            elif not deadlines and idle_s <= now_s:
                log.debug("%s was idle for too long; disconnecting", connection)
                self.disconnect(connection)
            else:
                next_s = min([next_s, *(deadlines or [idle_s])])
        self._sweep_at(next_s, now_s)


def _gone(connection: NodeConnection, kind: type[KafkaError], why: str) -> KafkaError:
    if kind is SslAuthenticationError:
        return kind(f"{connection} and this client do not agree on TLS: {why}")
    return kind(f"the connection to {connection} was lost: {why}")


def _authenticator(config: ClientConfig) -> SaslAuthenticator | None:
    """Without SASL, the client does not import its code. ConfigError."""
    if not config["security.protocol"].startswith("SASL_"):
        return None
    from kafkapy.clients.authenticator import sasl_authenticator

    return sasl_authenticator(config)


def _tls(config: ClientConfig) -> tuple[TlsContext | None, PythonTls | None]:
    """The TLS of the I/O thread or of Python. Without TLS, the client does not import its code. ConfigError."""
    if not config["security.protocol"].endswith("SSL"):
        return None, None
    from kafkapy.clients.tls import PythonTls, client_tls

    tls = client_tls(config)
    return (None, tls) if isinstance(tls, PythonTls) else (tls, None)


def _largest_response(config: ClientConfig) -> int:
    """Largest response in bytes: receive.message.max.bytes.

    A default receive.message.max.bytes does not limit a larger fetch.max.bytes.
    """
    most: int = config["receive.message.max.bytes"]
    if "receive.message.max.bytes" not in config.given:
        most = max(most, 2 * config.get("fetch.max.bytes", 0))
    return min(most, 2**31 - 1)


def _why(error: OSError) -> str:
    if isinstance(error, TimeoutError) and not error.errno:
        return "the connection timed out"
    if isinstance(error, socket.gaierror) or not error.errno:
        return (error.strerror or str(error)).lower()
    return os.strerror(error.errno).lower()


def _again(connection: NodeConnection) -> KafkaError:
    """The error of the last attempt as a new exception."""
    error = connection.error
    if isinstance(error, ConfigError):
        return error
    if isinstance(error, KafkaError):
        return type(error)(str(error))
    return KafkaConnectionError(f"{connection} has closed the connection")


def _fail(entry: InFlight, error: Exception) -> None:
    if not entry.future.done():
        entry.future.set_exception(error)
