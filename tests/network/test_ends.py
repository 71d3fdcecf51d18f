"""Connections whose peer sends no more, that make room for others, and that wait for their principal."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from kafkapy._speedups.network.network_request import ASK_PRINCIPAL
from kafkapy.network.socket_server import ListenerSecurity


def shut(client: Any) -> None:
    client.socket.shutdown(socket.SHUT_WR)


def in_flight(net: Any) -> int:
    return sum(each["in_flight"] for each in net.server.connections())


# ---- half-closed ----


def test_a_waiting_fetch_of_a_peer_that_sends_no_more_is_given_up(network, eventually):
    net = network()
    net.topic("t")
    client = net.client()
    client.send_bytes(net.fetch_frame("t", max_wait_ms=60_000))
    eventually(lambda: in_flight(net) == 1)
    shut(client)
    assert client.closed_by_broker()
    eventually(lambda: net.counters()["connections"]["closed_by_peer"] == 1)


def test_a_waiting_fetch_with_a_request_behind_it_is_answered_to_a_peer_that_sends_no_more(network, eventually):
    net = network()
    log = net.topic("t")
    client = net.client()
    client.send_bytes(net.fetch_frame("t", max_wait_ms=60_000, correlation_id=1) + client.frame(b"x", correlation_id=2))
    eventually(lambda: in_flight(net) == 1)
    shut(client)
    assert client.silent()
    log.append_as_leader(net.batch(b"v"))
    assert client.receive()[0] == 1
    assert client.receive() == (2, b"x")
    assert client.closed_by_broker()


def test_a_waiting_produce_is_answered_to_a_peer_that_sends_no_more(network, eventually):
    net = network()
    log = net.topic("t", isr=(1, 2))
    client = net.client()
    client.send_bytes(net.produce_frame("t", net.batch(b"v"), acks=-1))
    eventually(lambda: in_flight(net) == 1)
    shut(client)
    assert client.silent()
    log.follower_position(2, 1)
    assert net.produced(client.receive()[1]).error_code == 0
    assert client.closed_by_broker()


def test_a_question_is_answered_for_a_peer_that_sends_no_more(network, eventually):
    net = network()
    net.topic("t")
    net.plane.authorizer_epoch = 1
    requests: list[Any] = []
    net.handler = requests.append
    client = net.client()
    client.send_bytes(net.produce_frame("t", net.batch(b"v")))
    request = eventually(lambda: requests).pop()
    shut(client)
    assert client.silent()
    request.answer_authorization([True])
    assert net.produced(client.receive()[1]).error_code == 0


def test_a_peer_that_has_gone_is_no_peer_that_sends_no_more(network, eventually):
    """Whatever waits, and though there is another request behind it."""
    net = network()
    net.topic("t", isr=(1, 2))
    kept: list[Any] = []
    net.handler = kept.append
    waits = net.fetch_frame("t", max_wait_ms=60_000)
    for data in (waits, waits + waits, net.produce_frame("t", net.batch(b"v"), acks=-1), None):
        client = net.client()
        client.send_bytes(client.frame(b"x") if data is None else data)
        eventually(lambda: in_flight(net) == 1)
        client.reset()
        eventually(lambda: in_flight(net) == 0)
    kept.clear()


@pytest.mark.parametrize("size", [0, 3])
def test_a_peer_that_ends_between_requests_or_within_a_size_is_closed(network, eventually, size):
    net = network()
    client = net.client()
    client.ask(b"x")
    client.send_bytes(bytes(size))
    shut(client)
    assert client.closed_by_broker()
    eventually(lambda: net.counters()["connections"]["closed_by_peer"] == 1)
    assert net.lines() == []


def test_all_that_came_before_the_end_is_served(network):
    net = network()
    client = net.client()
    client.send_bytes(b"".join(client.frame(b"%d" % number, correlation_id=number) for number in range(200)))
    shut(client)
    assert [client.receive() for _ in range(200)] == [(number, b"%d" % number) for number in range(200)]
    assert client.closed_by_broker()


def test_a_connection_that_is_not_here_is_not_closed(network, eventually):
    net = network()
    client = net.client()
    client.ask(b"x")
    for connection in (0, -1, 2, 1 << 40):
        net.server.close_connection(connection)
    assert client.ask(b"y") == b"y"
    net.server.close_connection(1)
    net.server.close_connection(1)
    assert client.closed_by_broker()
    eventually(lambda: net.counters()["connections"]["closed_by_broker"] == 1)


# ---- room for brokers ----


def test_room_is_made_by_a_client_and_not_by_an_older_broker(network, eventually):
    net = network(
        listeners=("CLIENTS", "BROKERS"), inter_broker_listener_name="BROKERS", max_connections=3, num_network_threads=1
    )
    first = net.client("BROKERS")
    first.ask(b"x")
    clients = [net.client("CLIENTS") for _ in range(2)]
    for client in clients:
        client.ask(b"x")
    clients[0].ask(b"more lately")
    for left in ([clients[0]], []):
        broker = net.client("BROKERS")
        assert broker.ask(b"x") == b"x"
        gone = clients[1] if left else clients[0]
        assert gone.closed_by_broker()
        for each in [first, *left]:
            assert each.ask(b"x") == b"x"
    # Brokers among themselves are not bounded by it.
    broker = net.client("BROKERS")
    assert broker.ask(b"x") == b"x" and first.ask(b"x") == b"x"
    assert net.counters()["connections"]["closed_excess"] == 2
    assert net.counters()["listeners"] == {"CLIENTS": 0, "BROKERS": 4}


# ---- principals ----


def asking(network: Any) -> Any:
    return network(listeners=("A",), listener_security={"A": ListenerSecurity(ask_principal=True)})


@pytest.mark.parametrize("size", [1, 100_000])
def test_a_principal_is_asked_for_before_the_first_request_is_served(network, eventually, size):
    net = asking(network)
    seen: list[tuple[Any, ...]] = []
    held: list[Any] = []

    def handler(request: Any) -> None:
        seen.append((request.ask_kind, request.stage, request.principal, len(request.body)))
        if request.ask_kind == ASK_PRINCIPAL:
            held.append(request)
        else:
            request.reply(request.body)

    net.handler = handler
    client = net.client("A")
    client.send(b"x" * size)
    question = eventually(lambda: held).pop()
    assert (question.correlation_id, question.client_id, question.peer_certificate) == (0, None, None)
    assert client.silent()
    question.authenticated("User:mapped")
    assert client.receive()[1] == b"x" * size
    assert client.ask(b"y") == b"y"
    assert seen == [
        (ASK_PRINCIPAL, "principal", "User:ANONYMOUS", 0),
        (None, "ready", "User:mapped", size),
        (None, "ready", "User:mapped", 1),
    ]
    assert {name: each for name, each in net.counters()["authentication"]["A"].items() if each} == {"authenticated": 1}


def test_a_connection_without_a_principal_is_closed(network, eventually):
    net = asking(network)
    net.handler = lambda request: request.authentication_failed(delay_ms=0, reason="nobody")
    client = net.client("A")
    port = client.socket.getsockname()[1]
    assert client.closed_by_broker()
    assert {name: each for name, each in net.counters()["authentication"]["A"].items() if each} == {"failed": 1}
    [line] = eventually(net.lines)
    assert line == f"Failed authentication of connection 1 from 127.0.0.1:{port}: nobody"


def test_a_question_for_a_principal_wants_no_reply(network, eventually):
    net = asking(network)
    held: list[Any] = []
    net.handler = held.append
    client = net.client("A")
    question = eventually(lambda: held).pop()
    for call in (lambda: question.reply(b""), question.no_reply, question.resume):
        with pytest.raises(RuntimeError, match="asks for a decision of kind"):
            call()
    question.authenticated("User:x")
    for call in (lambda: question.authenticated("User:y"), question.authentication_failed, question.close):
        with pytest.raises(RuntimeError, match="was answered already"):
            call()
    net.handler = net.echo
    assert client.ask(b"x") == b"x"
