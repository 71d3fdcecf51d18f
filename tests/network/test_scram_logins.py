"""Logins by SCRAM on the network threads: what they answer, and what they leave to Python."""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
from typing import Any

import pytest

from kafkapy._speedups.base.scram import ScramTable
from kafkapy.network.socket_server import ListenerSecurity

HANDSHAKE, VERSIONS, AUTHENTICATE = 17, 18, 36
ITERATIONS = 4096
NAMES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ENABLED = ["PLAIN", "SCRAM-SHA-256"]
REFUSED = "Authentication failed during authentication due to invalid credentials with SASL mechanism "


def keys(mechanism: str, password: str, salt: bytes) -> tuple[bytes, bytes, bytes]:
    """(client key, stored key, server key)."""
    kind = NAMES[mechanism]
    salted = hashlib.pbkdf2_hmac(kind, password.encode(), salt, ITERATIONS)
    client, server = (hmac.digest(salted, each, kind) for each in (b"Client Key", b"Server Key"))
    return client, hashlib.new(kind, client).digest(), server


class Logins:
    """A listener whose network threads log users in; the Python side notes what comes to it."""

    def __init__(self, network: Any, *mechanisms: str, **security: Any) -> None:
        listener = ListenerSecurity(sasl=True, connection_failed_authentication_delay_ms=0, **security)
        self.net = network(listeners=("SASL",), listener_security={"SASL": listener})
        self.seen: list[tuple[int, int, str | None, bytes]] = []
        self.served: list[tuple[str, bool]] = []
        self.tables = []
        for mechanism in mechanisms or ("SCRAM-SHA-256",):
            table = ScramTable(mechanism, b"secret")
            _, stored, server = keys(mechanism, "right", b"salt of alice")
            table.set_user("alice", (b"salt of alice", stored, server, ITERATIONS), "User:alice", 5)
            table.set_shape(13, False, ITERATIONS)
            self.tables.append(table)
        self.net.server.serve_scram("SASL", self.tables, ENABLED)
        self.net.handler = self.handle

    def handle(self, request: Any) -> None:
        if request.stage == "ready":
            self.served.append((request.principal, request.token_authenticated))
        else:
            self.seen.append((request.api_key, request.api_version, request.scram, bytes(request.body)))
        request.reply(b"python")

    def client(self) -> Any:
        return self.net.client("SASL")

    def counters(self) -> dict[str, int]:
        found = self.net.counters()["authentication"]["SASL"]
        return {name: each for name, each in found.items() if each}


def handshake(client: Any, mechanism: str = "SCRAM-SHA-256", *, version: int = 1, more: bytes = b"") -> bytes:
    name = mechanism.encode()
    return bytes(client.ask(struct.pack(">h", len(name)) + name + more, key=HANDSHAKE, version=version))


def frame_of(token: bytes, version: int) -> bytes:
    """The body of a SaslAuthenticate request."""
    if version < 2:
        return struct.pack(">i", len(token)) + token
    size, head = len(token) + 1, b""
    while size >= 0x80:
        head += bytes([size & 0x7F | 0x80])
        size >>= 7
    return head + bytes([size]) + token + b"\0"


def answer_of(data: bytes, version: int) -> tuple[int, str, bytes]:
    """(error, message, token) of its response, of which nothing is left."""
    (error,) = struct.unpack_from(">h", data)
    if version < 2:
        (size,) = struct.unpack_from(">h", data, 2)
        message, data = data[4 : 4 + size], data[4 + size :]
        (size,) = struct.unpack_from(">i", data)
        token, data = data[4 : 4 + size], data[4 + size :]
    else:
        assert data[0] == 0, "the tags of the header"
        (error,) = struct.unpack_from(">h", data, 1)
        data = data[3:]
        parts = []
        for _ in range(2):
            size, shift = 0, 0
            while True:
                byte, data = data[0], data[1:]
                size |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
            parts.append(data[: size - 1])
            data = data[size - 1 :]
        message, token = parts
    left = (b"" if version < 1 else bytes(8)) + (b"\0" if version >= 2 else b"")
    assert data == left
    return error, message.decode(), token


def authenticate(client: Any, token: bytes, version: int = 1) -> tuple[int, str, bytes]:
    return answer_of(client.ask(frame_of(token, version), key=AUTHENTICATE, version=version), version)


def finish(first: bytes, challenge: bytes, mechanism: str, password: str) -> tuple[bytes, bytes]:
    """The client's last token, and what the broker has to answer."""
    kind = NAMES[mechanism]
    fields = dict(each.split("=", 1) for each in challenge.decode().split(","))
    client, stored, server = keys(mechanism, password, base64.b64decode(fields["s"]))
    assert fields["i"] == str(ITERATIONS) and fields["r"].startswith("nonce")
    bare = f"c=biws,r={fields['r']}"
    said = b",".join((first[3:], challenge, bare.encode()))
    proof = bytes(a ^ b for a, b in zip(client, hmac.digest(stored, said, kind), strict=True))
    last = f"{bare},p={base64.b64encode(proof).decode()}".encode()
    return last, b"v=" + base64.b64encode(hmac.digest(server, said, kind))


FIRST = b"n,,n=alice,r=nonce"


@pytest.mark.parametrize("mechanism", NAMES)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_user_is_logged_in_without_python(network, mechanism, version):
    logins = Logins(network, *NAMES)
    client = logins.client()
    mechanisms = struct.pack(">hi", 0, 2) + b"".join(struct.pack(">h", len(each)) + each.encode() for each in ENABLED)
    assert handshake(client, mechanism) == mechanisms
    error, message, challenge = authenticate(client, FIRST, version)
    assert (error, message) == (0, "")
    assert challenge.split(b",")[1] == b"s=" + base64.b64encode(b"salt of alice")
    last, wanted = finish(FIRST, challenge, mechanism, "right")
    assert authenticate(client, last, version) == (0, "", wanted)
    assert client.ask(b"x") == b"python"
    assert (logins.seen, logins.served, logins.counters()) == ([], [("User:alice", False)], {"authenticated": 1})
    apis = logins.net.counters()["apis"]
    assert [apis[key]["requests"] for key in (HANDSHAKE, AUTHENTICATE)] == [1, 2]
    assert all(apis[key]["local_ns"] > 0 for key in (HANDSHAKE, AUTHENTICATE))
    [info] = logins.net.server.connections()
    assert info["principal"] == "User:alice"
    # From here on frames may be large again.
    assert client.ask(b"x" * 600_000) == b"python"


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("bob", "right")])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_who_cannot_prove_a_password_is_refused_and_closed(network, eventually, user, password, version):
    """Whether there is such a user cannot be seen."""
    logins = Logins(network)
    client = logins.client()
    port = client.socket.getsockname()[1]
    handshake(client)
    first = f"n,,n={user},r=nonce".encode()
    error, _, challenge = authenticate(client, first, version)
    assert error == 0
    last, _ = finish(first, challenge, "SCRAM-SHA-256", password)
    assert authenticate(client, last, version) == (58, f"{REFUSED}SCRAM-SHA-256", b"")
    assert client.closed_by_broker()
    assert (logins.seen, logins.counters()) == ([], {"failed": 1})
    [line] = eventually(logins.net.lines)
    where = f"Failed authentication of connection 1 from 127.0.0.1:{port}"
    assert line == f"{where}: {REFUSED}SCRAM-SHA-256 (Invalid client credentials)"


@pytest.mark.parametrize(
    ("mechanism", "version", "more"),
    [
        ("SCRAM-SHA-256", 0, b""),
        ("SCRAM-SHA-256", 1, b"\0"),
        ("SCRAM-SHA-512", 1, b""),
        ("SCRAM-SHA-999", 1, b""),
        ("SCRAM-SHA-25", 1, b""),
        ("SCRAM-SHA-2566", 1, b""),
        ("PLAIN", 1, b""),
    ],
)
def test_a_handshake_of_another_kind_is_pythons_with_all_that_follows(network, mechanism, version, more):
    logins = Logins(network)
    client = logins.client()
    assert handshake(client, mechanism, version=version, more=more) == b"python"
    assert handshake(client) == b"python"
    assert client.ask(frame_of(FIRST, 1), key=AUTHENTICATE, version=1) == b"python"
    assert [each[:3] for each in logins.seen] == [
        (HANDSHAKE, version, None),
        (HANDSHAKE, 1, None),
        (AUTHENTICATE, 1, None),
    ]


def test_versions_may_be_asked_for_first_and_a_token_without_a_handshake_is_pythons(network):
    logins = Logins(network)
    client = logins.client()
    assert client.ask(b"", key=VERSIONS, version=0) == b"python"
    assert handshake(client)[:2] == b"\0\0"
    assert authenticate(client, FIRST)[0] == 0
    assert [each[0] for each in logins.seen] == [VERSIONS]
    other = logins.client()
    assert other.ask(frame_of(FIRST, 1), key=AUTHENTICATE, version=1) == b"python"
    assert handshake(other) == b"python"


@pytest.mark.parametrize(
    "body",
    [
        frame_of(b"n,a=bob,n=alice,r=nonce", 1),
        frame_of(b"n,,n=alice,r=nonce,tokenauth=true", 1),
        frame_of(b"no such message", 1),
        frame_of(FIRST, 1) + b"\0",
        frame_of(FIRST, 1)[:-1],
        struct.pack(">i", -1),
    ],
)
def test_a_first_token_of_another_kind_is_pythons_with_the_mechanism(network, body):
    logins = Logins(network, *NAMES)
    client = logins.client()
    handshake(client, "SCRAM-SHA-512")
    assert client.ask(body, key=AUTHENTICATE, version=1) == b"python"
    assert logins.seen == [(AUTHENTICATE, 1, "SCRAM-SHA-512", body)]
    # And so is what follows.
    assert client.ask(frame_of(FIRST, 1), key=AUTHENTICATE, version=1) == b"python"
    assert logins.seen[1][2] is None
    assert logins.counters() == {}


def test_a_second_handshake_within_a_login_is_pythons(network):
    logins = Logins(network)
    client = logins.client()
    handshake(client)
    assert handshake(client) == b"python"
    assert [each[:3] for each in logins.seen] == [(HANDSHAKE, 1, "SCRAM-SHA-256")]


def test_tags_of_a_token_are_pythons(network):
    logins = Logins(network)
    client = logins.client()
    handshake(client)
    body = frame_of(FIRST, 2)[:-1] + b"\1\0\1x"
    assert client.ask(body, key=AUTHENTICATE, version=2) == b"\0python"
    assert [each[:2] for each in logins.seen] == [(AUTHENTICATE, 2)]


def test_python_has_the_logins_while_it_logs_requests_or_serves_no_table(network):
    logins = Logins(network)
    logins.net.plane.request_log_level = 1
    assert handshake(logins.client()) == b"python"
    logins.net.plane.request_log_level = 0
    assert handshake(logins.client())[:2] == b"\0\0"
    logins.net.server.serve_scram("SASL", [], ENABLED)
    assert handshake(logins.client()) == b"python"
    logins.net.server.serve_scram("SASL", logins.tables, [])
    assert handshake(logins.client()) == struct.pack(">hi", 0, 0)


def test_a_login_that_the_client_leaves_holds_nothing(network, eventually):
    logins = Logins(network)
    for _ in range(3):
        client = logins.client()
        handshake(client)
        authenticate(client, FIRST)
        client.reset()
    eventually(lambda: not logins.net.server.connections())
    client = logins.client()
    handshake(client)
    assert authenticate(client, FIRST)[0] == 0
