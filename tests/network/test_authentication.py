"""SASL listeners: what passes before the authentication, how it ends, sessions that end, and authentication again."""

from __future__ import annotations

import ssl
import struct
import time

import pytest
from certificates import localhost, shared_ca

from kafkapy._speedups.base.tls import TlsContext
from kafkapy._speedups.network.network_request import SASL_TOKEN
from kafkapy.network.socket_server import ListenerSecurity

HANDSHAKE, VERSIONS, AUTHENTICATE = 17, 18, 36


class Exchange:
    """A Python side that authenticates who sends b"secret", and serves the rest."""

    def __init__(self, net, **ending):
        self.net, self.ending, self.seen = net, ending, []
        net.handler = self.handle

    def handle(self, request):
        self.seen.append((request.api_key, request.stage, bytes(request.body), request.principal))
        if request.api_key == HANDSHAKE:
            request.tokens_follow = request.api_version == 0
            request.reply(b"mechanisms")
        elif request.api_key in (AUTHENTICATE, SASL_TOKEN):
            if bytes(request.body) == b"secret":
                request.authenticated("User:alice", reply=b"welcome", **self.ending)
            elif bytes(request.body) == b"more":
                (request.reply if request.api_key == AUTHENTICATE else request.reply_frame)(b"go on")
            else:
                request.authentication_failed(b"no", delay_ms=self.ending.get("delay_ms"), reason="wrong secret")
        else:
            self.net.echo(request)


def sasl_network(network, tls=None, **security):
    return network(listeners=("SASL",), listener_security={"SASL": ListenerSecurity(tls=tls, sasl=True, **security)})


def log_in(client, version=1):
    assert client.ask(b"", key=HANDSHAKE, version=version) == b"mechanisms"
    if version:
        return client.ask(b"secret", key=AUTHENTICATE, version=1)
    client.send_bytes(struct.pack(">i", 6) + b"secret")
    size = struct.unpack(">i", client._exactly(4))[0]
    return client._exactly(size)


def counters(net):
    return net.counters()["authentication"]["SASL"]


def test_requests_are_served_after_the_exchange(network):
    net = sasl_network(network)
    exchange = Exchange(net)
    client = net.client("SASL")
    assert client.ask(b"v", key=VERSIONS, version=0) == b"v"
    assert client.ask(b"", key=HANDSHAKE, version=1) == b"mechanisms"
    assert client.ask(b"more", key=AUTHENTICATE, version=1) == b"go on"
    assert client.ask(b"secret", key=AUTHENTICATE, version=1) == b"welcome"
    assert client.ask(b"hello") == b"hello"
    assert exchange.seen == [
        (VERSIONS, "sasl", b"v", "User:ANONYMOUS"),
        (HANDSHAKE, "sasl", b"", "User:ANONYMOUS"),
        (AUTHENTICATE, "sasl", b"more", "User:ANONYMOUS"),
        (AUTHENTICATE, "sasl", b"secret", "User:ANONYMOUS"),
        (3, "ready", b"hello", "User:alice"),
    ]
    assert counters(net)["authenticated"] == 1 and counters(net)["failed"] == 0


def test_after_the_first_handshake_version_tokens_have_no_header(network):
    net = sasl_network(network)
    exchange = Exchange(net)
    client = net.client("SASL")
    assert client.ask(b"", key=HANDSHAKE, version=0) == b"mechanisms"
    # Tokens that look like requests are tokens still.
    client.send_bytes(struct.pack(">i", 4) + b"more" + struct.pack(">i", 6) + b"secret")
    assert client._exactly(4 + 5) == struct.pack(">i", 5) + b"go on"
    assert client._exactly(4 + 7) == struct.pack(">i", 7) + b"welcome"
    assert client.ask(b"hello") == b"hello"
    assert [seen[:2] for seen in exchange.seen] == [
        (HANDSHAKE, "sasl"),
        (SASL_TOKEN, "sasl"),
        (SASL_TOKEN, "sasl"),
        (3, "ready"),
    ]


def test_a_first_frame_without_header_is_a_token_where_the_listener_says_so(network):
    for raw_tokens in (True, False):
        net = sasl_network(network, raw_tokens=raw_tokens)
        exchange = Exchange(net)
        client = net.client("SASL")
        client.send_bytes(struct.pack(">i", 4) + b"more")
        if raw_tokens:
            assert client._exactly(4 + 5) == struct.pack(">i", 5) + b"go on"
            assert exchange.seen[0][0] == SASL_TOKEN
        else:
            assert client.closed_by_broker() and exchange.seen == []


@pytest.mark.parametrize("key", [0, 1, 3])
def test_any_other_request_before_the_authentication_ends_the_connection(network, key, eventually):
    net = sasl_network(network)
    exchange = Exchange(net)
    client = net.client("SASL")
    client.send(b"body" * 5000, key=key, version=12 if key == 1 else 9)
    assert client.closed_by_broker()
    assert exchange.seen == []
    lines = eventually(net.lines)
    assert len(lines) == 1 and f"API key {key} came before the SASL authentication" in lines[0]
    assert counters(net) | {"failed": 1, "authenticated": 0} == counters(net)
    assert net.counters()["apis"].get(key, {}).get("requests", 0) == 0


def test_requests_behind_the_exchange_in_the_same_bytes_wait_for_it(network):
    net = sasl_network(network)
    log = net.topic("t")
    Exchange(net)
    client = net.client("SASL")
    client.send_bytes(
        client.frame(b"", key=HANDSHAKE, version=1, correlation_id=1)
        + client.frame(b"secret", key=AUTHENTICATE, version=1, correlation_id=2)
        + net.produce_frame("t", net.batch(b"v"), correlation_id=3)
    )
    assert [client.receive()[0] for _ in range(3)] == [1, 2, 3]
    assert b"v" in log.read(0, 1000)[0]


def test_a_failure_is_answered_late_and_closes(network, eventually):
    net = sasl_network(network, connection_failed_authentication_delay_ms=200)
    Exchange(net)
    client = net.client("SASL")
    client.ask(b"", key=HANDSHAKE, version=1)
    client.send(b"wrong", key=AUTHENTICATE, version=1)
    client.send(b"secret", key=AUTHENTICATE, version=1)  # never read
    assert client.silent(0.05)
    assert client.receive()[1] == b"no"
    assert client.closed_by_broker()
    assert counters(net)["failed"] == 1 and counters(net)["authenticated"] == 0
    assert any("wrong secret" in line for line in eventually(net.lines))
    assert eventually(lambda: net.server.connections() == [])


def test_a_failure_with_no_delay_is_answered_at_once(network):
    net = sasl_network(network)
    Exchange(net, delay_ms=0)
    client = net.client("SASL")
    assert client.ask(b"wrong", key=AUTHENTICATE, version=1) == b"no"
    assert client.closed_by_broker()


def test_a_client_that_goes_before_its_late_answer_leaves_nothing(network, eventually):
    net = sasl_network(network, connection_failed_authentication_delay_ms=100)
    Exchange(net)
    for _ in range(10):
        client = net.client("SASL")
        client.send(b"wrong", key=AUTHENTICATE, version=1)
        eventually(lambda: any(item["requests"] for item in net.server.connections()))
        client.reset()
        eventually(lambda: not net.server.connections())
    client = net.client("SASL")
    assert log_in(client) == b"welcome"


def test_a_stop_does_not_wait_for_late_answers(network, eventually):
    net = sasl_network(network, connection_failed_authentication_delay_ms=60_000)
    Exchange(net)
    client = net.client("SASL")
    client.send(b"wrong", key=AUTHENTICATE, version=1)
    eventually(lambda: counters(net)["failed"] == 1)
    net.server.begin_shutdown(60.0)
    assert client.closed_by_broker()


def test_frames_are_small_before_the_authentication_and_large_after_it(network, eventually):
    net = sasl_network(network, sasl_server_max_receive_size=1000)
    Exchange(net)
    client = net.client("SASL")
    assert log_in(client) == b"welcome"
    assert client.ask(b"x" * 100_000) == b"x" * 100_000
    early = net.client("SASL")
    early.send(b"x" * 1000, key=AUTHENTICATE, version=1)
    assert early.closed_by_broker()
    assert "sasl.server.max.receive.size" in eventually(net.lines)[0]


def test_clients_that_are_not_authenticated_take_no_memory_from_the_pool(network, eventually):
    net = sasl_network(network)
    pool = net.server.memory_pool
    Exchange(net)
    for _ in range(20):
        client = net.client("SASL")
        client.send_bytes(client.frame(b"x" * 400_000, key=AUTHENTICATE, version=1)[:100_000])
    eventually(lambda: sum(item["bytes_in"] for item in net.server.connections()) == 20 * 100_000)
    assert pool.used == 0
    served = net.client("SASL")
    log_in(served)
    served.send_bytes(served.frame(b"x" * 400_000)[:100_000])
    eventually(lambda: pool.used >= 400_000)


def test_who_says_nothing_is_closed(network, eventually):
    net = sasl_network(network, setup_timeout_ms=100)
    Exchange(net)
    silent, half = net.client("SASL"), net.client("SASL")
    half.send(b"", key=HANDSHAKE, version=1)
    assert silent.closed_by_broker()
    eventually(lambda: not net.server.connections())
    assert counters(net)["timed_out"] == 2
    assert any("not authenticated within 100 ms" in line for line in net.lines())
    while True:
        logged_in = net.client("SASL")
        try:
            log_in(logged_in)
            break
        except (EOFError, ConnectionError):  # a machine so busy that this took too long
            pass
    # The time of a connection behind it has passed: its own one has too, and does not count any more.
    assert net.client("SASL").closed_by_broker()
    assert logged_in.ask(b"goes on") == b"goes on"


# ---- sessions --------------------------------------------------------------------------------------------------------


def test_large_bodies_within_a_session_keep_their_bytes_when_others_come(network, eventually):
    """All of them came through the one read buffer of their thread."""
    net = network(listeners=("SASL",), listener_security={"SASL": ListenerSecurity(sasl=True)}, num_network_threads=1)
    exchange = Exchange(net, session_end_ms=int(time.time() * 1000) + 600_000)
    clients = [net.client("SASL") for _ in range(4)]
    for client in clients:
        log_in(client)
    requests = []
    net.handler = requests.append
    for index, client in enumerate(clients):
        client.send(b"%d" % index * 20_000)
        eventually(lambda count=index + 1: len(requests) == count)
    assert [bytes(request.body) for request in requests] == [b"%d" % index * 20_000 for index in range(4)]
    net.handler = exchange.handle
    for request in requests:
        request.reply(b"")
    assert [client.receive()[1] for client in clients] == [b""] * 4


def test_after_the_end_of_its_session_a_connection_may_only_authenticate_again(network, eventually):
    net = sasl_network(network)
    exchange = Exchange(net, session_end_ms=int(time.time() * 1000) - 1)
    client, forgetful = net.client("SASL"), net.client("SASL")
    for each in (client, forgetful):
        log_in(each)
    exchange.ending = {"session_end_ms": int(time.time() * 1000) + 600_000}
    client.ask(b"", key=HANDSHAKE, version=1)
    assert client.ask(b"secret", key=AUTHENTICATE, version=1) == b"welcome"
    assert client.ask(b"hello" * 4000) == b"hello" * 4000
    forgetful.send(b"too late")
    assert forgetful.closed_by_broker()
    now = counters(net)
    assert (now["authenticated"], now["reauthenticated"], now["expired"]) == (2, 1, 1)
    assert [seen[1] for seen in exchange.seen if seen[0] == AUTHENTICATE] == ["sasl", "sasl", "ready"]
    assert any("session has expired" in line for line in eventually(net.lines))


def test_a_failed_authentication_again_closes_the_connection(network):
    net = sasl_network(network)
    Exchange(net)
    client = net.client("SASL")
    log_in(client)
    assert client.ask(b"wrong", key=AUTHENTICATE, version=1) == b"no"
    assert client.closed_by_broker()
    assert counters(net)["reauthentication_failed"] == 1 and counters(net)["failed"] == 0


def test_produce_and_fetch_are_served_within_a_session(network):
    net = sasl_network(network)
    log = net.topic("t")
    Exchange(net, session_end_ms=int(time.time() * 1000) + 600_000)
    client = net.client("SASL")
    log_in(client)
    client.send_bytes(net.produce_frame("t", net.batch(b"x" * 100_000)))
    assert net.produced(client.receive()[1]).error_code == 0
    client.send_bytes(net.fetch_frame("t"))
    assert bytes(net.fetched(client.receive()[1]).records) == log.read(0, 1 << 20)[0]


# ---- misuse ----------------------------------------------------------------------------------------------------------


def test_an_authentication_needs_a_reply_and_ends_once(network):
    net = sasl_network(network)
    problems = []

    def handler(request):
        with pytest.raises(ValueError, match="waits for a reply"):
            request.authenticated("User:a")
        request.authenticated("User:a", reply=b"yes", token_authenticated=True)
        with pytest.raises(RuntimeError, match="answered already"):
            request.authentication_failed()
        problems.append(request.token_authenticated)

    net.handler = handler
    assert net.client("SASL").ask(b"secret", key=AUTHENTICATE, version=1) == b"yes"
    assert problems == [True]


def test_a_dropped_exchange_closes_its_connection(network):
    net = sasl_network(network)
    net.handler = lambda request: None
    client = net.client("SASL")
    client.send(b"secret", key=AUTHENTICATE, version=1)
    assert client.closed_by_broker()


def test_a_plaintext_listener_serves_the_same_requests_without_an_exchange(network):
    net = network()
    exchange = Exchange(net)
    client = net.client()
    assert client.ask(b"hello") == b"hello"
    assert client.ask(b"", key=HANDSHAKE, version=1) == b"mechanisms"
    assert exchange.seen[-1][1] == "ready" and net.counters()["authentication"] == {}


# ---- over TLS --------------------------------------------------------------------------------------------------------


def test_sasl_over_tls(network):
    me = localhost()
    tls = TlsContext(True, me.key_der, me.chain, [shared_ca().der], client_auth="requested")
    net = sasl_network(network, tls)
    exchange = Exchange(net)
    client = net.client("SASL", tls=ssl.create_default_context(cadata=shared_ca().der))
    for version in (1, 0):
        client = net.client("SASL", tls=ssl.create_default_context(cadata=shared_ca().der))
        assert log_in(client, version) == b"welcome"
        assert client.ask(b"hello" * 10_000) == b"hello" * 10_000
    assert {seen[1] for seen in exchange.seen} == {"sasl", "ready"}
    assert counters(net)["authenticated"] == 2


@pytest.mark.parametrize("session_end_ms", [0, 1 << 62])
def test_a_session_may_be_longer_than_any_clock_counts(network, session_end_ms):
    net = sasl_network(network)
    Exchange(net, session_end_ms=session_end_ms)
    client = net.client("SASL")
    assert log_in(client) == b"welcome"
    for _ in range(2):
        assert client.ask(b"x") == b"x"


@pytest.mark.parametrize("session_end_ms", [1, -5])
def test_a_session_that_is_over_serves_nothing(network, eventually, session_end_ms):
    net = sasl_network(network)
    exchange = Exchange(net, session_end_ms=session_end_ms)
    client = net.client("SASL")
    assert log_in(client) == b"welcome"
    client.send(b"x")
    assert client.closed_by_broker()
    assert len(exchange.seen) == 2
    assert {name: each for name, each in counters(net).items() if each} == {"authenticated": 1, "expired": 1}
    assert "its session has expired, and it did not authenticate again" in eventually(net.lines)[0]


def test_an_authentication_by_token_is_one_until_the_next(network):
    net = sasl_network(network)
    seen = []
    tokens = iter([True, False])

    def handler(request):
        if request.api_key == AUTHENTICATE:
            request.authenticated("User:alice", reply=b"", token_authenticated=next(tokens))
        else:
            seen.append(request.token_authenticated)
            request.reply(b"")

    net.handler = handler
    client = net.client("SASL")
    for _ in range(2):
        client.ask(b"", key=AUTHENTICATE, version=1)
        client.ask(b"x")
    assert seen == [True, False]


@pytest.mark.parametrize(("delay_ms", "late"), [(None, True), (60_000, True), (0, False), (-1, True)])
def test_a_refusal_waits_for_its_own_delay_or_the_listeners(network, eventually, delay_ms, late):
    net = sasl_network(network, connection_failed_authentication_delay_ms=60_000)
    Exchange(net, delay_ms=delay_ms)
    client = net.client("SASL")
    client.send(b"wrong", key=AUTHENTICATE, version=1)
    eventually(lambda: counters(net)["failed"] == 1)
    if late:
        assert client.silent()
    else:
        assert client.receive()[1] == b"no"
        assert client.closed_by_broker()
