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

import logging
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
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
from kafkapy.network.listen_sockets import open_listen_socket
from kafkapy.network.network_threads import NetworkThreads, start_thread, sum_times
from kafkapy.types import Endpoint, SecurityProtocol

if TYPE_CHECKING:
    from kafkapy._speedups.base.scram import ScramTable
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
MOST_LISTENERS: Final = 256
"""Different listeners that a broker process may open, one after the other."""


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
    """listener.name.<name>.max.connections, .max.connection.creation.rate (per second, 0: unlimited) and
    .num.network.threads (None: the listener uses the threads of all listeners)."""

    max_connections: int = MAX_INT
    max_connection_creation_rate: float = 0.0
    num_network_threads: int | None = None


@dataclass(slots=True)
class _Listener:
    """A listener with its listen socket, and its Acceptor once connections are accepted."""

    endpoint: Endpoint
    index: int
    socket: socket.socket | None = None
    acceptor: Acceptor | None = None
    thread: threading.Thread | None = None

    def end(self) -> None:
        """Stop the Acceptor and close the listen socket; open connections go on."""
        if self.acceptor is not None and self.thread is not None:
            self.acceptor.stop()
            self.thread.join(THREAD_END_S)
            self.acceptor = self.thread = None
        if self.socket is not None:
            self.socket.close()
            self.socket = None


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
                    _listener_value(config, endpoint.listener_name, "num.network.threads", None),
                )
                for endpoint in config.listeners
            },
            listener_security=listener_security or {},
        )


def _listener_value(config: BrokerConfig, listener: str, name: str, default: int | None) -> Any:
    """The listener's value alone: the broker-wide key is a separate limit."""
    key = f"listener.name.{listener.lower()}.{name}"
    is_set = key in config
    return config[key] if is_set else default


def _set_or(config: BrokerConfig, name: str, otherwise: Otherwise) -> int | Otherwise:
    """The value of a key that somebody has set; Kafka's default for it is not used here."""
    is_set = any(name in layer for layer in (config.static, config.dynamic, config.dynamic_default))
    return config.get_int(name) if is_set else otherwise


def _check_security(endpoint: Endpoint, config: SocketServerConfig) -> None:
    """A listener that asks for less than its protocol says would serve everybody. ConfigError."""
    protocol = endpoint.security_protocol
    security = config.listener_security.get(endpoint.listener_name, ListenerSecurity())
    if (protocol.tls, protocol.sasl) != (security.tls is not None, security.sasl):
        reason = f"the security protocol {protocol.name} of this listener is not set up"
        raise ConfigError("listeners", endpoint.listener_name, reason)


def _but_tls(security: ListenerSecurity | None) -> ListenerSecurity | None:
    return None if security is None else security._replace(tls=None)


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
        for endpoint in config.listeners:
            _check_security(endpoint, config)
        self.config = config
        self.listener_names: list[str] = []
        """By listener index, with those of removed listeners."""
        self._protocols: list[tuple[str, SecurityProtocol]] = []
        """Names and protocols by listener index; the channels have this very list."""
        self._securities: list[ListenerSecurity | None] = []
        self._listeners: dict[str, _Listener] = {}
        self.quotas = ConnectionQuotas(
            MOST_LISTENERS, -1, config.quota_window_num, config.quota_window_size_seconds * 1000
        )
        self.memory_pool = MemoryPool(config.queued_max_request_bytes)
        self.registry = ConnectionRegistry(self.quotas, events)
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
        self._pools: dict[str, NetworkThreads] = {}
        """The network threads by the listener that they are for alone; "": of the other listeners."""
        self._accepts = False
        self._stops = False
        for endpoint in config.listeners:
            self._listeners[endpoint.listener_name] = self._make_listener(endpoint)
        self.update_limits(config)

    def _make_channel(self, plane: DataPlane, queued_max_requests: int) -> RequestChannel:
        return RequestChannel(plane, self.registry, self.memory_pool, self._apis, self._protocols, queued_max_requests)

    @property
    def request_channels(self) -> list[RequestChannel]:
        """Every channel with requests for Python."""
        return [self.request_channel] if self.control_channel is None else [self.request_channel, self.control_channel]

    def _make_listener(self, endpoint: Endpoint) -> _Listener:
        """A listener with its index and security. ConfigError after too many listeners."""
        name = endpoint.listener_name
        security = self.config.listener_security.get(name)
        index = self._free_index(endpoint, security)
        if index == len(self.listener_names):
            self.listener_names.append(name)
            self._protocols.append((name, endpoint.security_protocol))
            self._securities.append(security)
            if security is not None:
                self._secure(index, security)
        elif security is not None:
            if security.tls is not None:
                self.registry.replace_tls(index, security.tls)
            if security.sasl:
                self.registry.serve_scram(index, (), ())
        return _Listener(endpoint, index)

    def _free_index(self, endpoint: Endpoint, security: ListenerSecurity | None) -> int:
        """The index of an earlier listener of that name and security without connections, else a new one.

        An index is never that of another name: requests under way know their listener by it.
        """
        used = {each.index for each in self._listeners.values()}
        for index, known in enumerate(self._protocols):
            if (
                index not in used
                and known == (endpoint.listener_name, endpoint.security_protocol)
                and _but_tls(self._securities[index]) == _but_tls(security)
                and self.quotas.listener_count(index) == 0
            ):
                return index
        if len(self._protocols) == MOST_LISTENERS:
            reason = f"a broker process opens at most {MOST_LISTENERS} different listeners; restart it"
            raise ConfigError("listeners", endpoint.listener_name, reason)
        return len(self._protocols)

    def _secure(self, index: int, security: ListenerSecurity) -> None:
        idle_ms, setup_ms = self.config.connections_max_idle_ms, security.setup_timeout_ms
        self.registry.secure_listener(
            index,
            security.tls,
            security.sasl,
            security.raw_tokens,
            security.sasl_server_max_receive_size,
            min(setup_ms, idle_ms) if idle_ms >= 0 else setup_ms,
            security.connection_failed_authentication_delay_ms,
            security.ask_principal,
        )

    def serve_scram(self, listener_name: str, tables: Sequence[ScramTable], mechanisms: Sequence[str]) -> None:
        """Let network threads log in the users of these tables on a SASL listener.

        `mechanisms` are all that the listener enables. A listener that has gone is passed over.
        """
        listener = self._listeners.get(listener_name)
        if listener is not None:
            self.registry.serve_scram(listener.index, tables, mechanisms)

    # --- start and stop ---------------------------------------------------------------------------------------------

    def startup(self) -> None:
        """Bind and listen on every listener and start the Processors; nothing is accepted yet.

        OSError that says which listener and why (port taken, no such address, not permitted).
        """
        try:
            for listener in self._listeners.values():
                listener.socket = self._open_listen_socket(listener.endpoint)
            self.workers.start()
        except OSError:
            self._close_sockets()
            raise
        for name, count in self._pool_sizes().items():
            self._pool(name).grow(count)

    def _open_listen_socket(self, endpoint: Endpoint) -> socket.socket:
        config = self.config
        return open_listen_socket(endpoint, config.socket_receive_buffer_bytes, config.socket_listen_backlog_size)

    def _pool_sizes(self) -> dict[str, int]:
        """Threads of each pool: of the listeners together, and of those with threads for themselves."""
        config = self.config
        sizes = {"": config.num_network_threads}
        for name in self._listeners:
            if name == config.control_plane_listener_name:
                sizes[name] = 1
            elif (own := config.listener_limits.get(name, ListenerLimits()).num_network_threads) is not None:
                sizes[name] = own
        return sizes

    def _pool(self, name: str) -> NetworkThreads:
        pool = self._pools.get(name)
        if pool is None:
            channel = self.request_channel
            if self.control_channel is not None and name == self.config.control_plane_listener_name:
                channel = self.control_channel
            make = partial(self._make_processor, channel)
            pool = self._pools[name] = NetworkThreads(make, f"{name}-" if name else "")
        return pool

    def _pool_of(self, listener_name: str) -> NetworkThreads:
        return self._pool(listener_name if listener_name in self._pool_sizes() else "")

    def _make_processor(self, channel: RequestChannel) -> Processor:
        config = self.config
        return Processor(channel, self.workers, config.socket_request_max_bytes, config.connections_max_idle_ms)

    def enable_request_processing(self) -> None:
        """Accept connections. Called when everything that requests need is there."""
        self._accepts = True
        for listener in self._listeners.values():
            self._accept(listener)

    def _accept(self, listener: _Listener) -> None:
        chosen = self.config.socket_send_buffer_bytes
        name = listener.endpoint.listener_name
        assert listener.socket is not None
        acceptor = Acceptor(
            self.registry,
            listener.socket,
            self._pool_of(name).processors or self._pool("").processors,
            listener.index,
            name == self.config.inter_broker_listener_name,
            SEND_BUFFER if chosen is None else chosen,
            SYSTEM_BUFFER if chosen is None else chosen,
        )
        listener.thread = start_thread(acceptor.run, f"kafka-socket-acceptor-{name}")
        listener.acceptor = acceptor
        logger.info("Listener %s accepts connections on port %d", name, self.bound_port(name))

    def stop_accepting(self) -> None:
        """Stop the Acceptors and close the listen sockets.

        New clients are refused, open connections go on.
        """
        self._accepts, self._stops = False, True
        for listener in self._listeners.values():
            if listener.acceptor is not None:
                listener.acceptor.stop()
        for listener in self._listeners.values():
            listener.end()

    def begin_shutdown(self, timeout_s: float) -> None:
        """Stop accepting, read no more requests, answer requests in flight within `timeout_s`.

        Returns at once. Requests that Python has can still be answered, so the control loop goes on until `shutdown`.
        """
        self.stop_accepting()
        for pool in self._pools.values():
            pool.begin_stop(int(timeout_s * 1000))

    @property
    def stopped(self) -> bool:
        """Whether every network thread has ended."""
        return all(pool.stopped for pool in self._pools.values())

    def shutdown(self, timeout_s: float = 10.0) -> None:
        """`begin_shutdown` and wait for the network threads.

        Blocks at most a little longer than `timeout_s`. If Python still owes answers, call `begin_shutdown` first and
        come back when `stopped`, or call this from a worker thread.
        """
        deadline = time.monotonic() + timeout_s
        self.begin_shutdown(timeout_s)
        for pool in self._pools.values():
            pool.join(deadline, THREAD_END_S)
        if self.stopped:
            # Their descriptors are closed at once: no pool and no server waits for the garbage collector.
            for pool in self._pools.values():
                pool.clear()
            self._pools = {}
            self.workers.stop()
        else:
            logger.error("A network thread did not end within %.1f s", timeout_s + THREAD_END_S)

    # --- changes at run time ----------------------------------------------------------------------------------------

    def reconfigure(self, config: SocketServerConfig) -> list[OSError | ConfigError]:
        """Put a new configuration into force: network threads, worker threads, limits, listeners.

        A listener of the same name keeps its address and security. Returns the errors of listeners that cannot be
        opened; the others are open. Connections of a removed listener stay open until `close_removed`.
        """
        if self._stops:
            return []
        self.config = config
        errors: list[OSError | ConfigError] = []
        wanted = {endpoint.listener_name: endpoint for endpoint in config.listeners}
        for name in [name for name in self._listeners if name not in wanted]:
            removed = self._listeners.pop(name)
            removed.end()
            logger.info("Listener %s is closed", name)
        for name, endpoint in wanted.items():
            if name not in self._listeners:
                try:
                    self._add_listener(endpoint)
                except (OSError, ConfigError) as error:
                    errors.append(error)
        self.update_limits(config)
        self._resize_pools(errors)
        try:
            self.workers.resize(config.num_worker_threads)
        except OSError as error:
            errors.append(error)
        return errors

    def _add_listener(self, endpoint: Endpoint) -> None:
        _check_security(endpoint, self.config)
        listen_socket = self._open_listen_socket(endpoint)
        try:
            listener = self._make_listener(endpoint)
        except BaseException:
            listen_socket.close()
            raise
        listener.socket = listen_socket
        self._listeners[endpoint.listener_name] = listener

    def _resize_pools(self, errors: list[OSError | ConfigError]) -> None:
        sizes = self._pool_sizes()
        for name, count in sizes.items():
            try:
                self._pool(name).grow(count)
            except OSError as error:
                errors.append(error)
        for name, listener in self._listeners.items():
            pool = name if name in sizes else ""
            if listener.acceptor is not None:
                # Without descriptors a new pool may have no thread yet.
                kept = self._pools[pool].without(sizes[pool]) or self._pools[""].without(sizes[""])
                listener.acceptor.set_processors(kept)
        for name, threads in self._pools.items():
            threads.shrink(sizes.get(name, 0))
        if self._accepts:
            for listener in self._listeners.values():
                if listener.acceptor is None:
                    try:
                        self._accept(listener)
                    except OSError as error:
                        errors.append(error)

    def close_removed(self, *, in_flight: bool) -> int:
        """Close connections of removed listeners; how many were open.

        With `in_flight` also connections with a request.
        """
        present = {each.index for each in self._listeners.values()}
        if not any(self.quotas.listener_count(i) for i in range(len(self.listener_names)) if i not in present):
            return 0
        stale = [each for each in self.registry.connections() if each["listener_index"] not in present]
        for each in stale:
            if in_flight or not each["in_flight"]:
                self.close_connection(each["id"])
        return len(stale)

    # --- what is bound ----------------------------------------------------------------------------------------------

    def bound_port(self, listener_name: str) -> int:
        """The port of a listener, also if 0 was configured.

        KeyError for an unknown listener or before `startup`.
        """
        listen_socket = self._listeners[listener_name].socket
        if listen_socket is None:
            raise KeyError(listener_name)
        port: int = listen_socket.getsockname()[1]
        return port

    def bound_endpoints(self) -> list[Endpoint]:
        """The listeners with the ports that were bound."""
        return [each.endpoint.with_port(self.bound_port(name)) for name, each in self._listeners.items()]

    def listener_indexes(self) -> dict[str, int]:
        """The index of each open listener, by name."""
        return {name: each.index for name, each in self._listeners.items()}

    def _close_sockets(self) -> None:
        for listener in self._listeners.values():
            listener.end()

    # --- connections and limits -------------------------------------------------------------------------------------

    def update_limits(self, config: SocketServerConfig) -> None:
        """Put the connection limits of a new configuration into force."""
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
        inter_broker = self._listeners.get(config.inter_broker_listener_name or "")
        exempt = inter_broker is not None and len(self._listeners) > 1
        self.quotas.protect_listener(inter_broker.index if exempt and inter_broker is not None else -1)
        for name, listener in self._listeners.items():
            limits = config.listener_limits.get(name, ListenerLimits())
            # The inter-broker listener is exempt from the broker's limit, but not from that of the process.
            listener_most = min(limits.max_connections, self._most_connections)
            self.quotas.set_listener_limits(listener.index, listener_most, limits.max_connection_creation_rate)
        overrides: dict[str, int] = {}
        for host, limit in config.max_connections_per_ip_overrides.items():
            for address in _addresses(host):
                overrides[address] = limit
        self.quotas.set_ip_limits(config.max_connections_per_ip, overrides)

    def replace_tls(self, listener_name: str, tls: TlsContext) -> None:
        """Give a TLS listener another context.

        New connections get it, open connections keep theirs.
        """
        self.registry.replace_tls(self._listeners[listener_name].index, tls)

    def connections(self) -> list[dict[str, Any]]:
        """The open connections (see ConnectionRegistry.connections), with `listener_name` added."""
        found = self.registry.connections()
        for info in found:
            info["listener_name"] = self.listener_names[info["listener_index"]]
        return found

    def close_connection(self, connection_id: int) -> None:
        """Close one connection; nothing happens when it is closed already."""
        for pool in self._pools.values():
            pool.close_connection(connection_id)

    # --- counters ---------------------------------------------------------------------------------------------------

    def _creation_rates(self) -> dict[str, tuple[float, int, int]]:
        rates = self.quotas.creation_rates()[1]
        return {name: rates[each.index] for name, each in list(self._listeners.items())}

    def counters(self) -> dict[str, Any]:
        """Everything the metrics collector reads: `connections` (ConnectionRegistry.counters), `listeners` (open
        connections by listener name), `creation_rates` (ConnectionQuotas.creation_rates likewise), `authentication`
        (ConnectionRegistry.authentication_counters by listener name, without those of PLAINTEXT), `request_channel`
        (RequestChannel.counters), `memory_pool` (limit, used, free, refused; bytes), `processors` (one
        Processor.counters each), `processor_idle_ratio` (mean, 0 to 1) and `apis` (DataPlane.counters), `times`
        (Processor.counters, summed), `workers` (WorkerPool.counters)."""
        processors = [each for pool in list(self._pools.values()) for each in pool.counters()]
        ratios = [item["idle_ns"] / item["running_ns"] for item in processors if item["running_ns"]]
        pool = self.memory_pool
        return {
            "connections": self.registry.counters(),
            "listeners": {
                name: self.quotas.listener_count(each.index) for name, each in list(self._listeners.items())
            },
            "creation_rates": self._creation_rates(),
            "authentication": {
                name: self.registry.authentication_counters(each.index)
                for name, each in list(self._listeners.items())
                if name in self.config.listener_security
            },
            "request_channel": self.request_channel.counters(),
            "memory_pool": {"limit": pool.limit, "used": pool.used, "free": pool.free, "refused": pool.refused},
            "processors": processors,
            "processor_idle_ratio": min(1.0, sum(ratios) / len(ratios)) if ratios else 1.0,
            "apis": self._plane.counters(),
            "times": sum_times(times for pool in list(self._pools.values()) for times in pool.times()),
            "workers": self.workers.counters(),
        }


def _addresses(host: str) -> list[str]:
    """The addresses of a host in max.connections.per.ip.overrides, as accepted connections show them."""
    try:
        return sorted({str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})
    except OSError:
        logger.warning("Host %s of max.connections.per.ip.overrides cannot be resolved; the broker ignores it", host)
        return []
