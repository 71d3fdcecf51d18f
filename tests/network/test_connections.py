"""Accepting, limits, idle expiry and what is told of connections."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkapy._speedups.base.event_queue import EventQueue
from kafkapy._speedups.requests.data_plane import DataPlane
from kafkapy._speedups.requests.fetch_session import FetchSessionCache
from kafkapy._speedups.requests.partition_table import PartitionTable
from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import ConfigError
from kafkapy.network.listen_sockets import open_listen_socket
from kafkapy.network.socket_server import SEND_BUFFER, ListenerLimits, SocketServer, SocketServerConfig
from kafkapy.types import Endpoint, SecurityProtocol

TCP_ESTABLISHED = 1


def server_for(*endpoints):
    events = EventQueue()
    plane = DataPlane(1, PartitionTable(), FetchSessionCache(10), events)
    return SocketServer(SocketServerConfig(endpoints), plane, events, {})


def test_a_taken_port_is_said_clearly():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = server_for(Endpoint("FIRST", "127.0.0.1", 0), Endpoint("SECOND", "127.0.0.1", port))
        with pytest.raises(OSError, match=rf"Listener SECOND cannot be bound to 127.0.0.1:{port}: the port is taken"):
            server.startup()
    server.shutdown(0)


def test_an_address_of_another_machine_is_said_clearly():
    server = server_for(Endpoint("PLAINTEXT", "192.0.2.1", 0))
    with pytest.raises(OSError, match="Listener PLAINTEXT cannot be bound to"):
        server.startup()


def test_tls_listeners_are_refused_by_name():
    with pytest.raises(ConfigError, match="SECURE"):
        server_for(Endpoint("SECURE", "127.0.0.1", 0, SecurityProtocol.SSL))


def test_an_empty_host_is_every_interface():
    server = server_for(Endpoint("PLAINTEXT", "", 0))
    server.startup()
    try:
        port = server.bound_port("PLAINTEXT")
        assert server.bound_endpoints() == [Endpoint("PLAINTEXT", "", port)]
        socket.create_connection(("127.0.0.1", port)).close()
    finally:
        server.shutdown(0)
    with pytest.raises(KeyError):
        server.bound_port("PLAINTEXT")


def test_connections_wait_until_requests_are_processed(network):
    net = network()
    late = server_for(Endpoint("PLAINTEXT", "127.0.0.1", 0))
    late.startup()
    try:
        with socket.create_connection(("127.0.0.1", late.bound_port("PLAINTEXT")), 5):
            assert late.registry.counters()["created"] == 0
    finally:
        late.shutdown(0)
    assert net.client().ask(b"x") == b"x"


@pytest.fixture
def many_files():
    """As many open files as the machine allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_a_thousand_clients_may_connect_before_one_is_accepted():
    """The listen queue takes them all: none waits a second to send its SYN again."""
    if int(Path("/proc/sys/net/core/somaxconn").read_text()) < 1000:
        pytest.skip("net.core.somaxconn is below 1000 on this machine")
    server = server_for(Endpoint("PLAINTEXT", "127.0.0.1", 0))
    server.startup()
    clients = [socket.socket() for _ in range(1000)]
    try:
        for client in clients:
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", server.bound_port("PLAINTEXT")))
        # On the loopback a connection is there when connect returns, or its SYN was dropped.
        states = Counter(client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] for client in clients)
        assert states == {TCP_ESTABLISHED: 1000}
        server.enable_request_processing()
        deadline = time.monotonic() + 10
        while server.registry.counters()["created"] < 1000:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        for client in clients:
            client.close()
        server.shutdown(0)


def test_a_backlog_or_buffer_that_is_configured_is_used():
    def of(**keys: str) -> SocketServerConfig:
        return SocketServerConfig.from_broker_config(BrokerConfig({"broker.id": "1"} | keys))

    unset = of()
    assert (unset.socket_listen_backlog_size, unset.socket_receive_buffer_bytes) == (1024, -1)
    assert unset.socket_send_buffer_bytes is None
    keys = {"socket.listen.backlog.size": "50", "socket.receive.buffer.bytes": "1024", "socket.send.buffer.bytes": "-1"}
    as_set = of(**keys)
    assert (as_set.socket_listen_backlog_size, as_set.socket_receive_buffer_bytes) == (50, 1024)
    assert as_set.socket_send_buffer_bytes == -1


@contextlib.contextmanager
def accepted_socket(client: Any) -> Iterator[socket.socket]:
    """The broker's end of the client's connection, which it has in this process."""
    for entry in Path("/proc/self/fd").iterdir():
        if not is_socket(entry):
            continue
        found = socket.socket(fileno=int(entry.name))
        try:
            if peer_of(found) == client.socket.getsockname():
                yield found
                return
        finally:
            found.detach()
    raise AssertionError("no such connection")


def peer_of(connected: socket.socket) -> Any:
    with contextlib.suppress(OSError):  # a listener has none
        return connected.getpeername()


def is_socket(entry: Path) -> bool:
    try:
        return str(entry.readlink()).startswith("socket:")
    except FileNotFoundError:
        return False  # the descriptor with which the directory is read


def test_accepted_sockets_have_the_options_of_a_broker(network):
    client = network().client()
    client.ask()
    with accepted_socket(client) as accepted:
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert not os.get_blocking(accepted.fileno())


def test_a_connection_that_waited_in_the_backlog_has_them_too():
    """Clients connect again while the broker starts."""
    endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 0, SecurityProtocol.PLAINTEXT)
    with open_listen_socket(endpoint, -1, 5) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_what_stays_on_the_host_is_not_paced(network):
    client = network().client()
    client.ask()
    with accepted_socket(client) as accepted:
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0") == b"reno"


def send_buffer(client: Any) -> int:
    client.ask()
    with accepted_socket(client) as accepted:
        return accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2  # the kernel doubles what it is told


def test_the_send_buffer_is_the_one_set_or_the_systems_on_the_same_host(network):
    net = network()
    assert send_buffer(net.client()) > SEND_BUFFER
    assert send_buffer(net.client(source="127.0.0.2")) == SEND_BUFFER, "as from another host"
    net = network(socket_send_buffer_bytes=64 * 1024)
    assert send_buffer(net.client()) == send_buffer(net.client(source="127.0.0.2")) == 64 * 1024
    assert send_buffer(network(socket_send_buffer_bytes=-1).client(source="127.0.0.2")) > SEND_BUFFER


@pytest.mark.usefixtures("many_files")
def test_a_thousand_idle_and_two_hundred_active_connections(network):
    net = network()
    idle = [net.client() for _ in range(1000)]
    active = [net.client() for _ in range(200)]
    for turn in range(5):
        for index, client in enumerate(active):
            client.send(b"%d-%d" % (index, turn))
        for index, client in enumerate(active):
            assert client.receive()[1] == b"%d-%d" % (index, turn)
    counters = net.counters()
    assert counters["connections"]["current"] == 1200
    shares = [processor["connections"] for processor in counters["processors"]]
    assert shares == [600, 600]
    assert idle[500].ask(b"awake") == b"awake"


def test_an_address_over_its_limit_is_refused_at_once(network, eventually):
    net = network(max_connections_per_ip=2, max_connections_per_ip_overrides={"127.0.0.2": 3})
    first, second = net.client(), net.client()
    assert first.ask(b"1") == b"1" and second.ask(b"2") == b"2"
    assert net.client().closed_by_broker()
    assert "127.0.0.1" in eventually(net.lines)[0] and "max.connections.per.ip" in net.lines()[0]
    others = [net.client(source="127.0.0.2") for _ in range(3)]
    assert all(client.ask(b"o") == b"o" for client in others)
    assert net.client(source="127.0.0.2").closed_by_broker()
    first.close()
    eventually(lambda: net.server.quotas.count == 4)
    assert net.client().ask(b"room again") == b"room again"
    assert net.counters()["connections"]["refused_per_ip"] == 2


def test_a_full_broker_lets_new_clients_wait(network, eventually):
    net = network(max_connections=2)
    first, second = net.client(), net.client()
    assert first.ask(b"1") == b"1" and second.ask(b"2") == b"2"
    third = net.client()
    third.send(b"3")
    assert third.silent(0.1)
    first.close()
    assert third.receive()[1] == b"3"
    fourth = net.client()
    fourth.send(b"4")
    assert fourth.silent(0.1)
    net.server.update_limits(SocketServerConfig(net.server.config.listeners, max_connections=10))
    assert fourth.receive()[1] == b"4"


def test_a_listener_has_a_limit_of_its_own(network):
    net = network(listeners=("ONE", "TWO"), listener_limits={"ONE": ListenerLimits(max_connections=1)})
    assert net.client("ONE").ask(b"1") == b"1"
    waiting = net.client("ONE")
    waiting.send(b"2")
    assert waiting.silent(0.1)
    assert net.client("TWO").ask(b"3") == b"3"
    assert net.counters()["listeners"] == {"ONE": 1, "TWO": 1}


def test_the_inter_broker_listener_makes_room_for_itself(network):
    net = network(
        listeners=("CLIENTS", "BROKERS"), inter_broker_listener_name="BROKERS", max_connections=2, num_network_threads=1
    )
    oldest, newest = net.client("CLIENTS"), net.client("CLIENTS")
    assert oldest.ask(b"1") == b"1" and newest.ask(b"2") == b"2"
    broker = net.client("BROKERS")
    assert broker.ask(b"b") == b"b"
    assert oldest.closed_by_broker()
    assert newest.ask(b"3") == b"3"
    assert net.counters()["connections"]["closed_excess"] == 1


def test_new_connections_are_slowed_to_the_creation_rate(network):
    # Two windows of a second: 20 connections at once, then one in 50 ms.
    net = network(max_connection_creation_rate=20.0, quota_window_num=2)
    clients = [net.client() for _ in range(25)]
    for client in clients:
        client.send(b"x")
    assert all(client.receive()[1] == b"x" for client in clients)
    rate, ((_, throttled_ms, throttled_address_ms), *_) = net.server.quotas.creation_rates()
    assert 0 < rate <= 25 and throttled_ms > 0 and throttled_address_ms == 0


def test_an_address_above_its_creation_rate_is_closed_and_does_not_count(network, eventually):
    net = network()
    assert net.client().ask(b"x") == b"x"
    net.server.quotas.set_address_rates(0.0, {"127.0.0.1": 1.0, "10.0.0.1": 5.0})
    served = [net.client() for _ in range(10)]
    for client in served:
        client.send(b"x")
    assert all(client.receive()[1] == b"x" for client in served)
    refused = [net.client() for _ in range(3)]
    assert all(client.closed_by_broker() for client in refused)
    assert net.server.quotas.count == 11
    assert net.server.quotas.creation_rates()[1][0][2] > 0
    net.server.quotas.set_address_rates(0.0, {})
    assert net.client().ask(b"x") == b"x"


def test_the_default_rate_of_addresses_yields_to_their_own(network):
    net = network()
    net.server.quotas.set_address_rates(0.1, {"127.0.0.1": 1000.0})
    clients = [net.client() for _ in range(20)]
    assert all(client.ask(b"x") == b"x" for client in clients)


def test_idle_connections_are_closed_least_recently_used_first(network, eventually):
    net = network(connections_max_idle_ms=300, num_network_threads=1)
    idle, busy = net.client(), net.client()
    idle.ask(b"once")
    eventually(lambda: busy.ask(b"again") == b"again" and net.counters()["connections"]["closed_idle"] == 1)
    assert idle.closed_by_broker()
    assert busy.ask(b"still here") == b"still here"


def test_a_connection_that_waits_for_its_answer_is_not_idle(network):
    net = network(connections_max_idle_ms=50)
    net.topic("t")
    client = net.client()
    client.send_bytes(net.fetch_frame("t", max_wait_ms=400))
    assert client.receive()[0] == 1


def time_of_acceptors() -> float:
    """The seconds that the threads of acceptors have been on a processor."""
    threads = [each for each in threading.enumerate() if each.name.startswith("kafka-socket-acceptor-")]
    assert threads
    return sum(time.clock_gettime(time.pthread_getcpuclockid(each.ident)) for each in threads if each.ident)


def test_an_acceptor_without_descriptors_pauses_says_so_once_and_recovers(network, eventually):
    net = network()
    assert net.client().ask(b"before") == b"before"
    ready = [socket.socket() for _ in range(3)]
    for each in ready:
        each.settimeout(10)
    gc.collect()  # what other tests left behind must not give a descriptor back in the middle of this one
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(int(path.name) for path in Path("/proc/self/fd").iterdir()), hard))
    fillers = []
    try:
        with contextlib.suppress(OSError):
            while True:
                fillers.append(os.dup(0))
        for each in ready:
            each.connect(("127.0.0.1", net.server.bound_port("PLAINTEXT")))
            each.sendall(net.clients[0].frame(b"x"))
        eventually(lambda: any("open files" in line for line in net.lines()))
        before_s = time_of_acceptors()
        time.sleep(0.5)  # two more attempts
        assert len(net.lines()) == 1
        assert time_of_acceptors() - before_s < 0.03, "it does not pause"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for filler in fillers:
            os.close(filler)
    for each in ready:
        with each:
            assert each.recv(100)


def test_a_connection_is_closed_on_demand(network):
    net = network()
    client, other = net.client(), net.client()
    client.ask()
    other.ask()
    by_port = {info["peer_port"]: info["id"] for info in net.server.connections()}
    net.server.close_connection(by_port[client.socket.getsockname()[1]])
    assert client.closed_by_broker()
    assert other.ask(b"x") == b"x"


def test_closed_connections_leave_nothing_behind(network, eventually):
    net = network()
    for _ in range(5):
        clients = [net.client() for _ in range(20)]
        for client in clients:
            client.send(b"x" * 1000)
        for client in clients:
            client.close()
    eventually(lambda: net.counters()["connections"]["current"] == 0)
    eventually(lambda: net.server.memory_pool.used == 0)
    assert net.server.quotas.count == 0
