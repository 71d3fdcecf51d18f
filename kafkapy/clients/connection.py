"""The connection to one node: state, addresses, back-off, and requests in flight.

Source: org.apache.kafka.clients.ClusterConnectionStates.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import socket
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from typing import Any, Final, NamedTuple

from kafkapy.clients.backoff import Backoff
from kafkapy.config.clients import ClientConfig
from kafkapy.errors import ConfigError

__all__ = ["FURTHER", "ConnectionState", "InFlight", "NodeConnection", "open_socket", "parse_bootstrap"]

DEFAULT_PORT: Final = 9092
FURTHER: Final = 2**32
"""The node ids of further connections to a broker are its id plus multiples of this number."""
_ADDRESS = re.compile(r"(?:[A-Za-z][A-Za-z0-9_]*://)?(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\[\]:\s/]+))(?::([0-9]+))?\Z")


class ConnectionState(Enum):
    """The state of a connection. Only READY carries the client's requests."""

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    CHECKING_API_VERSIONS = "checking api versions"
    READY = "ready"


class InFlight:
    """A submitted request.

    `future` gives its response frame; `deadline_s` is in the loop's time.
    """

    __slots__ = ("correlation_id", "deadline_s", "future", "started_s", "timed_out")

    def __init__(self, future: asyncio.Future[Any], correlation_id: int, now_s: float, timeout_s: float) -> None:
        self.future = future
        self.correlation_id = correlation_id
        self.started_s = now_s
        self.deadline_s = now_s + timeout_s
        self.timed_out = False


class NodeConnection:
    """One client's connection to one node.

    Only the client's loop uses it. It is created when the node is first needed, and outlives disconnects.
    """

    __slots__ = (
        "addresses",
        "api_versions",
        "attempts",
        "channel",
        "closing",
        "error",
        "features",
        "held",
        "host",
        "in_flight",
        "last_active_s",
        "last_attempt_s",
        "node_id",
        "port",
        "reauthentication",
        "reconnect_at_s",
        "secured",
        "setup_attempts",
        "silent",
        "state",
        "task",
        "throttled_until_s",
        "warned",
    )

    def __init__(self, node_id: int, host: str, port: int) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.state = ConnectionState.DISCONNECTED
        self.channel = 0
        """The channel id in the I/O kernel; 0: none."""
        self.closing = False
        """Whether close_channel() was called and its event is still to come."""
        self.api_versions: dict[int, tuple[int, int]] = {}
        """api key: (lowest, highest version) of the broker; kept while disconnected."""
        self.features: dict[str, int] = {}
        """Finalized features of the cluster with their levels (KIP-584), as of the last connect."""
        self.in_flight: dict[int, InFlight] = {}
        """Requests by correlation id, in the order of submission."""
        self.silent: deque[InFlight] = deque()
        """Number of requests without response that are not written yet."""
        self.held: list[Callable[[], None]] | None = None
        """Calls that send the requests waiting for a re-authentication; None: none is under way."""
        self.reauthentication: asyncio.TimerHandle | asyncio.Task[None] | None = None
        """The next re-authentication, or the running one; None: the session has no end."""
        self.secured: asyncio.Future[None] | None = None
        """Done at the end of the TLS handshake; None: none is under way."""
        self.throttled_until_s = 0.0
        self.attempts = 0
        """Number of disconnects since the connection was last ready."""
        self.setup_attempts = 0
        self.last_attempt_s = 0.0
        self.reconnect_at_s = 0.0
        self.last_active_s = 0.0
        self.addresses: list[tuple[Any, ...]] = []
        """The addresses of the last getaddrinfo that were not tried yet."""
        self.task: asyncio.Task[None] | None = None
        """The running attempt to connect."""
        self.error: Exception | None = None
        """The error of the last attempt."""
        self.warned = ""
        """The last logged reason since the connection was ready."""

    def __str__(self) -> str:
        who = f"broker {self.node_id % FURTHER}" if self.node_id >= 0 else "bootstrap server"
        return f"{who} ({self.address})"

    @property
    def address(self) -> str:
        """host:port, an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def preparing(self) -> bool:
        """Whether the client is connecting, or checking API versions."""
        return self.state in (ConnectionState.CONNECTING, ConnectionState.CHECKING_API_VERSIONS)

    @property
    def pending(self) -> int:
        """Number of requests in flight."""
        return len(self.in_flight) + len(self.silent)

    def can_connect(self, now_s: float) -> bool:
        """Whether the reconnect back-off is over."""
        return self.state is ConnectionState.DISCONNECTED and now_s >= self.reconnect_at_s

    def is_ready(self, now_s: float) -> bool:
        """Whether a request may be sent now: ready, and not throttled (KIP-219)."""
        return self.state is ConnectionState.READY and not self.closing and now_s >= self.throttled_until_s

    def moved(self, host: str, port: int) -> None:
        """Changes the node's address and forgets the failures of the old one."""
        self.host, self.port = host, port
        self.addresses = []
        self.attempts = self.setup_attempts = 0
        self.reconnect_at_s = 0.0

    def disconnected(self, now_s: float, backoff: Backoff) -> None:
        """Records a lost connection, or a failed attempt."""
        if self.state is ConnectionState.CONNECTING:
            self.setup_attempts += 1
        else:
            self.setup_attempts = 0
            if self.state is not ConnectionState.DISCONNECTED:
                self.addresses = []
        self.state = ConnectionState.DISCONNECTED
        self.channel = 0
        self.closing = False
        self.held = None
        if self.reauthentication is not None:
            self.reauthentication.cancel()
            self.reauthentication = None
        self.reconnect_at_s = now_s + backoff.delay_s(self.attempts)
        self.attempts += 1

    def connected(self) -> None:
        """Records that the connection is ready."""
        self.state = ConnectionState.READY
        self.attempts = self.setup_attempts = 0
        self.error = None
        self.warned = ""


async def open_socket(connection: NodeConnection, config: ClientConfig, timeout_s: float) -> socket.socket:
    """A connected, non-blocking socket to one of the node's addresses.

    Each address gets `timeout_s`; the next call starts with the untried addresses. OSError (TimeoutError,
    socket.gaierror) of the last address.
    """
    if not connection.addresses:
        connection.addresses = await _resolved(connection.host, connection.port)
    error: OSError | None = None
    while connection.addresses:
        family, address = connection.addresses.pop(0)
        made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            _set_options(made, config)
            async with asyncio.timeout(timeout_s):
                await _connect(made, address)
            _do_not_pace_on_the_same_host(made, config)
            return made
        except OSError as failed:
            made.close()
            error = failed
        except BaseException:
            made.close()
            raise
    raise error or OSError(f"{connection.host} has no address")


async def _connect(made: socket.socket, address: Any) -> None:
    """Connects a non-blocking socket to a resolved address. OSError.

    A replacement for loop.sock_connect(), which on uvloop resolves the address again, on threads of libuv: while those
    run, every forked child crashes when it exits.
    """
    error = made.connect_ex(address)
    if error == errno.EINPROGRESS:
        loop = asyncio.get_running_loop()
        writable = asyncio.Event()
        loop.add_writer(made.fileno(), writable.set)
        try:
            await writable.wait()
        finally:
            loop.remove_writer(made.fileno())
        error = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))


async def _resolved(host: str, port: int) -> list[tuple[Any, ...]]:
    """(family, address) pairs of a host. socket.gaierror."""
    options = {"type": socket.SOCK_STREAM, "proto": socket.IPPROTO_TCP}
    try:
        # A numeric address needs no thread that might wait for a name server.
        found = socket.getaddrinfo(host, port, flags=socket.AI_NUMERICHOST, **options)
    except socket.gaierror:
        # Not uvloop's getaddrinfo, for the reason in _connect().
        look_up = partial(socket.getaddrinfo, host, port, **options)
        found = await asyncio.get_running_loop().run_in_executor(None, look_up)
    return [(family, address) for family, _, _, _, address in found]


def _set_options(made: socket.socket, config: ClientConfig) -> None:
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if config["send.buffer.bytes"] >= 0:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config["send.buffer.bytes"])
    if config["receive.buffer.bytes"] >= 0:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config["receive.buffer.bytes"])
    for option in config["socket.options"]:
        made.setsockopt(*option)


def _do_not_pace_on_the_same_host(made: socket.socket, config: ClientConfig) -> None:
    """Selects Reno for a broker on the same host.

    BBR, the default of some machines, paces there too, and its timers take a tenth of a producer's CPU time. A
    congestion control in `socket.options` stays.
    """
    if any(tuple(option[:2]) == (socket.IPPROTO_TCP, socket.TCP_CONGESTION) for option in config["socket.options"]):
        return
    with contextlib.suppress(OSError):  # the socket is gone, or the system has no Reno
        if made.getpeername()[0] == made.getsockname()[0]:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")


class Address(NamedTuple):
    """The address of a bootstrap server."""

    host: str
    port: int


def parse_bootstrap(servers: Iterable[object]) -> list[Address]:
    """The addresses in bootstrap.servers, without repetitions. ConfigError.

    Texts are host:port; a scheme before the host is dropped, and the default port is 9092, as in kafka-python.
    """
    found: dict[Address, None] = {}
    for server in servers:
        matched = _ADDRESS.match(str(server).strip())
        port = int(matched[3] or DEFAULT_PORT) if matched else 0
        if matched is None or not 0 < port < 65536:
            raise ConfigError("bootstrap.servers", server, "must be host:port, separated by commas")
        found[Address(matched[1] or matched[2], port)] = None
    if not found:
        raise ConfigError("bootstrap.servers", "", "must not be empty")
    return list(found)


async def canonical_names(addresses: Iterable[Address]) -> list[Address]:
    """The canonical names of the bootstrap servers' addresses.

    Used by client.dns.lookup=resolve_canonical_bootstrap_servers_only. Names that do not resolve are left out.
    """
    loop = asyncio.get_running_loop()
    found: dict[Address, None] = {}
    for host, port in addresses:
        try:
            known = await _resolved(host, port)
        except OSError:
            continue
        for _, address in known:
            try:
                place = (str(address[0]), port)
                name, _ = await loop.run_in_executor(None, socket.getnameinfo, place, socket.NI_NAMEREQD)
            except OSError:
                name = str(address[0])
            found[Address(name, port)] = None
    return list(found)
