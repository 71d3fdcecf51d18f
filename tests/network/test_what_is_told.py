"""What is told of requests and connections: counters, times, records of the request log, log lines."""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest

from kafkapy._speedups.base.event_queue import CONNECTION_CLOSED, LOG_LINE, REQUEST
from kafkapy._speedups.network.connection import LOGGER_NAMES
from kafkapy._speedups.network.request_log import LAYOUT
from kafkapy.network.socket_server import ListenerSecurity

PRODUCE, FETCH, ECHO = 0, 1, 3
FIELDS = (
    "key", "version", "correlation", "listener", "request_bytes", "response_bytes", "local_ns", "remote_ns",
    "total_ns", "body_size", "client", "host", "principal", "copied",
)  # fmt: skip
PROCESSOR, ACCEPTOR, REQUEST_CHANNEL = (f"kafka.network.{each}" for each in ("Processor", "Acceptor", "RequestChannel"))


class Told:
    """The events of a network, kept in the order of their coming."""

    def __init__(self, net: Any) -> None:
        self.net, self.events = net, []
        net._drain_events = self.drain

    def drain(self) -> None:
        with self.net._events_lock:
            for kind, handle, argument, text in self.net.events.drain():
                self.events.append((kind, handle, argument, bytes(text)))
                if kind not in (LOG_LINE, REQUEST, CONNECTION_CLOSED):
                    self.net.logs[handle].prepare_segment()

    def of(self, kind: int) -> list[Any]:
        self.drain()
        return [each[1:] for each in list(self.events) if each[0] == kind]

    def lines(self) -> list[tuple[int, str, str]]:
        """(level, logger, text)."""
        found = self.of(LOG_LINE)
        return [(argument // 100, LOGGER_NAMES[argument % 100], text.decode()) for _, argument, text in found]

    def records(self) -> list[tuple[dict[str, int], list[bytes]]]:
        """The numbers of each record, and its texts: client id, host, principal, body."""
        found = []
        for _, _, text in self.of(REQUEST):
            fields = dict(zip(FIELDS, LAYOUT.unpack_from(text), strict=True))
            at, parts = LAYOUT.size, []
            for name in ("client", "host", "principal", "copied"):
                size = max(fields[name], 0)
                parts.append(text[at : at + size])
                at += size
            assert at == len(text)
            found.append((fields, parts))
        return found


def own_id(net: Any, client: Any) -> int:
    port = client.socket.getsockname()[1]
    return next(each["id"] for each in net.server.connections() if each["peer_port"] == port)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_each_request_of_the_data_plane_is_recorded_where_the_log_is_on(network, eventually, level):
    net = network()
    told = Told(net)
    net.topic("t")
    net.plane.request_log_level = level
    client = net.client()
    frame = net.produce_frame("t", net.batch(b"v"), correlation_id=77)
    client.send_bytes(frame)
    _, payload = client.receive()
    client.ask(b"of python")
    if level == 0:
        assert told.records() == []
        return
    [(fields, parts)] = eventually(told.records)
    numbers = {name: fields.pop(name) for name in ("local_ns", "total_ns", "remote_ns")}
    body = len(frame) - 4 - len(b"\0\0\0\11\0\0\0\0\0\1c\0")
    assert fields == {
        "key": 0, "version": 9, "correlation": 77, "listener": 0, "request_bytes": len(frame),
        "response_bytes": 8 + len(payload), "body_size": body, "client": 1, "host": 9, "principal": 0,
        "copied": body if level == 2 else -1,
    }  # fmt: skip
    assert 0 < numbers["local_ns"] <= numbers["total_ns"] and numbers["remote_ns"] == 0
    assert parts[:3] == [b"c", b"127.0.0.1", b""]
    assert len(parts[3]) == (body if level == 2 else 0)
    [(connection, argument, _)] = told.of(REQUEST)
    assert (connection, argument) == (own_id(net, client), 0)


@pytest.mark.parametrize(("size", "copied"), [(16 * 1024, True), (16 * 1024 + 1, False)])
def test_a_large_body_is_not_copied_into_its_record(network, eventually, size, copied):
    net = network()
    told = Told(net)
    net.topic("t")
    net.plane.request_log_level = 2
    client = net.client()
    value = 15_000
    while True:
        frame = net.produce_frame("t", net.batch(b"v" * value))
        body = len(frame) - 4 - 12
        if body == size:
            break
        value += size - body
    client.send_bytes(frame)
    client.receive()
    [(fields, parts)] = eventually(told.records)
    assert (fields["body_size"], fields["copied"]) == (size, size if copied else -1)
    # The batch has its offset and leader epoch by now.
    assert len(parts[3]) == (size if copied else 0)


def test_a_request_without_a_reply_and_one_that_waited_are_recorded(network, eventually):
    net = network()
    told = Told(net)
    net.topic("t")
    net.plane.request_log_level = 1
    client, producer = net.client(), net.client()
    producer.send_bytes(net.produce_frame("t", net.batch(b"v"), acks=0))
    [(fields, _)] = eventually(told.records)
    assert (fields["key"], fields["response_bytes"], fields["remote_ns"]) == (0, 0, 0)
    assert fields["total_ns"] >= fields["local_ns"] > 0
    client.send_bytes(net.fetch_frame("t", 1, max_wait_ms=30))
    client.receive()
    fields, _ = eventually(lambda: len(told.records()) > 1 and told.records()[1])
    assert fields["key"] == 1
    # It waited for the most of its time, and not for nothing.
    assert fields["remote_ns"] >= 20_000_000
    assert fields["total_ns"] >= fields["remote_ns"] + fields["local_ns"]


def test_a_client_without_an_id_has_none_in_its_record(network, eventually):
    net = network()
    told = Told(net)
    net.topic("t")
    net.plane.request_log_level = 1
    client = net.client()
    frame = net.fetch_frame("t")
    body = frame[4 + 8 + 2 + 1 :]
    header = frame[4 : 4 + 8]
    data = header + struct.pack(">h", -1) + body
    client.send_bytes(struct.pack(">i", len(data)) + data)
    client.receive()
    [(fields, parts)] = eventually(told.records)
    assert (fields["client"], parts[0], fields["request_bytes"]) == (-1, b"", len(data) + 4)


# ---- lines ----


def test_lines_have_the_level_and_the_logger_of_what_they_tell(network, eventually):
    net = network(max_connections_per_ip=4)
    told = Told(net)
    seen: list[Any] = []

    def told_by(client: Any, *more: str) -> tuple[int, str, str]:
        assert client.closed_by_broker()
        eventually(lambda: len(told.lines()) == len(seen) + 1)
        seen.append(told.lines()[-1])
        eventually(lambda: not net.server.connections())
        return seen[-1]

    def where(client: Any) -> str:
        return f"from 127.0.0.1:{client.socket.getsockname()[1]}"

    net.handler = lambda request: None
    client = net.client()
    client.send()
    level, logger, text = told_by(client)
    assert (level, logger) == (40, REQUEST_CHANNEL)
    assert "A request (api key 3, version 5) of connection 1 was dropped without a response" in text
    net.handler = lambda request: request.close("it says nothing")
    client = net.client()
    port = where(client)
    client.send()
    assert told_by(client) == (20, REQUEST_CHANNEL, f"Connection 2 {port} is closed: it says nothing")
    client = net.client()
    port = where(client)
    client.send_bytes(struct.pack(">i", -5))
    what = "a request of -5 bytes is not between 0 and 1048576 (socket.request.max.bytes)"
    assert told_by(client) == (30, PROCESSOR, f"Connection 3 {port} is closed: {what}")
    client = net.client()
    port = where(client)
    client.send(key=99)
    assert told_by(client) == (20, PROCESSOR, f"Connection 4 {port} is closed: API key 99 is not known")
    client = net.client()
    port = where(client)
    client.send(key=ECHO, version=77)
    what = "version 77 of API key 3 is not served"
    assert told_by(client) == (20, PROCESSOR, f"Connection 5 {port} is closed: {what}")
    client = net.client()
    port = where(client)
    client.send_bytes(struct.pack(">ih", 2, 3))
    assert told_by(client) == (20, PROCESSOR, f"Connection 6 {port} is closed: the request header is truncated")
    net.handler = net.echo
    others = [net.client() for _ in range(4)]
    for each in others:
        each.ask()
    client = net.client()
    assert client.closed_by_broker()
    eventually(lambda: len(told.lines()) == len(seen) + 1)
    assert told.lines()[-1] == (
        20,
        ACCEPTOR,
        "Address 127.0.0.1 has its maximum of 4 connections (max.connections.per.ip); the broker rejects another one",
    )


def test_a_full_broker_is_told_once(network, eventually):
    net = network(max_connections=1)
    told = Told(net)
    net.client().ask()
    waiting = [net.client() for _ in range(3)]
    eventually(told.lines)
    assert all(client.silent() for client in waiting)
    text = "New connections wait: the listener or the broker has reached max.connections"
    assert told.lines() == [(30, ACCEPTOR, text)]


def test_lines_of_one_second_are_bounded_and_none_is_lost_in_silence(network, eventually):
    """What is left out is counted in a line of a later second."""
    net = network()
    told = Told(net)
    sent = 0

    def provoke() -> None:
        nonlocal sent
        client = net.client()
        client.send(key=99)
        assert client.closed_by_broker()
        sent += 1

    for _ in range(40):
        provoke()

    def all_are_told() -> bool:
        # Each of them may be the first one of a second.
        provoke()
        texts = [text for *_, text in told.lines()]
        notes = [text for text in texts if text.endswith(" similar lines were suppressed")]
        left_out = sum(int(text.split()[0]) for text in notes)
        assert all(level == 20 and logger == PROCESSOR for level, logger, _ in told.lines())
        return len(texts) - len(notes) + left_out == sent

    eventually(all_are_told)


def test_the_end_of_a_connection_is_announced_where_somebody_has_data_of_it(network, eventually):
    net = network()
    told = Told(net)
    net.handler = lambda request: (setattr(request, "connection_data", 1), request.reply(b""))
    quiet, client = net.client(), net.client()
    client.ask()
    connection = own_id(net, client)
    client.close()
    quiet.close()
    [(handle, _, text)] = eventually(lambda: told.of(CONNECTION_CLOSED))
    assert (handle, text) == (connection, b"")
    eventually(lambda: not net.server.connections())
    assert len(told.of(CONNECTION_CLOSED)) == 1


# ---- connections ----


def test_connections_are_listed_with_their_addresses_and_numbers(network, eventually):
    began_ms = time.time_ns() // 1_000_000
    net = network(listeners=("CLIENTS", "BROKERS"), inter_broker_listener_name="BROKERS")
    requests: list[Any] = []
    one = net.client("CLIENTS")
    one.ask(b"x" * 100)
    two = net.client("BROKERS", source="127.0.0.2")
    two.ask()
    net.handler = requests.append
    two.send(b"waits")
    eventually(lambda: requests)
    first, second = sorted(net.server.connections(), key=lambda each: each["id"])
    for each, client, listener, host in ((first, one, "CLIENTS", "127.0.0.1"), (second, two, "BROKERS", "127.0.0.2")):
        assert began_ms <= each.pop("created_ms") <= time.time_ns() // 1_000_000
        assert (each.pop("peer_host"), each.pop("peer_port")) == (host, port_of(client))
        assert (each.pop("local_host"), each.pop("local_port")) == ("127.0.0.1", net.server.bound_port(listener))
    common = {"software_name": "", "software_version": "", "principal": "", "tls_protocol": "", "cipher_suite": ""}
    assert {name: first[name] for name in common} == {name: second[name] for name in common} == common
    frame = len(one.frame(b"x" * 100))
    assert (first["id"], first["listener_index"], first["privileged"]) == (1, 0, False)
    assert (second["id"], second["listener_index"], second["privileged"]) == (2, 1, True)
    assert (first["bytes_in"], first["requests"], first["in_flight"]) == (frame, 1, False)
    assert (second["requests"], second["in_flight"]) == (2, True)
    [request] = requests
    assert request.privileged and request.listener_index == 1 and request.listener_name == "BROKERS"
    assert (request.peer_host, request.local_host) == ("127.0.0.2", "127.0.0.1")
    assert not request.token_authenticated
    requests.clear()
    request.reply(b"")
    two.receive()


def port_of(client: Any) -> int:
    port: int = client.socket.getsockname()[1]
    return port


def test_ends_of_connections_are_counted_by_their_reason(network, eventually):
    net = network()
    clients = [net.client() for _ in range(4)]
    for client in clients:
        client.ask()
    clients[0].close()
    clients[1].reset()
    net.server.close_connection(own_id(net, clients[2]))
    eventually(lambda: net.counters()["connections"]["current"] == 1)
    expected = {
        "current": 1, "created": 4, "refused_per_ip": 0, "closed_by_peer": 2, "closed_by_broker": 1, "closed_idle": 0,
        "closed_excess": 0, "closed_at_stop": 0,
    }  # fmt: skip
    assert net.counters()["connections"] == expected
    net.server.shutdown(0.1)
    assert net.server.registry.counters() == expected | {"current": 0, "closed_at_stop": 1}


# ---- requests ----


def count(parts: dict[str, Any]) -> dict[str, int]:
    """How many requests each part of the time counts."""
    return {name: sum(histogram) for name, (_, histogram) in parts.items()}


def test_the_parts_of_a_requests_time_are_counted_where_it_has_them(network, eventually):
    net = network()
    net.topic("t")
    client = net.client()
    for _ in range(3):
        client.ask(b"x")
    client.send_bytes(net.produce_frame("t", net.batch(b"v")))
    client.receive()
    client.send_bytes(net.produce_frame("t", net.batch(b"v"), acks=0) + net.fetch_frame("t"))
    client.receive()
    client.send_bytes(net.fetch_frame("t", 2, max_wait_ms=20))
    client.receive()
    eventually(lambda: count(net.counters()["times"][FETCH])["send"] == 2)
    times = net.counters()["times"]
    none = dict.fromkeys(("queue", "local", "remote", "response_queue", "send", "throttle"), 0)
    assert count(times[ECHO]) == none | {"queue": 3, "local": 3, "response_queue": 3, "send": 3}
    assert count(times[PRODUCE]) == none | {"local": 2, "send": 1}
    assert count(times[FETCH]) == none | {"local": 2, "remote": 1, "send": 2}
    total, _ = times[FETCH]["remote"]
    apis = net.counters()["apis"]
    assert apis[FETCH]["remote_ns"] == total >= 10_000_000
    assert apis[FETCH]["local_ns"] == times[FETCH]["local"][0] > 0
    assert apis[ECHO]["queue_ns"] == times[ECHO]["queue"][0] > 0
    for key, requests in ((ECHO, 3), (PRODUCE, 2), (FETCH, 2)):
        assert apis[key]["requests"] == sum(apis[key]["total_histogram"]) == requests
        assert apis[key]["total_ns"] >= apis[key]["local_ns"]
        assert apis[key]["errors"] == 0
    assert apis[ECHO]["request_bytes"] == 3 * len(client.frame(b"x"))
    assert apis[ECHO]["response_bytes"] == 3 * (4 + 4 + 1)


def test_waiting_requests_are_counted_until_they_are_answered_or_given_up(network, eventually):
    net = network(num_network_threads=1)
    log = net.topic("t", isr=(1, 2))
    clients = [net.client() for _ in range(4)]

    def delayed() -> dict[int, int]:
        [processor] = net.counters()["processors"]
        return {key: each for key, each in processor["delayed"].items() if each}

    assert set(net.counters()["processors"][0]["delayed"]) == {PRODUCE, FETCH}
    for client in clients[:3]:
        client.send_bytes(net.fetch_frame("t", max_wait_ms=60_000))
    clients[3].send_bytes(net.produce_frame("t", net.batch(b"v"), acks=-1))
    eventually(lambda: delayed() == {FETCH: 3, PRODUCE: 1})
    clients[0].close()
    eventually(lambda: delayed() == {FETCH: 2, PRODUCE: 1})
    log.follower_position(2, 1)
    for client in clients[1:]:
        client.receive()
    eventually(lambda: delayed() == {})
    assert net.counters()["processors"][0]["connections"] == 3


def test_a_request_that_python_ends_with_its_connection_is_an_error(network, eventually):
    net = network()
    net.handler = lambda request: request.close()
    client = net.client()
    client.send()
    assert client.closed_by_broker()
    eventually(lambda: net.counters()["connections"]["current"] == 0)
    assert net.counters()["apis"][ECHO]["errors"] == 1
    channel = net.counters()["request_channel"]
    assert channel == {"queue_size": 0, "queue_capacity": 500, "requests": 1, "full": 0}


def test_what_is_asked_without_quotas_costs_nothing(network, eventually):
    net = network()
    seen: list[Any] = []

    def handler(request: Any) -> None:
        seen.append((request.counts_time, request.charge_time(10**9), request.charge_time(10**9, True)))
        assert 0 < time.monotonic_ns() - request.received_ns < 10 * 10**9
        assert repr(request) == (
            f"<NetworkRequest api_key=3 version=5 correlation_id=1 connection={request.connection_id} answered=False>"
        )
        assert (request.stage, request.scram, request.tokens_follow) == ("ready", None, False)
        assert (request.tls_protocol, request.cipher_suite, request.peer_certificate) == ("", "", None)
        assert (request.security_protocol.name, request.unsupported_version) == ("PLAINTEXT", False)
        assert (request.client_software_name, request.client_software_version) == ("", "")
        request.throttle(0)
        request.reply(b"")

    net.handler = handler
    client = net.client()
    client.ask()
    client.ask()
    assert seen == [(False, 0, 0)] * 2
    assert count(net.counters()["times"][ECHO])["throttle"] == 0


def test_a_throttled_connection_has_its_reply_and_waits_with_the_next(network, eventually):
    net = network()
    mutes = iter([60_000, 0])

    def handler(request: Any) -> None:
        request.throttle(next(mutes))
        request.reply(request.body)

    net.handler = handler
    client, other = net.client(), net.client()
    assert client.ask(b"one") == b"one"
    client.send(b"two")
    assert client.silent()
    assert other.ask(b"three") == b"three"
    eventually(lambda: sum(net.counters()["times"][ECHO]["throttle"][1]) == 1)
    assert net.counters()["times"][ECHO]["throttle"][0] == 60_000 * 1_000_000


# ---- authentication ----


def test_ends_of_authentications_are_counted_by_listener(network, eventually):
    security = {"SASL": ListenerSecurity(sasl=True, connection_failed_authentication_delay_ms=0)}
    net = network(listeners=("SASL", "PLAINTEXT"), listener_security=security)
    told = Told(net)

    def handler(request: Any) -> None:
        if bytes(request.body) == b"right":
            request.authenticated("User:alice", reply=b"")
        elif bytes(request.body) == b"wrong":
            request.authentication_failed(b"no", reason="it is wrong")
        else:
            net.echo(request)

    net.handler = handler
    nothing = dict.fromkeys(
        ("authenticated", "failed", "reauthenticated", "reauthentication_failed", "expired", "timed_out"), 0
    )
    assert net.counters()["authentication"] == {"SASL": nothing}
    good, bad, early = (net.client("SASL") for _ in range(3))
    how = {"key": 36, "version": 1}
    assert good.ask(b"right", **how) == b""
    assert good.ask(b"right", **how) == b""
    assert good.ask(b"wrong", **how) == b"no"
    assert good.closed_by_broker()
    port = port_of(bad)
    assert bad.ask(b"wrong", **how) == b"no"
    assert bad.closed_by_broker()
    early.send()
    assert early.closed_by_broker()
    eventually(lambda: len(told.lines()) == 3)
    assert net.counters()["authentication"] == {
        "SASL": nothing | {"authenticated": 1, "reauthenticated": 1, "reauthentication_failed": 1, "failed": 2}
    }
    text = f"Failed authentication of connection 2 from 127.0.0.1:{port}: it is wrong"
    assert (20, REQUEST_CHANNEL, text) in told.lines()
    level, logger, text = told.lines()[-1]
    assert (level, logger) == (20, PROCESSOR)
    assert text.endswith("a request with API key 3 came before the SASL authentication")
