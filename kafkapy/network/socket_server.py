"""SocketServer: listeners, Acceptors and Processors of one broker. Source: kafka.network.SocketServer.

The order of a start and a stop:

    server = SocketServer(SocketServerConfig.from_broker_config(config), plane, events, api_table(versions))
    server.startup()                    # binds and listens: clients queue in the backlog
    for channel in server.request_channels: loop.add_reader(channel.fileno(), serve, channel)
    server.enable_request_processing()  # accepts
    ...
    server.shutdown(timeout_s=10)
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from kafkapy._speedups.base.event_queue import EventQueue
from kafkapy._speedups.network.acceptor import Acceptor
from kafkapy._speedups.network.connection import ConnectionRegistry
from kafkapy._speedups.network.connection_quotas import ConnectionQuotas
from kafkapy._speedups.network.memory_pool import MemoryPool
from kafkapy._speedups.network.processor import Processor
from kafkapy._speedups.network.request_channel import RequestChannel
from kafkapy._speedups.network.worker_pool import WorkerPool
from kafkapy._speedups.requests.data_plane import DataPlane
from kafkapy._speedups.requests.request_header import ApiTable
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.config_def import MAX_INT
from kafkapy.errors import ConfigError
from kafkapy.types import Endpoint

if TYPE_CHECKING:
    from kafkapy._speedups.base.tls import TlsContext
    from kafkapy.network.api_table import ApiTableEntries

logger = logging.getLogger("kafka.network.SocketServer")
Otherwise = TypeVar("Otherwise", int, None)

LISTEN_BACKLOG: Final = 1024
"""Connections that may wait to be accepted where socket.listen.backlog.size is not set (the kernel's
net.core.somaxconn bounds it). With Kafka's 50 a storm of clients that connect again overflows the queue, and every
connection that is dropped waits a second for its next SYN."""
SYSTEM_BUFFER: Final = -1
"""The kernel sizes it. So the receive buffer where socket.receive.buffer.bytes is not set: with Kafka's 100 KB a
request of 1 MB arrives in ten wake-ups, at nearly twice the CPU time. And the send buffer of a connection from the same
host where socket.send.buffer.bytes is not set: with 100 KB a fetch of 1 MB takes two turns when many are served."""
SEND_BUFFER: Final = 100 * 1024
"""Bytes of the send buffer of other connections where socket.send.buffer.bytes is not set."""
THREAD_END_S: Final = 5.0
"""How long a thread may take to end beyond the time it was given to answer what is in flight, in seconds."""


CONTROL_REQUESTS: Final = 20
"""Requests of the controller that may wait; it sends one at a time."""


def usable_cores(most: int) -> int:
    """The number of cores that this process may use, at most `most`.

    A Processor never waits for Python or for a disk, so a second one on the same core only adds switches between them.
    """
    return min(most, len(os.sched_getaffinity(0)))


class ListenerSecurity(NamedTuple):
    """The security of a listener: its connections pass it before they are served."""

    tls: TlsContext | None = None
    sasl: bool = False
    raw_tokens: bool = False
    """Whether the first frame may be a token without header: clients of Kafka 0.9 with GSSAPI."""
    sasl_server_max_receive_size: int = 524288
    connection_failed_authentication_delay_ms: int = 100
    setup_timeout_ms: int = 30_000
    """Time in ms for the TLS handshake and the authentication. Kafka has no key for it and waits for
    connections.max.idle.ms; its clients give up after socket.connection.setup.timeout.max.ms."""
    ask_principal: bool = False
    """Whether Python gives every connection without SASL its principal."""


class ListenerLimits(NamedTuple):
    """listener.name.<name>.max.connections and .max.connection.creation.rate (per second, 0: unlimited)."""

    max_connections: int = MAX_INT
    max_connection_creation_rate: float = 0.0


@dataclass(frozen=True, slots=True)
class SocketServerConfig:
    """The broker keys that the SocketServer uses, by the keys' names."""

    listeners: Sequence[Endpoint]
    inter_broker_listener_name: str | None = None
    control_plane_listener_name: str | None = None
    num_network_threads: int = 3
    num_worker_threads: int = 1
    socket_send_buffer_bytes: int | None = None
    socket_receive_buffer_bytes: int = SYSTEM_BUFFER
    socket_request_max_bytes: int = 100 * 1024 * 1024
    socket_listen_backlog_size: int = LISTEN_BACKLOG
    queued_max_requests: int = 500
    queued_max_request_bytes: int = -1
    connections_max_idle_ms: int = 600_000
    max_connections: int = MAX_INT
    max_connections_per_ip: int = MAX_INT
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    max_connection_creation_rate: float = 0.0
    quota_window_num: int = 11
    quota_window_size_seconds: int = 1
    listener_limits: Mapping[str, ListenerLimits] = field(default_factory=dict)
    listener_security: Mapping[str, ListenerSecurity] = field(default_factory=dict)
    """By listener name: every listener but those of PLAINTEXT needs its entry."""

    @classmethod
    def from_broker_config(
        cls, config: BrokerConfig, listener_security: Mapping[str, ListenerSecurity] | None = None
    ) -> SocketServerConfig:
        """The values of a broker's configuration."""
        return cls(
            listeners=config.listeners,
            inter_broker_listener_name=config.inter_broker_listener_name,
            control_plane_listener_name=config.control_plane_listener_name,
            num_network_threads=_set_or(config, "num.network.threads", usable_cores(3)),
            num_worker_threads=usable_cores(config.get_int("num.io.threads")),
            socket_send_buffer_bytes=_set_or(config, "socket.send.buffer.bytes", None),
            socket_receive_buffer_bytes=_set_or(config, "socket.receive.buffer.bytes", SYSTEM_BUFFER),
            socket_request_max_bytes=config.get_int("socket.request.max.bytes"),
            socket_listen_backlog_size=_set_or(config, "socket.listen.backlog.size", LISTEN_BACKLOG),
            queued_max_requests=config.get_int("queued.max.requests"),
            queued_max_request_bytes=config.get_int("queued.max.request.bytes"),
            connections_max_idle_ms=config.get_int("connections.max.idle.ms"),
            max_connections=config.get_int("max.connections"),
            max_connections_per_ip=config.get_int("max.connections.per.ip"),
            max_connections_per_ip_overrides=config.max_connections_per_ip_overrides,
            max_connection_creation_rate=_rate(config["max.connection.creation.rate"]),
            quota_window_num=config.get_int("quota.window.num"),
            quota_window_size_seconds=config.get_int("quota.window.size.seconds"),
            listener_limits={
                endpoint.listener_name: ListenerLimits(
                    int(_listener_value(config, endpoint.listener_name, "max.connections", MAX_INT)),
                    _rate(_listener_value(config, endpoint.listener_name, "max.connection.creation.rate", 0)),
                )
                for endpoint in config.listeners
            },
            listener_security=listener_security or {},
        )


def _listener_value(config: BrokerConfig, listener: str, name: str, default: int) -> Any:
    """The listener's value alone: the broker-wide key is a separate limit."""
    key = f"listener.name.{listener.lower()}.{name}"
    is_set = key in config
    return config[key] if is_set else default


def _set_or(config: BrokerConfig, name: str, otherwise: Otherwise) -> int | Otherwise:
    """The value of a key that somebody has set; Kafka's default for it is not used here."""
    is_set = any(name in layer for layer in (config.static, config.dynamic, config.dynamic_default))
    return config.get_int(name) if is_set else otherwise


def _rate(value: float) -> float:
    """The key's default is the largest int, which means that there is no limit."""
    return 0.0 if value >= MAX_INT else float(value)


class SocketServer:
    """The listen sockets, the Acceptors, the Processors, the worker pool and their threads.

    Made and used by KafkaServer on the control loop's thread; its threads never take the GIL once they run.

    `request_channels` are where requests for Python come out: that of the clients, and that of the controller where
    control.plane.listener.name is set. That listener has a separate thread and queue, so no request of a client delays
    the controller. `events` (the broker's event queue) tells of closed connections and carries log lines.
    """

    def __init__(
        self,
        config: SocketServerConfig,
        plane: DataPlane,
        events: EventQueue,
        apis: ApiTableEntries,
        most_connections: int = MAX_INT,
    ) -> None:
        """ConfigError when a listener's security protocol asks for TLS or SASL and its security does not.

        `most_connections` is what the limit of open files leaves for connections; max.connections is bounded by it.
        """
        self._check_security(config)
        self.config = config
        self._names = [endpoint.listener_name for endpoint in config.listeners]
        inter_broker = config.inter_broker_listener_name
        self._inter_broker_index = self._names.index(inter_broker) if inter_broker in self._names else -1
        self.quotas = ConnectionQuotas(
            len(self._names),
            self._inter_broker_index,
            config.quota_window_num,
            config.quota_window_size_seconds * 1000,
        )
        self.memory_pool = MemoryPool(config.queued_max_request_bytes)
        self.registry = ConnectionRegistry(self.quotas, events)
        for name, security in config.listener_security.items():
            self.registry.secure_listener(
                self._names.index(name),
                security.tls,
                security.sasl,
                security.raw_tokens,
                security.sasl_server_max_receive_size,
                min(security.setup_timeout_ms, config.connections_max_idle_ms)
                if config.connections_max_idle_ms >= 0
                else security.setup_timeout_ms,
                security.connection_failed_authentication_delay_ms,
                security.ask_principal,
            )
        self._apis = ApiTable(apis)
        self.request_channel = self._make_channel(plane, config.queued_max_requests)
        self.control_channel: RequestChannel | None = None
        """The requests on control.plane.listener.name; None without that listener."""
        if config.control_plane_listener_name is not None:
            self.control_channel = self._make_channel(plane, CONTROL_REQUESTS)
        self.workers = WorkerPool(config.num_worker_threads)
        self._plane = plane
        self._most_connections = most_connections
        self._said_connections = -1
        self._processors: list[Processor] = []
        """The clients' Processors, then the controller's."""
        self._acceptors: list[Acceptor] = []
        self._sockets: list[socket.socket] = []
        self._processor_threads: list[threading.Thread] = []
        self._acceptor_threads: list[threading.Thread] = []
        self.update_limits(config)

    def _make_channel(self, plane: DataPlane, queued_max_requests: int) -> RequestChannel:
        listeners = [(endpoint.listener_name, endpoint.security_protocol) for endpoint in self.config.listeners]
        return RequestChannel(plane, self.registry, self.memory_pool, self._apis, listeners, queued_max_requests)

    @property
    def request_channels(self) -> list[RequestChannel]:
        """Every channel with requests for Python."""
        return [self.request_channel] if self.control_channel is None else [self.request_channel, self.control_channel]

    @staticmethod
    def _check_security(config: SocketServerConfig) -> None:
        """A listener that asks for less than its protocol says would serve everybody."""
        for endpoint in config.listeners:
            protocol = endpoint.security_protocol
            security = config.listener_security.get(endpoint.listener_name, ListenerSecurity())
            if (protocol.tls, protocol.sasl) != (security.tls is not None, security.sasl):
                reason = f"the security protocol {protocol.name} of this listener is not set up"
                raise ConfigError("listeners", endpoint.listener_name, reason)

    # --- start and stop ---------------------------------------------------------------------------------------------

    def startup(self) -> None:
        """Bind and listen on every listener and start the Processors; nothing is accepted yet.

        OSError that says which listener and why (port taken, no such address, not permitted).
        """
        try:
            for endpoint in self.config.listeners:
                self._sockets.append(self._open_listen_socket(endpoint))
            self.workers.start()
        except OSError:
            self._close_sockets()
            raise
        for index in range(self.config.num_network_threads):
            self._add_processor(self.request_channel, str(index))
        if self.control_channel is not None:
            self._add_processor(self.control_channel, "control-plane")

    def _add_processor(self, channel: RequestChannel, name: str) -> None:
        config = self.config
        processor = Processor(channel, config.socket_request_max_bytes, config.connections_max_idle_ms, self.workers)
        self._processors.append(processor)
        self._processor_threads.append(_start(processor.run, f"kafka-network-thread-{name}"))

    def enable_request_processing(self) -> None:
        """Accept connections. Called when everything that requests need is there."""
        chosen = self.config.socket_send_buffer_bytes
        clients = self._processors[: self.config.num_network_threads]
        control = self._processors[self.config.num_network_threads :]
        for index, listen_socket in enumerate(self._sockets):
            acceptor = Acceptor(
                self.registry,
                listen_socket,
                control if self._names[index] == self.config.control_plane_listener_name else clients,
                index,
                index == self._inter_broker_index,
                SEND_BUFFER if chosen is None else chosen,
                SYSTEM_BUFFER if chosen is None else chosen,
            )
            self._acceptors.append(acceptor)
            self._acceptor_threads.append(_start(acceptor.run, f"kafka-socket-acceptor-{self._names[index]}"))
            logger.info(
                "Listener %s accepts connections on port %d", self._names[index], self.bound_port(self._names[index])
            )

    def stop_accepting(self) -> None:
        """Stop the Acceptors and close the listen sockets.

        New clients are refused, open connections go on.
        """
        for acceptor in self._acceptors:
            acceptor.stop()
        for thread in self._acceptor_threads:
            thread.join(THREAD_END_S)
        self._acceptors.clear()
        self._acceptor_threads.clear()
        self._close_sockets()

    def begin_shutdown(self, timeout_s: float) -> None:
        """Stop accepting, read no more requests, answer requests in flight within `timeout_s`.

        Returns at once. Requests that Python has can still be answered, so the control loop goes on until `shutdown`.
        """
        self.stop_accepting()
        for processor in self._processors:
            processor.begin_stop(int(timeout_s * 1000))

    @property
    def stopped(self) -> bool:
        """Whether every network thread has ended."""
        return not any(thread.is_alive() for thread in self._processor_threads)

    def shutdown(self, timeout_s: float = 10.0) -> None:
        """`begin_shutdown` and wait for the network threads.

        Blocks at most a little longer than `timeout_s`. If Python still owes answers, call `begin_shutdown` first and
        come back when `stopped`, or call this from a worker thread.
        """
        deadline = time.monotonic() + timeout_s
        self.begin_shutdown(timeout_s)
        for thread in self._processor_threads:
            thread.join(max(0.0, deadline - time.monotonic()) + THREAD_END_S)
        if self.stopped:
            # Their descriptors are closed with them.
            self._processors.clear()
            self._processor_threads.clear()
            self.workers.stop()
        else:
            logger.error("A network thread did not end within %.1f s", timeout_s + THREAD_END_S)

    # --- what is bound ----------------------------------------------------------------------------------------------

    def bound_port(self, listener_name: str) -> int:
        """The port of a listener, also if 0 was configured.

        KeyError for an unknown listener or before `startup`.
        """
        if listener_name not in self._names or not self._sockets:
            raise KeyError(listener_name)
        port: int = self._sockets[self._names.index(listener_name)].getsockname()[1]
        return port

    def bound_endpoints(self) -> list[Endpoint]:
        """The listeners with the ports that were bound."""
        return [endpoint.with_port(self.bound_port(endpoint.listener_name)) for endpoint in self.config.listeners]

    def _open_listen_socket(self, endpoint: Endpoint) -> socket.socket:
        where = f"{endpoint.host or '*'}:{endpoint.port}"
        try:
            family, address = _bind_address(endpoint)
            listen_socket = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            message = f"Listener {endpoint.listener_name} cannot be opened on {where}: {error.strerror or error}"
            raise OSError(error.errno, message) from None
        try:
            listen_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                # As Java does: one socket for both families where every interface is meant.
                listen_socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if not endpoint.host else 1)
            if self.config.socket_receive_buffer_bytes > 0:
                # Before listen, because the window scale is agreed on when a connection is made; accepted sockets
                # inherit it.
                size = self.config.socket_receive_buffer_bytes
                listen_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
            listen_socket.bind(address)
            listen_socket.listen(self.config.socket_listen_backlog_size)
            listen_socket.setblocking(False)
        except OSError as error:
            listen_socket.close()
            why = (
                "the port is taken by another process"
                if error.errno == errno.EADDRINUSE
                else os.strerror(error.errno or errno.EIO)
            )
            raise OSError(error.errno, f"Listener {endpoint.listener_name} cannot be bound to {where}: {why}") from None
        return listen_socket

    def _close_sockets(self) -> None:
        for listen_socket in self._sockets:
            listen_socket.close()
        self._sockets.clear()

    # --- connections and limits -------------------------------------------------------------------------------------

    def update_limits(self, config: SocketServerConfig) -> None:
        """Put the connection limits of a new configuration into force.

        The other values need a restart.
        """
        most = min(config.max_connections, self._most_connections)
        if most != self._said_connections:
            self._said_connections = most
            if most < config.max_connections:
                logger.log(
                    logging.INFO if config.max_connections == MAX_INT else logging.WARNING,
                    "The broker lowers max.connections to %d for the limit of open files (ulimit -n)",
                    most,
                )
        self.quotas.set_broker_limits(most, config.max_connection_creation_rate)
        for index, name in enumerate(self._names):
            limits = config.listener_limits.get(name, ListenerLimits())
            # The inter-broker listener is exempt from the broker's limit, but not from that of the process.
            listener_most = min(limits.max_connections, self._most_connections)
            self.quotas.set_listener_limits(index, listener_most, limits.max_connection_creation_rate)
        overrides: dict[str, int] = {}
        for host, limit in config.max_connections_per_ip_overrides.items():
            for address in _addresses(host):
                overrides[address] = limit
        self.quotas.set_ip_limits(config.max_connections_per_ip, overrides)

    def replace_tls(self, listener_name: str, tls: TlsContext) -> None:
        """Give a TLS listener another context.

        New connections get it, open connections keep theirs.
        """
        self.registry.replace_tls(self._names.index(listener_name), tls)

    def connections(self) -> list[dict[str, Any]]:
        """The open connections (see ConnectionRegistry.connections), with `listener_name` added."""
        found = self.registry.connections()
        for info in found:
            info["listener_name"] = self._names[info["listener_index"]]
        return found

    def close_connection(self, connection_id: int) -> None:
        """Close one connection; nothing happens when it is closed already."""
        for processor in self._processors:
            processor.close_connection(connection_id)

    # --- counters ---------------------------------------------------------------------------------------------------

    def counters(self) -> dict[str, Any]:
        """Everything the metrics collector reads: `connections` (ConnectionRegistry.counters), `listeners` (open
        connections by listener name), `creation_rates` (ConnectionQuotas.creation_rates likewise), `authentication`
        (ConnectionRegistry.authentication_counters by listener name, without those of PLAINTEXT), `request_channel`
        (RequestChannel.counters), `memory_pool` (limit, used, free, refused; bytes), `processors` (one
        Processor.counters each), `processor_idle_ratio` (mean, 0 to 1) and `apis` (DataPlane.counters), `workers`
        (WorkerPool.counters)."""
        processors = [processor.counters() for processor in self._processors]
        ratios = [item["idle_ns"] / item["running_ns"] for item in processors if item["running_ns"]]
        pool = self.memory_pool
        return {
            "connections": self.registry.counters(),
            "listeners": {name: self.quotas.listener_count(index) for index, name in enumerate(self._names)},
            "creation_rates": dict(zip(self._names, self.quotas.creation_rates()[1], strict=True)),
            "authentication": {
                name: self.registry.authentication_counters(index)
                for index, name in enumerate(self._names)
                if name in self.config.listener_security
            },
            "request_channel": self.request_channel.counters(),
            "memory_pool": {"limit": pool.limit, "used": pool.used, "free": pool.free, "refused": pool.refused},
            "processors": processors,
            "processor_idle_ratio": min(1.0, sum(ratios) / len(ratios)) if ratios else 1.0,
            "apis": self._plane.counters(),
            "workers": self.workers.counters(),
        }


def _start(target: Any, name: str) -> threading.Thread:
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread


def _bind_address(endpoint: Endpoint) -> tuple[int, Any]:
    """(address family, address to bind). An empty host is every interface, of both families where the machine has
    IPv6."""
    if not endpoint.host:
        if socket.has_ipv6:
            with contextlib.suppress(OSError), socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
                probe.bind(("::", 0))
                return socket.AF_INET6, ("::", endpoint.port)
        return socket.AF_INET, ("0.0.0.0", endpoint.port)
    found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # A name that stands for both families (localhost) is bound to its IPv4 address, which is what Java prefers too.
    found.sort(key=lambda info: info[0] != socket.AF_INET)
    return found[0][0], found[0][4]


def _addresses(host: str) -> list[str]:
    """The addresses of a host in max.connections.per.ip.overrides, as accepted connections show them."""
    try:
        return sorted({str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})
    except OSError:
        logger.warning("Host %s of max.connections.per.ip.overrides cannot be resolved; the broker ignores it", host)
        return []
