"""Hostile bytes before the authentication: in TLS handshakes, in TLS records, and in SASL exchanges.

KAFKAPY_FUZZ_PEERS says how many peers the soak tests send, KAFKAPY_FUZZ_SEED the seed. They print how many frames and
flights that were.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from certificates import localhost, shared_ca
from fuzz.frames import spoil
from fuzz.test_hostile_frames import MEGABYTE, WellBehaved, rss_bytes

from kafkapy.testing.broker_process import BrokerProcess

VERSIONS = struct.pack(">hhih", 18, 0, 1, 1) + b"c"
HANDSHAKE = struct.pack(">hhih", 17, 1, 2, 1) + b"c" + struct.pack(">h", 5) + b"PLAIN"
TOKEN = b"\0user\0secret"
AUTHENTICATE = struct.pack(">hhih", 36, 1, 3, 1) + b"c" + struct.pack(">i", len(TOKEN)) + TOKEN
METADATA = struct.pack(">hhih", 3, 0, 4, 1) + b"c" + struct.pack(">i", 0)
GROWTH = 100 * MEGABYTE


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def ports(tmp_path: Path) -> Iterator[tuple[BrokerProcess, dict[str, int]]]:
    """A broker, and the ports of its listeners with TLS, SASL and both."""
    keystore = tmp_path / "broker.pem"
    keystore.write_bytes(localhost().key_pem + localhost().chain_pem)
    ports = {name: free_port() for name in ("SAFE", "ASKED", "BOTH")}
    overrides = {
        "listeners": ",".join(["PLAINTEXT://127.0.0.1:0", *(f"{n}://127.0.0.1:{p}" for n, p in ports.items())]),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SAFE:SSL,ASKED:SASL_PLAINTEXT,BOTH:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "sasl.enabled.mechanisms": "PLAIN",
        "connection.failed.authentication.delay.ms": "1",
    }
    for name in ("asked", "both"):
        overrides[f"listener.name.{name}.plain.sasl.jaas.config"] = (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_user="secret";'
        )
    broker = BrokerProcess(tmp_path / "broker", overrides)
    try:
        yield broker.start(), ports
    finally:
        broker.remove()


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def flip(chance: random.Random, data: bytes) -> bytes:
    spoiled = bytearray(data)
    for _ in range(chance.randrange(1, 5)):
        if spoiled:
            spoiled[chance.randrange(len(spoiled))] ^= 1 << chance.randrange(8)
    if chance.random() < 0.2:
        del spoiled[chance.randrange(len(spoiled) + 1) :]
    if chance.random() < 0.1:
        spoiled += chance.randbytes(chance.randrange(100))
    return bytes(spoiled)


def drain(raw: socket.socket) -> None:
    """To the end of the stream, which comes once the broker has had enough, or has seen this side's end."""
    with contextlib.suppress(OSError):
        raw.shutdown(socket.SHUT_WR)
        while raw.recv(1 << 16):
            pass


def tls_peer(chance: random.Random, raw: socket.socket, context: ssl.SSLContext) -> int:
    """Speaks TLS until a flight of its choice, which is spoiled; or something else from the start. The flights."""
    if chance.random() < 0.2:
        head = chance.choice([b"", b"\x16\x03\x01", b"\x17\x03\x03\x40\0", b"\x15\x03\x03\0\2", b"\0\0\0\x10\0\x12"])
        raw.sendall(head + chance.randbytes(chance.randrange(3000)))
        return 1
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    peer = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    last = chance.randrange(4)
    for flight in range(last + 1):
        with contextlib.suppress(ssl.SSLWantReadError):
            peer.do_handshake()
            peer.write(frame(VERSIONS))
        data = outgoing.read()
        if flight == last and data:
            data = flip(chance, data)
        raw.sendall(data)
        if flight < last:
            incoming.write(raw.recv(1 << 16))
    return last + 1


def versions_peer(chance: random.Random, raw: socket.socket) -> int:
    """Asks for API versions in versions that do not exist, with any body, before an exchange. The frames.

    The broker answers each of them and waits for another one, as Kafka does.
    """
    count = chance.randrange(20, 400)
    asked = [
        frame(struct.pack(">hhih", 18, chance.randrange(5, 1 << 15), number, 1) + b"c" + chance.randbytes(number % 40))
        for number in range(count)
    ]
    raw.sendall(b"".join(asked))
    return count + sasl_peer(chance, raw)


def sasl_peer(chance: random.Random, raw: socket.socket) -> int:
    """An exchange whose frames are spoiled, in any order, alone or behind one another. The frames."""
    frames = [VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA, HANDSHAKE[:3] + b"\0" + HANDSHAKE[4:], TOKEN]
    wanted = [chance.choice(frames) for _ in range(chance.randrange(1, 5))]
    data = b"".join(frame(spoil(each, chance) if chance.random() < 0.7 else each) for each in wanted)
    raw.sendall(flip(chance, data) if chance.random() < 0.3 else data)
    return len(wanted)


Attack = Callable[[random.Random, socket.socket], int]
"""What a peer does on a connection without TLS, or within it."""


def assault(
    broker: BrokerProcess, ports: dict[str, int], count: int, seed: int, exchange: Attack = sasl_peer
) -> None:
    contexts = []
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = ssl.create_default_context(cadata=shared_ca().der)
        context.maximum_version = version
        contexts.append(context)
    neighbour = WellBehaved(broker.bootstrap)
    problems: list[str] = []
    sent: list[int] = []
    first = rss_bytes(broker.pid)

    def work(number: int) -> None:
        chance = random.Random(seed * 1000 + number)
        try:
            for _ in range(count // 3):
                name = chance.choice(list(ports))
                with socket.create_connection(("127.0.0.1", ports[name]), 60) as raw:
                    with contextlib.suppress(ConnectionError, ssl.SSLError):
                        sent.append(attack(chance, name, raw))
                    drain(raw)
        except BaseException as error:
            problems.append(f"seed {seed}: {error!r}")

    def attack(chance: random.Random, name: str, raw: socket.socket) -> int:
        context = chance.choice(contexts)
        if name == "ASKED":
            return exchange(chance, raw)
        if name == "SAFE" or chance.random() < 0.3:
            return tls_peer(chance, raw, context)
        with context.wrap_socket(raw.dup(), server_hostname="localhost") as wrapped:
            return exchange(chance, wrapped)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"KAFKAPY_FUZZ_SENT={sum(sent)}")
    assert problems == []
    assert broker.process is not None and broker.process.poll() is None
    neighbour.finish()
    assert rss_bytes(broker.pid) - first < GROWTH
    check_all_doors(ports, contexts[1])


def check_all_doors(ports: dict[str, int], context: ssl.SSLContext) -> None:
    """Every listener still serves who comes as it should."""
    for name, port in ports.items():
        with contextlib.ExitStack() as stack:
            raw: socket.socket = stack.enter_context(socket.create_connection(("localhost", port), 60))
            if name != "ASKED":
                raw = stack.enter_context(context.wrap_socket(raw, server_hostname="localhost"))
            asked = [METADATA] if name == "SAFE" else [HANDSHAKE, AUTHENTICATE, METADATA]
            for request in asked:
                raw.sendall(frame(request))
                size = struct.unpack(">i", exactly(raw.recv, 4))[0]
                assert exactly(raw.recv, size)[:4] == request[4:8]


def exactly(receive: Callable[[int], bytes], size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = receive(size - len(data))
        assert part, "the broker has closed the connection"
        data += part
    return data


@pytest.mark.timeout(600)
def test_spoiled_handshakes_and_exchanges(ports: tuple[BrokerProcess, dict[str, int]]) -> None:
    assault(*ports, count=int(os.environ.get("KAFKAPY_FUZZ_PEERS", "1500")), seed=1)


@pytest.mark.timeout(600)
def test_endless_questions_for_versions(ports: tuple[BrokerProcess, dict[str, int]]) -> None:
    assault(*ports, count=60, seed=2, exchange=versions_peer)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_many_endless_questions_for_versions(ports: tuple[BrokerProcess, dict[str, int]]) -> None:
    seed = int(os.environ.get("KAFKAPY_FUZZ_SEED", time.time_ns() % 2**40))
    print(f"KAFKAPY_FUZZ_SEED={seed}")
    assault(*ports, count=int(os.environ.get("KAFKAPY_FUZZ_PEERS", "200000")), seed=seed, exchange=versions_peer)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_many_spoiled_handshakes_and_exchanges(ports: tuple[BrokerProcess, dict[str, int]]) -> None:
    seed = int(os.environ.get("KAFKAPY_FUZZ_SEED", time.time_ns() % 2**40))
    print(f"KAFKAPY_FUZZ_SEED={seed}")
    assault(*ports, count=int(os.environ.get("KAFKAPY_FUZZ_PEERS", "200000")), seed=seed)
