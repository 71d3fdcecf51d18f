"""TLS listeners: handshakes, client certificates, replies of all kinds, reload, and what is no TLS."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import time

import pytest
from certificates import localhost, make_ca, shared_ca

from kafkapy._speedups.base.tls import TlsContext
from kafkapy.network.socket_server import ListenerSecurity


def server_tls(**options):
    me = options.pop("certificate", localhost())
    return TlsContext(True, me.key_der, me.chain, options.pop("trusted", [shared_ca().der]), **options)


def client_tls(tmp_path=None, certificate=None, ca=None):
    context = ssl.create_default_context(cadata=(ca or shared_ca()).der)
    if certificate is not None:
        context.load_cert_chain(*certificate.write(tmp_path, f"client-{random.random()}"))
    return context


@pytest.fixture
def tls_network(network):
    """network(...) whose listener TLS asks for TLS; options of ListenerSecurity and TlsContext apart."""

    def make(security=None, listeners=("TLS",), config=None, **tls):
        secured = ListenerSecurity(tls=server_tls(**tls), **(security or {}))
        return network(listeners=listeners, listener_security={"TLS": secured}, **(config or {}))

    return make


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_requests_of_all_kinds_go_over_tls(tls_network, version):
    net = tls_network()
    log = net.topic("t")
    context = client_tls()
    context.minimum_version = context.maximum_version = version
    client = net.client("TLS", tls=context)
    assert client.ask(b"hello") == b"hello"
    assert client.ask(b"large" * 100_000) == b"large" * 100_000
    client.send_bytes(net.produce_frame("t", net.batch(b"x" * 300_000)))
    assert net.produced(client.receive()[1]).error_code == 0
    client.send_bytes(net.fetch_frame("t"))
    fetched = net.fetched(client.receive()[1])
    assert bytes(fetched.records) == log.read(0, 1 << 20)[0] and b"x" * 300_000 in bytes(fetched.records)
    (connection,) = net.server.connections()
    assert connection["tls_protocol"] == version.name.replace("_", ".")
    assert connection["cipher_suite"].startswith("TLS_")
    assert net.counters()["authentication"]["TLS"]["authenticated"] == 1


def test_many_requests_in_one_record_and_one_request_in_many_records(tls_network):
    net = tls_network()
    client = net.client("TLS", tls=client_tls())
    count = 300
    client.send_bytes(b"".join(client.frame(b"%d" % n, correlation_id=n) for n in range(count)))
    assert [client.receive() for _ in range(count)] == [(n, b"%d" % n) for n in range(count)]
    for byte in client.frame(b"slow"):
        client.send_bytes(bytes([byte]))
    assert client.receive()[1] == b"slow"


def test_a_reply_that_the_client_reads_slowly_arrives_whole(tls_network):
    """The socket is full in the middle of a record, again and again."""
    net = tls_network(config={"socket_send_buffer_bytes": 16 * 1024, "socket_request_max_bytes": 1 << 24})
    log = net.topic("t")
    client = net.client("TLS", tls=client_tls())
    values = [os.urandom(200_000) for _ in range(5)]
    for value in values:
        client.send_bytes(net.produce_frame("t", net.batch(value)))
        client.receive()
    body = os.urandom(6_000_000)
    client.send(body, correlation_id=1)
    client.send_bytes(net.fetch_frame("t", correlation_id=2))
    client.send(b"behind it", correlation_id=3)
    net.client("TLS", tls=client_tls()).ask(b"another client is not held up")
    assert client.receive() == (1, body)
    correlation, payload = client.receive()
    assert correlation == 2 and bytes(net.fetched(payload).records) == log.read(0, 1 << 20)[0]
    assert client.receive() == (3, b"behind it")


def test_sessions_are_resumed_until_the_context_is_replaced(tls_network, eventually):
    net = tls_network(client_auth="requested")
    context = client_tls()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    first = net.client("TLS", tls=context)
    first.ask(b"1")
    session = first.socket.session
    second = net.client("TLS", tls=context, session=session)
    assert second.ask(b"2") == b"2" and second.socket.session_reused
    net.server.replace_tls("TLS", server_tls())
    third = net.client("TLS", tls=context, session=session)
    assert third.ask(b"3") == b"3" and not third.socket.session_reused
    assert first.ask(b"an open connection goes on") == b"an open connection goes on"


def test_a_tls_1_3_session_is_resumed_with_its_client_certificate(tls_network, tmp_path):
    net = tls_network(client_auth="required")
    seen = []

    def handler(request):
        seen.append(request.principal)
        net.echo(request)

    net.handler = handler
    alice = shared_ca().sign("alice")
    context = client_tls(tmp_path, alice)
    first = net.client("TLS", tls=context)
    first.ask(b"1")
    second = net.client("TLS", tls=context, session=first.socket.session)
    second.ask(b"2")
    assert second.socket.session_reused
    assert seen.count("User:CN=alice") == 2


# ---- client certificates ---------------------------------------------------------------------------------------------


def test_a_client_certificate_makes_the_principal_once(tls_network, tmp_path):
    net = tls_network(client_auth="required")
    asked, principals = [], []

    def handler(request):
        if request.ask_kind is None:
            principals.append((request.principal, request.stage, request.tls_protocol))
            request.reply(request.body)
        else:
            asked.append((request.stage, request.peer_certificate))
            request.authenticated("User:alice")

    net.handler = handler
    alice = shared_ca().sign("alice")
    client = net.client("TLS", tls=client_tls(tmp_path, alice))
    assert [client.ask(b"%d" % n) for n in range(3)] == [b"0", b"1", b"2"]
    assert asked == [("principal", alice.der)]
    assert principals == [("User:alice", "ready", "TLSv1.3")] * 3
    assert net.counters()["authentication"]["TLS"]["authenticated"] == 1


def test_a_requested_certificate_may_be_missing(tls_network, tmp_path):
    net = tls_network(client_auth="requested")
    assert net.client("TLS", tls=client_tls()).ask(b"anonymous") == b"anonymous"
    assert net.client("TLS", tls=client_tls(tmp_path, shared_ca().sign("bob"))).ask(b"bob") == b"bob"


def refused(client):
    """Whether the broker ends the connection: in TLS 1.3 the client hears of it after its own handshake."""
    try:
        client.send(b"?")
        return client.closed_by_broker()
    except (ssl.SSLError, ConnectionError):
        return True


@pytest.mark.parametrize("auth", ["required", "requested"])
@pytest.mark.parametrize("wrong", ["foreign", "expired", "of a server"])
def test_a_certificate_that_cannot_be_verified_is_refused(tls_network, tmp_path, auth, wrong, eventually):
    net = tls_network(client_auth=auth)
    if wrong == "foreign":
        certificate = make_ca("Another CA").sign("mallory")
    elif wrong == "expired":
        certificate = shared_ca().sign("late", days=-1)
    else:
        certificate = shared_ca().sign("server", usage=[ssl_usage("serverAuth")])
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        assert refused(net.client("TLS", tls=client_tls(tmp_path, certificate)))
    lines = eventually(net.lines)
    assert len(lines) == 1 and "certificate is refused" in lines[0]
    assert net.counters()["authentication"]["TLS"]["failed"] == 1


def ssl_usage(name):
    from cryptography.x509.oid import ExtendedKeyUsageOID

    return {"serverAuth": ExtendedKeyUsageOID.SERVER_AUTH}[name]


def test_a_required_certificate_must_come(tls_network, eventually):
    net = tls_network(client_auth="required")
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        assert refused(net.client("TLS", tls=client_tls()))
    assert "peer did not return a certificate" in eventually(net.lines)[0]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_refused_client_is_told_why(tls_network, tmp_path, version):
    """The alert arrives, also when the client has sent more than the broker has read."""
    net = tls_network(client_auth="required")
    context = client_tls(tmp_path, make_ca("Another CA").sign("mallory"))
    context.maximum_version = version
    with pytest.raises(ssl.SSLError, match="(?i)alert"):
        client = net.client("TLS", tls=context)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
            client.send(b"x" * 100_000)  # the broker may be gone already, but its alert is here
        client.receive()


def test_a_principal_that_python_refuses_ends_the_connection(tls_network, tmp_path, eventually):
    net = tls_network(client_auth="required", security={"connection_failed_authentication_delay_ms": 5})
    net.handler = lambda request: request.authentication_failed(reason="no rule matches CN=alice")
    client = net.client("TLS", tls=client_tls(tmp_path, shared_ca().sign("alice")))
    client.send(b"never served")
    assert client.closed_by_broker()
    assert any("no rule matches CN=alice" in line for line in net.lines())
    assert net.counters()["authentication"]["TLS"]["failed"] == 1


# ---- what is no TLS --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("came", "named"),
    [
        (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", "HTTP came instead of TLS"),
        (struct.pack(">ihhih", 20, 18, 3, 1, 1) + b"c" * 10, "Kafka's protocol came without TLS"),
        (b"\x80\x9e\x01\x03\x01" + bytes(200), "bytes that are not TLS came"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "bytes that are not TLS came (53 53 48"),
        (b"\x16\x03\x01\xff\xff" + bytes(70000), "larger than TLS allows"),
        (b"\x17\x03\x03\x00\x20" + bytes(32), "the TLS handshake failed"),
        (b"\x16\x03\x01\x00\x10" + bytes(16), "the TLS handshake failed"),
        (b"\x15\x03\x01\x00\x02\x02\x28", "the TLS handshake failed"),
    ],
    ids=["http", "kafka", "sslv2", "ssh", "oversized", "early data", "garbage", "alert"],
)
def test_what_is_no_tls_is_named_and_closed(tls_network, came, named, eventually):
    net = tls_network()
    client = net.client("TLS")
    with contextlib.suppress(ConnectionError):
        client.send_bytes(came)
    while True:
        try:
            if not client.socket.recv(100):  # a TLS alert may come first
                break
        except ConnectionError:
            break
    lines = eventually(net.lines)
    assert len(lines) == 1 and named in lines[0] and "is closed" in lines[0]
    assert net.counters()["authentication"]["TLS"]["failed"] == 1
    assert net.client("TLS", tls=client_tls()).ask(b"others go on") == b"others go on"


def test_log_lines_of_refused_peers_are_bounded(tls_network, eventually):
    net = tls_network()
    for _ in range(120):
        client = net.client("TLS")
        client.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
        client.closed_by_broker()
    eventually(lambda: net.counters()["authentication"]["TLS"]["failed"] == 120)
    assert 20 <= len(net.lines()) < 120


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the program openssl is not installed")
def test_a_renegotiation_is_refused(tls_network, eventually):
    """By openssl s_client: Python's ssl cannot ask for one."""
    net = tls_network(protocols=["TLSv1.2"])
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{net.server.bound_port('TLS')}", "-tls1_2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as peer:
        assert peer.stdin is not None
        peer.stdin.write(b"R\n")
        peer.stdin.flush()
        lines = eventually(net.lines)
        peer.stdin.close()
        peer.wait(10)
    assert "renegotiation" in lines[0]


def test_a_connection_that_ends_within_the_handshake_is_no_failure(tls_network, eventually):
    net = tls_network()
    client = net.client("TLS")
    client.send_bytes(hello()[:100])
    client.close()
    eventually(lambda: not net.server.connections())
    assert net.counters()["authentication"]["TLS"]["failed"] == 0


def hello():
    """The first flight of a client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        client_tls().wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def test_half_open_and_slow_handshakes_time_out_beside_a_client_that_goes_on(tls_network, eventually):
    net = tls_network(security={"setup_timeout_ms": 300})
    busy = None
    while busy is None:
        with contextlib.suppress(OSError, EOFError):  # a machine so busy that this took too long
            client = net.client("TLS", tls=client_tls())
            assert client.ask(b"first") == b"first"
            busy = client
    before = net.counters()["authentication"]["TLS"]["timed_out"]
    silent = [net.client("TLS") for _ in range(20)]
    started = [net.client("TLS") for _ in range(20)]
    for client in started:
        client.send_bytes(hello()[:60])
    stopped = threading.Event()

    def drip():
        data = hello()
        slow = [net.client("TLS") for _ in range(10)]
        for position in range(len(data)):
            for client in slow:
                with contextlib.suppress(OSError):
                    client.send_bytes(data[position : position + 1])
            if stopped.wait(0.01):
                return

    thread = threading.Thread(target=drip)
    thread.start()
    answered = 0
    try:
        while net.counters()["authentication"]["TLS"]["timed_out"] < before + 50:
            assert busy.ask(b"%d" % answered) == b"%d" % answered
            answered += 1
    finally:
        stopped.set()
        thread.join()
    assert all(client.closed_by_broker() for client in silent + started)
    assert busy.ask(b"still") == b"still"
    assert any("was not authenticated within 300 ms" in line for line in net.lines())


def test_a_storm_of_handshakes_holds_up_no_established_client(tls_network):
    """Each turn of a network thread does a few of them, however many wait."""
    net = tls_network(config={"num_network_threads": 1})
    busy = net.client("TLS", tls=client_tls())
    flight = hello()
    peers = [net.client("TLS") for _ in range(200)]
    for peer in peers:
        peer.send_bytes(flight)
    assert busy.ask(b"in between") == b"in between"
    for peer in peers:
        assert peer.socket.recv(5)[:3] == b"\x16\x03\x03"


class SteppedPeer:
    """A TLS client whose bytes go when the test says so."""

    def __init__(self, client):
        self.client = client
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = client_tls().wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def flush(self):
        self.client.send_bytes(self.outgoing.read())

    def until_done(self, step):
        """What the step gives, once the broker has sent what it wants."""
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                self.flush()
                came = self.client.socket.recv(65536)
                assert came, "the broker has closed the connection"
                self.incoming.write(came)


def test_a_handshake_that_ends_in_a_storm_of_others_is_followed_by_requests(tls_network, eventually):
    """Its last step waits for its turn, and no event of the connection counts until then."""
    net = tls_network(config={"num_network_threads": 1})
    peers = [SteppedPeer(net.client("TLS")) for _ in range(10)]
    for peer in peers:
        peer.until_done(peer.tls.do_handshake)  # its last flight is not sent yet
    flight = hello()
    for client in [net.client("TLS") for _ in range(200)]:
        client.send_bytes(flight)
    for peer in peers:
        peer.flush()
    eventually(lambda: net.counters()["authentication"]["TLS"]["authenticated"] == 10)
    for peer in peers:
        peer.tls.write(peer.client.frame(b"after it", correlation_id=7))
        assert peer.until_done(lambda tls=peer.tls: tls.read(100)) == struct.pack(">ii", 12, 7) + b"after it"


# ---- hostile bytes ---------------------------------------------------------------------------------------------------


def test_a_client_hello_cut_at_every_byte_is_closed(tls_network, eventually):
    net = tls_network()
    data = hello()
    for end in range(len(data)):
        client = net.client("TLS")
        client.send_bytes(data[:end])
        client.socket.shutdown(socket.SHUT_WR)
        while client.socket.recv(4096):
            pass
        client.close()
    assert net.client("TLS", tls=client_tls()).ask(b"fine") == b"fine"
    net.clients[-1].close()
    eventually(lambda: not net.server.connections())


def test_spoiled_handshakes_and_records_do_no_harm(tls_network, eventually):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    net = tls_network()
    port = net.server.bound_port("TLS")
    for _ in range(400):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        peer = client_tls().wrap_bio(incoming, outgoing, server_hostname="localhost")
        with socket.create_connection(("127.0.0.1", port), 10) as raw:
            flights = chance.randrange(1, 4)
            with contextlib.suppress(OSError, ssl.SSLError):
                for flight in range(flights):
                    try:
                        if flight < 2:
                            peer.do_handshake()
                        peer.write(net.clients[0].frame(b"x") if net.clients else b"\0\0\0\4abcd")
                    except ssl.SSLWantReadError:
                        pass
                    data = bytearray(outgoing.read())
                    if flight == flights - 1 and data:
                        for _ in range(chance.randrange(1, 4)):
                            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
                    raw.sendall(data)
                    if flight < flights - 1:
                        incoming.write(raw.recv(65536))
    assert net.client("TLS", tls=client_tls()).ask(b"fine") == b"fine"
    net.clients[-1].close()
    eventually(lambda: not net.server.connections())


# ---- stop and reload -------------------------------------------------------------------------------------------------


def test_a_stop_answers_what_is_in_flight_and_closes_with_notice(tls_network, eventually):
    net = tls_network()
    requests = []
    net.handler = requests.append
    client = net.client("TLS", tls=client_tls())
    half = net.client("TLS")
    half.send_bytes(hello()[:50])
    client.send(b"last")
    request = eventually(lambda: requests)[0]
    net.server.begin_shutdown(5.0)
    request.reply(request.body)
    assert client.receive()[1] == b"last"
    assert client.socket.recv(1) == b""  # close_notify; a bare end of the stream would be an error here
    assert half.closed_by_broker()


def test_contexts_change_under_load_without_a_failed_request(tls_network):
    net = tls_network()
    other = make_ca("Next CA")
    context = ssl.create_default_context(cadata=shared_ca().der + other.der)
    stop = threading.Event()
    failures, served = [], [0] * 4

    def work(number):
        try:
            long_lived = net.client("TLS", tls=context)
            while not stop.is_set():
                fresh = net.client("TLS", tls=context)
                for client in (long_lived, fresh):
                    assert client.ask(b"%d" % number) == b"%d" % number
                fresh.close()
                served[number] += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    certificates = [other.sign("localhost", ["localhost", "127.0.0.1"]), localhost()]
    for turn in range(20):
        before = sum(served)
        net.server.replace_tls("TLS", server_tls(certificate=certificates[turn % 2]))
        while sum(served) < before + 8 and not failures:
            time.sleep(0.002)
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
