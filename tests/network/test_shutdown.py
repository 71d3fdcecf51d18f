"""A graceful stop answers what is in flight, reads nothing new, and ends in time."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import pytest


def collect(net):
    requests = []
    net.handler = requests.append
    return requests


def test_waiting_fetches_are_answered_at_once(network, eventually):
    net = network()
    net.topic("t")
    clients = [net.client() for _ in range(10)]
    for client in clients:
        client.send_bytes(net.fetch_frame("t", max_wait_ms=60_000))
    eventually(lambda: net.counters()["apis"].get(1, {}).get("requests") == 10)
    net.server.shutdown(10)
    for client in clients:
        assert net.fetched(client.receive()[1]).error_code == 0
        assert client.closed_by_broker()
    assert net.server.stopped and net.server.connections() == []


def test_requests_that_python_has_may_still_be_answered(network, eventually):
    net = network()
    requests = collect(net)
    clients = [net.client() for _ in range(4)]
    for index, client in enumerate(clients):
        client.send(b"%d" % index + b"!" * 10_000)
    eventually(lambda: len(requests) == 4)
    net.server.begin_shutdown(10)
    assert not net.server.stopped
    for request in requests:
        request.reply(request.body)
    for index, client in enumerate(clients):
        assert client.receive()[1] == b"%d" % index + b"!" * 10_000
        assert client.closed_by_broker()
    eventually(lambda: net.server.stopped)


def test_requests_behind_the_one_in_flight_are_not_handled(network, eventually):
    net = network()
    requests = collect(net)
    client = net.client()
    client.send_bytes(client.frame(b"first", correlation_id=1) + client.frame(b"second", correlation_id=2))
    request = eventually(lambda: requests)[0]
    net.server.begin_shutdown(10)
    request.reply(b"done")
    assert client.receive() == (1, b"done")
    assert client.closed_by_broker()
    assert len(requests) == 1


def test_idle_connections_are_closed_and_new_ones_refused(network, eventually):
    net = network()
    idle = net.client()
    idle.ask()
    port = net.server.bound_port("PLAINTEXT")
    net.server.shutdown(10)
    assert idle.closed_by_broker()
    import socket

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)


def test_the_stop_ends_though_somebody_never_answers(network, eventually):
    net = network()
    requests = collect(net)
    unread = net.client()
    client = net.client()
    client.send(b"never answered")
    request = eventually(lambda: requests)[0]
    unread.send(b"")
    eventually(lambda: len(requests) == 2)
    requests[1].reply(bytes(30 << 20))
    net.server.shutdown(0.3)
    assert net.server.stopped
    assert client.closed_by_broker()
    request.reply(b"too late")  # goes nowhere, harms nobody


def test_a_produce_that_waits_for_replicas_is_answered_as_timed_out_when_the_time_is_over(network, eventually):
    net = network()
    net.topic("t", isr=(1, 2))
    client = net.client()
    client.send_bytes(net.produce_frame("t", net.batch(b"v" * 20_000), acks=-1, timeout_ms=60_000))
    eventually(lambda: net.counters()["apis"].get(0, {}).get("requests") == 1)
    net.server.shutdown(0.2)
    assert net.produced(client.receive()[1]).error_code == 7
    assert client.closed_by_broker()


def test_a_stop_under_load_ends(network):
    net = network()
    net.topic("t")
    stop = threading.Event()

    def load(client, frame):
        try:
            while not stop.is_set():
                client.send_bytes(frame)
                client.receive()
        except (OSError, EOFError):
            pass

    frames = [net.produce_frame("t", net.batch(b"v" * 500)), net.fetch_frame("t", max_wait_ms=500)]
    threads = []
    for index in range(6):
        client = net.client()
        frame = frames[index % 2] if index < 4 else client.frame(b"python")
        threads.append(threading.Thread(target=load, args=(client, frame)))
        threads[-1].start()
    threading.Event().wait(0.3)
    net.server.shutdown(10)
    stop.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert net.server.stopped


def test_a_server_that_is_gone_leaves_no_descriptor_open(network):
    def descriptors() -> int:
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir()))

    def serve() -> None:
        net = network()
        assert net.client().ask(b"served") == b"served"
        net.close()

    serve()  # the descriptors of its mailboxes wait for the next server
    before = descriptors()
    for _ in range(3):
        serve()
    assert descriptors() <= before
