"""The TLS transport and its contexts, beside Python's ssl over memory and over sockets."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import ssl
import tempfile
from errno import EAGAIN, ECONNRESET, EIO, EPIPE, EPROTO
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificate, localhost, make_ca, shared_ca
from cryptography.hazmat.primitives.asymmetric import rsa

from kafkapy._speedups.base.tls import TlsContext
from kafkapy._speedups.testing.tls_connection import TlsConnection

RECORD = 16384


def server(certificate: Certificate | None = None, **options: Any) -> TlsContext:
    me = certificate or localhost()
    return TlsContext(True, me.key_der, me.chain, options.pop("trusted", [shared_ca().der]), **options)


def client(**options: Any) -> TlsContext:
    return TlsContext(False, trusted=options.pop("trusted", [shared_ca().der]), **options)


def sockets(buffer: int = 0) -> tuple[socket.socket, socket.socket]:
    """Two ends of a TCP connection that never block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        if buffer:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        near = socket.socket()
        if buffer:
            near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        near.connect(listener.getsockname())
        far, _ = listener.accept()
    for each in (near, far):
        if buffer:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        each.setblocking(False)
    return near, far


class Pair:
    """A client and a server of this transport, connected."""

    def __init__(
        self,
        server_context: TlsContext | None = None,
        client_context: TlsContext | None = None,
        host: str = "localhost",
        buffer: int = 0,
        port: int = 9092,
    ) -> None:
        near, far = sockets(buffer)
        self.client = TlsConnection(near.detach(), client_context or client(), host, port)
        self.server = TlsConnection(far.detach(), server_context or server())

    def shake(self) -> tuple[int, int]:
        """The results of both sides' handshakes, once each has one."""
        near = far = -EAGAIN
        while near == -EAGAIN or far == -EAGAIN:
            before = near, far
            if near == -EAGAIN:
                near = self.client.handshake()
            if far == -EAGAIN:
                far = self.server.handshake()
            if before == (near, far) and (near, far) != (-EAGAIN, -EAGAIN):
                # The other side has given up, and its end of the stream may be all that comes.
                (self.server if near != -EAGAIN else self.client).close()
                break
        return near, far

    def connect(self) -> Pair:
        assert self.shake() == (1, 1), (self.client.error, self.server.error)
        return self


def read_all(connection: TlsConnection) -> bytes:
    parts = []
    while isinstance(part := connection.read(1 << 20), bytes) and part:
        parts.append(part)
    return b"".join(parts)


# ---- bytes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_bytes_go_both_ways(protocol: str) -> None:
    pair = Pair(server(protocols=[protocol])).connect()
    assert pair.client.protocol == pair.server.protocol == protocol
    assert pair.client.cipher_suite == pair.server.cipher_suite and pair.client.cipher_suite.startswith("TLS_")
    assert pair.client.write([b"hello ", b"", b"world"]) == 11
    assert pair.server.read(4) == b"hell"
    assert pair.server.pending() == 7
    assert pair.server.read(100) == b"o world"
    assert pair.server.read(100) == -EAGAIN and pair.server.pending() == 0
    assert not pair.server.read_wants_write
    assert pair.server.write([b"back"]) == 4 and pair.client.read(100) == b"back"


def test_pieces_are_joined_into_full_records() -> None:
    pair = Pair().connect()
    pieces = [os.urandom(size) for size in (1, 100, 0, RECORD - 101, RECORD, 5, 3 * RECORD, 7, 1000)]
    assert pair.client.write(pieces) == sum(map(len, pieces))
    assert read_all(pair.server) == b"".join(pieces)


def test_one_read_takes_many_records_up_to_its_room() -> None:
    pair = Pair().connect()
    data = os.urandom(5 * RECORD + 3)
    assert pair.client.write([data]) == len(data)
    first = pair.server.read(2 * RECORD + 10)
    assert first == data[: 2 * RECORD + 10] and pair.server.pending() > 0
    assert pair.server.read(1 << 20) == data[2 * RECORD + 10 :]


def test_the_end_of_the_stream() -> None:
    pair = Pair().connect()
    pair.client.write([b"last"])
    pair.client.shut_down()
    assert not pair.server.ended()
    assert pair.server.pending() == 4
    assert pair.server.read(100) == b"last"
    assert pair.server.ended() and pair.server.pending() == 1
    assert pair.server.read(100) == b"" and pair.server.read(100) == b""
    assert pair.server.write([b"x"]) in (1, -EPIPE)


def test_a_stream_cut_without_notice_ends_too() -> None:
    near, far = sockets()
    one = TlsConnection(near.fileno(), client(), "localhost")
    other = TlsConnection(far.detach(), server())
    while (one.handshake(), other.handshake()) != (1, 1):
        pass
    near.shutdown(socket.SHUT_WR)
    assert other.read(10) == b"" and other.ended()
    near.detach()


def test_a_reset_is_an_error() -> None:
    pair = Pair().connect()
    pair.client.write([b"unread" * 1000])
    pair.server.close()  # with unread bytes: a reset
    result: Any = b""
    for _ in range(10):
        result = pair.client.write([b"x" * RECORD])
        if result < 0:
            break
    assert result in (-EPIPE, -ECONNRESET)


# ---- a full socket ---------------------------------------------------------------------------------------------------


def exchange(sending: Any, receiving: TlsConnection, step: int, size: int) -> bytes:
    """Sends in turns while the peer reads in steps of a few bytes, until it has so many."""
    got = bytearray()
    status = 0
    while status == 0 or len(got) < size:
        status = status or sending.turn()
        assert status in (0, 1)
        part = receiving.read(step)
        if isinstance(part, bytes):
            assert part
            got += part
        else:
            assert part == -EAGAIN
    return bytes(got)


@pytest.mark.parametrize("seed", range(6))
def test_a_reply_of_memory_and_files_through_a_small_socket(seed: int) -> None:
    """Writes stop within records at any place, and go on with the same bytes."""
    chance = random.Random(seed)
    content = chance.randbytes(900_000)
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        pieces: list[Any] = []
        expected = b""
        for _ in range(chance.randrange(1, 12)):
            size = chance.choice([1, 10, 3000, RECORD, 20_000, 70_000, 300_000])
            if chance.random() < 0.5:
                pieces.append(chance.randbytes(size))
                expected += pieces[-1]
            else:
                at = chance.randrange(len(content) - size)
                pieces.append((file.fileno(), at, size))
                expected += content[at : at + size]
        pair = Pair(buffer=4096).connect()
        reply = pair.server.send(pieces)
        assert exchange(reply, pair.client, chance.choice([100, 5000, 100_000]), len(expected)) == expected
        assert reply.written == len(expected)
        # The connection goes on behind it.
        pair.client.write([b"next"])
        assert pair.server.read(10) == b"next"


def test_a_write_that_forgets_bytes_it_began_with_is_refused() -> None:
    pair = Pair(buffer=4096).connect()
    while pair.server.write([b"x" * 100_000]) != -EAGAIN:
        pass
    assert pair.server.write([b"y" * 10]) == -EIO


def test_a_file_that_is_too_short_ends_the_reply() -> None:
    pair = Pair().connect()
    with tempfile.TemporaryFile() as file:
        file.write(b"z" * 50_000)
        file.flush()
        assert pair.server.send([b"head", (file.fileno(), 0, 60_000)]).turn() == -EIO


def test_a_kernel_that_encrypts_sends_files_itself() -> None:
    """Where the kernel offers kTLS; elsewhere the buffer does it, as the other tests show."""
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.IPPROTO_TCP, 31, b"tls")
    near, far = sockets()
    try:
        near.setsockopt(socket.IPPROTO_TCP, 31, b"tls")
    except OSError as error:
        pytest.skip(f"no kTLS: {error}")
    finally:
        near.close()
        far.close()
    pair = Pair().connect()
    assert pair.server.in_kernel
    content = os.urandom(3_000_000)
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        reply = pair.server.send([b"head", (file.fileno(), 0, len(content)), b"tail"])
        assert exchange(reply, pair.client, 100_000, len(content) + 8) == b"head" + content + b"tail"


# ---- names, suites, sessions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "names", "fits"),
    [
        ("localhost", ["localhost"], True),
        ("localhost", ["elsewhere"], False),
        ("127.0.0.1", ["127.0.0.1"], True),
        ("127.0.0.1", ["localhost"], False),
        ("::1", ["::1"], True),
        ("a.example.org", ["*.example.org"], True),
        ("a.b.example.org", ["*.example.org"], False),
        ("ab.example.org", ["a*.example.org"], False),
    ],
)
def test_a_client_checks_the_name_of_the_server(host: str, names: list[str], fits: bool) -> None:
    context = server(shared_ca().sign("somebody", names))
    near, _ = Pair(context, host=host).shake()
    assert (near == 1) is fits
    pair = Pair(context, host=host)
    pair.shake()
    if not fits:
        assert pair.client.error is not None and "certificate is refused" in pair.client.error
    unchecked = Pair(context, client(check_hostname=False), host=host)
    assert unchecked.shake() == (1, 1)


def test_a_client_refuses_a_server_that_it_does_not_trust() -> None:
    pair = Pair(client_context=client(trusted=[make_ca("Other").der]))
    near, _ = pair.shake()
    assert near == -EPROTO and pair.client.error is not None
    assert "certificate is refused: unable to get local issuer certificate" in pair.client.error
    assert pair.client.handshake() == -EPROTO  # for good


def test_a_chain_with_an_intermediate_certificate() -> None:
    intermediate = shared_ca().sign("Intermediate", is_ca=True)
    leaf = intermediate.sign("localhost", ["localhost"])
    assert len(leaf.chain) == 2
    assert Pair(server(leaf)).shake() == (1, 1)
    # A trusted certificate need not be a root.
    assert Pair(server(leaf), client(trusted=[intermediate.der])).shake() == (1, 1)


def seen_names(host: str) -> list[str | None]:
    """The names that a client says in its first flight, seen by Python's ssl."""
    found: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = lambda _, name, __: found.append(name)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    peer = context.wrap_bio(incoming, outgoing, server_side=True)
    near, far = sockets()
    connection = TlsConnection(near.detach(), client(), host)
    assert connection.handshake() == -EAGAIN
    incoming.write(far.recv(10_000))
    with contextlib.suppress(ssl.SSLError):
        peer.do_handshake()
    far.close()
    return found


def test_clients_say_the_name_of_the_server_but_no_address() -> None:
    assert seen_names("kafka.example.org") == ["kafka.example.org"]
    assert seen_names("127.0.0.1") == [None]


@pytest.mark.parametrize(
    ("suite", "protocol"),
    [
        ("TLS_CHACHA20_POLY1305_SHA256", "TLSv1.3"),
        ("TLS_AES_128_GCM_SHA256", "TLSv1.3"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLSv1.2"),
        ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLSv1.2"),
    ],
)
def test_cipher_suites_by_their_names_in_java_and_in_openssl(suite: str, protocol: str) -> None:
    pair = Pair(server(cipher_suites=[suite])).connect()
    assert pair.server.protocol == protocol
    if "_" in suite:
        assert pair.server.cipher_suite == suite
    else:
        assert "CHACHA20" in pair.server.cipher_suite


def test_suites_that_the_peer_does_not_offer_leave_no_connection() -> None:
    pair = Pair(server(cipher_suites=["TLS_AES_128_GCM_SHA256"]), client(protocols=["TLSv1.2"]))
    _, far = pair.shake()
    assert far == -EPROTO
    assert pair.server.error is not None and "TLS handshake failed" in pair.server.error


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_sessions_are_resumed_by_server_and_only_with_their_context(protocol: str) -> None:
    serving, asking = server(), client(protocols=[protocol])
    for turn, (context, port, resumed) in enumerate(
        [(serving, 1, False), (serving, 1, True), (serving, 2, False), (serving, 1, True), (server(), 1, False)]
    ):
        pair = Pair(context, asking, port=port).connect()
        assert (pair.client.resumed, pair.server.resumed) == (resumed, resumed), turn
        pair.server.write([b"x"])
        assert pair.client.read(10) == b"x"  # tickets of TLS 1.3 come before it
    assert serving.counters() == {"handshakes": 4, "resumed": 2, "failed": 0}


def test_client_certificates() -> None:
    alice = shared_ca().sign("alice")
    asking = client(private_key=alice.key_der, chain=alice.chain)
    for auth in ("requested", "required"):
        pair = Pair(server(client_auth=auth), asking).connect()
        assert pair.server.peer_certificate == alice.der
        assert pair.client.peer_certificate == localhost().der
    assert Pair(server(client_auth="none"), asking).connect().server.peer_certificate is None
    assert Pair(server(client_auth="requested")).connect().server.peer_certificate is None
    pair = Pair(server(client_auth="required"))
    assert pair.shake()[1] == -EPROTO
    assert pair.server.error is not None and "peer did not return a certificate" in pair.server.error


# ---- contexts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"private_key": None}, "private key and a certificate"),
        ({"chain": ()}, "private key and a certificate"),
        ({"private_key": b"no key"}, "the private key cannot be read"),
        ({"chain": [b"no certificate"]}, "no certificate in DER"),
        ({"chain": [localhost().der + b"\0"]}, "no certificate in DER"),
        ({"private_key": make_ca().key_der}, "does not fit the certificate"),
        ({"trusted": [b"?"]}, "no certificate in DER"),
        ({"client_auth": "perhaps"}, "is not one of none, requested, required"),
        ({"protocols": []}, "no TLS version"),
        ({"protocols": ["SSLv3"]}, "'SSLv3' is not one of"),
        ({"cipher_suites": ["TLS_NO_SUCH_SUITE"]}, "TLS_NO_SUCH_SUITE is not known"),
        ({"cipher_suites": ["NO-SUCH-SUITE"]}, "NO-SUCH-SUITE is not known"),
        ({"cipher_suites": ["TLS_AES_128_GCM_SHA256"], "protocols": ["TLSv1.2"]}, "no cipher suite fits"),
    ],
)
def test_what_is_unfit_is_refused_with_its_reason(changes: dict[str, Any], reason: str) -> None:
    values: dict[str, Any] = {
        "private_key": localhost().key_der,
        "chain": localhost().chain,
        "trusted": [shared_ca().der],
    } | changes
    with pytest.raises(ValueError, match=reason):
        TlsContext(True, **values)
    # Nothing stays in OpenSSL's queue of errors for Python's ssl.
    assert ssl.create_default_context().verify_mode == ssl.CERT_REQUIRED


def test_a_failed_context_leaves_the_next_one_alone() -> None:
    with pytest.raises(ValueError, match="DER"):
        server(trusted=[b"?"])
    assert Pair().shake() == (1, 1)


def test_an_rsa_key_serves_old_and_new_clients() -> None:
    me = shared_ca().sign("localhost", ["localhost"], key=rsa.generate_private_key(65537, 2048))
    for protocol in ("TLSv1.2", "TLSv1.3"):
        assert Pair(server(me), client(protocols=[protocol])).shake() == (1, 1)


def test_a_connection_outlives_its_context() -> None:
    context = server()
    pair = Pair(context).connect()
    del context
    pair.client.write([b"still"])
    assert pair.server.read(10) == b"still"


# ---- hostile bytes ---------------------------------------------------------------------------------------------------


class Peer:
    """Python's ssl as the client of a server of this transport; its bytes can be spoiled on their way."""

    def __init__(self) -> None:
        near, far = sockets()
        self.raw = near
        self.server = TlsConnection(far.detach(), server())
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cadata=shared_ca().der)
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def flight(self) -> bytes:
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.outgoing.read()

    def end(self) -> int | bytes:
        """What the server reads at last, when this side has ended its stream."""
        self.raw.shutdown(socket.SHUT_WR)
        while (result := self.server.read(100)) == -EAGAIN:
            pass
        return result

    def end_handshake(self) -> int:
        self.raw.shutdown(socket.SHUT_WR)
        while (result := self.server.handshake()) == -EAGAIN:
            pass
        return result

    def answer(self) -> int:
        result = self.server.handshake()
        with contextlib.suppress(BlockingIOError):
            self.incoming.write(self.raw.recv(1 << 16))
        return result

    def connect(self) -> Peer:
        result = 0
        while result != 1:
            if flight := self.flight():
                self.raw.sendall(flight)
            result = self.answer()
        return self

    def close(self) -> None:
        self.raw.close()
        self.server.close()


def test_handshakes_cut_at_every_byte() -> None:
    whole = Peer()
    first = whole.flight()
    whole.close()
    for end in range(len(first)):
        peer = Peer()
        peer.raw.sendall(first[:end])
        assert peer.server.handshake() == -EAGAIN
        assert peer.end_handshake() == -ECONNRESET
        peer.close()


@pytest.mark.parametrize("seed", range(4))
def test_handshakes_with_flipped_bits_fail_or_finish(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(60):
        peer = Peer()
        spoiled = chance.randrange(2)
        for flight in range(2):
            data = bytearray()
            with contextlib.suppress(ssl.SSLError):  # of an answer to bytes that were spoiled
                data += peer.flight()
            if data and flight == spoiled:
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            with contextlib.suppress(OSError):
                peer.raw.sendall(data)
            with contextlib.suppress(ssl.SSLError, OSError):
                result = peer.answer()
                assert result in (1, -EAGAIN, -EPROTO, -ECONNRESET)
                assert (peer.server.error is not None) is (result == -EPROTO)
        peer.close()


def test_records_cut_or_flipped_at_every_byte_are_never_read() -> None:
    for position in range(60):
        for flip in (True, False):
            peer = Peer().connect()
            peer.tls.write(b"hello, this is a record")
            data = bytearray(peer.outgoing.read())
            if position >= len(data):
                peer.close()
                continue
            if flip:
                data[position] ^= 0x10
                peer.raw.sendall(data)
                result = peer.end()
                assert result in (-EPROTO, b""), (position, result)
            else:
                peer.raw.sendall(data[:position])
                assert peer.server.read(100) == -EAGAIN
                assert peer.end() == b""
            peer.close()


def test_records_that_are_too_large_are_refused() -> None:
    peer = Peer().connect()
    peer.raw.sendall(b"\x17\x03\x03\x48\x00" + bytes(0x4800))
    assert peer.server.read(100) == -EPROTO
    assert peer.server.error is not None and "larger than TLS allows" in peer.server.error


def test_messages_of_tls_without_data_are_bounded() -> None:
    """Tickets by the thousand, from a server of Python's ssl: a peer could keep a thread busy with them for ever."""
    near, far = sockets()
    connection = TlsConnection(near.detach(), client(), "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as directory:
        context.load_cert_chain(*localhost().write(Path(directory), "server"))
    context.num_tickets = 1000
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    peer = context.wrap_bio(incoming, outgoing, server_side=True)
    result, shaken, left = -EAGAIN, False, b""
    for _ in range(10_000):
        if result == -EAGAIN:
            result = connection.handshake()
        with contextlib.suppress(BlockingIOError):
            incoming.write(far.recv(1 << 16))
        if not shaken:
            with contextlib.suppress(ssl.SSLWantReadError):
                peer.do_handshake()
                shaken = True
        left += outgoing.read()
        with contextlib.suppress(BlockingIOError):
            left = left[far.send(left) :]
        if result == 1 and (read := connection.read(100)) != -EAGAIN:
            break
    assert read == -EPROTO
    assert connection.error == "the peer sends messages of TLS without data"
    far.close()


def test_bytes_that_are_no_tls_are_named() -> None:
    for came, named in (
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP came instead of TLS"),
        (b"\0\0\0\x10\0\x12\0\3", "Kafka's protocol came without TLS"),
        (b"\xff\xfe\xfd\xfc\xfb", "bytes that are not TLS came (ff fe fd...)"),
    ):
        peer = Peer()
        peer.raw.sendall(came)
        assert peer.server.handshake() == -EPROTO
        assert peer.server.error == named
        peer.close()


def test_random_bytes_end_every_connection() -> None:
    chance = random.Random(3)
    for _ in range(200):
        peer = Peer()
        head = chance.choice(
            [b"", b"\x16\x03\x01", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x80", b"\x15\x03\x03\0\2"]
        )
        with contextlib.suppress(OSError):
            peer.raw.sendall(head + chance.randbytes(chance.randrange(2000)))
        assert peer.end_handshake() in (-EPROTO, -ECONNRESET)
        peer.close()
