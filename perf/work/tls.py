"""W9: produce, fetch and handshakes over TLS 1.3, beside a C program that does only OpenSSL and the file."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import measure
import peers
from client import Client, batch_of_size, read_back, wait_until_deleted, write_frames
from peers import LIMIT, Peer
from peers.apache_kafka import ApacheKafka, free_port

from work.fetch import BATCH_BYTES
from work.session import Metrics, Session, rates

PRODUCED = (64 << 10, 1 << 20)
FETCHED = (64 << 10, 1 << 20)
CONNECTIONS = 4
TOTAL = 256 << 20
WITHOUT_SECURITY = ("kfake",)


def write_pem(path: Path) -> None:
    """A P-256 key and its certificate, as a PEM keystore."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )


def tls_keys(peer: Peer, pem: Path) -> dict[str, str]:
    """The settings of a TLS listener."""
    if peer is LIMIT:
        return {"tls.pem": str(pem), "batch.bytes": str(BATCH_BYTES)}
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(pem), "ssl.enabled.protocols": "TLSv1.3"}


class Secured:
    """A running broker with a plaintext port, for topics and checks, and a secured port, which is measured."""

    def __init__(self, peer: Peer, folder: Path, protocol: str, keys: dict[str, str]) -> None:
        self.is_limit = peer is LIMIT
        self.secure_port = free_port()
        folder.mkdir(parents=True, exist_ok=True)
        self.broker: Any = peer.make(folder, peers.SOON_DELETED | keys)
        if not self.is_limit:
            self._add_listener(self.broker, protocol)
        self.broker.start()
        if self.is_limit:
            self.secure_port = self.broker.port

    def _add_listener(self, broker: Any, protocol: str) -> None:
        secured = f"{protocol}://127.0.0.1:{self.secure_port}"
        port = broker.port
        if isinstance(broker, ApacheKafka):
            broker.overrides["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{port},{secured}"
            if broker.with_quorum:
                secured += f",CONTROLLER://127.0.0.1:{broker.controller_port}"
                names = f"PLAINTEXT:PLAINTEXT,{protocol}:{protocol},CONTROLLER:PLAINTEXT"
                broker.overrides["listener.security.protocol.map"] = names
        broker.overrides["listeners"] = f"PLAINTEXT://127.0.0.1:{port},{secured}"


@contextmanager
def secured(
    session: Session, protocol: str, keys: Callable[[Peer, Path], dict[str, str]], with_limit: bool = True
) -> Iterator[dict[str, Secured]]:
    """The peers that have a listener of that protocol, side by side and pinned. `keys` may use a PEM keystore."""
    with ExitStack() as stack:
        folder = stack.enter_context(session.folder("w9"))
        stack.enter_context(measure.kept_awake() if measure.polls(True) else nullcontext())
        pem = folder / "broker.pem"
        write_pem(pem)
        found: dict[str, Secured] = {}
        try:
            for peer in session.peers if with_limit else session.brokers:
                if peer.name in WITHOUT_SECURITY:
                    continue
                try:
                    with measure.on_cores(measure.broker_cores(True)):
                        found[peer.name] = Secured(peer, folder / peer.name, protocol, keys(peer, pem))
                except Exception as error:
                    session.fail(peer.name, "start", error)
            session.pids = {name: each.broker.pid for name, each in found.items()}
            session.cold = {name: (pid, 0.0, 0.0) for name, pid in session.pids.items() if name != LIMIT.name}
            yield found
        finally:
            session.pids = {}
            for each in found.values():
                each.broker.kill()
                each.broker.remove()


def tls(session: Session) -> None:
    """Pinned, one core for the broker."""
    with secured(session, "SSL", tls_keys) as brokers, session.folder("frames") as folder:
        for size in PRODUCED[:1] if session.smoke else PRODUCED:
            cell = f"produce {_named(size)} batches of 1 KB records, acks=1"
            session.in_turns(
                cell, {name: _produce(session, folder, name, each, size) for name, each in brokers.items()}
            )
        ends = {}
        for name, each in brokers.items():
            try:
                ends[name] = each.broker.batches if each.is_limit else _fill(session, each)
            except Exception as error:
                session.fail(name, "filling the log", error)
        for size in FETCHED:
            calls = {name: _fetch(session, brokers[name], end, size) for name, end in ends.items()}
            session.in_turns(f"fetch {_named(size)}, {CONNECTIONS} consumers", calls)
        for resume in (False, True):
            cell = f"handshakes {'with' if resume else 'without'} a session"
            # Apache Kafka resumed no session of this load generator.
            able = {name: each for name, each in brokers.items() if not (resume and peers.by_name(name).is_apache)}
            session.in_turns(cell, {name: _handshakes(session, each, resume) for name, each in able.items()})


def _named(size: int) -> str:
    return "1 MB" if size >= 1 << 20 else f"{size >> 10} KB"


def _produce(session: Session, folder: Path, name: str, each: Secured, size: int) -> Callable[[], Metrics]:
    batch, records = batch_of_size(size, 1000, 9)
    turns = itertools.count()
    total = int(session.seconds(TOTAL, TOTAL / 8))

    def measured() -> Metrics:
        topic = f"w9-{name}-{size}-{next(turns)}".replace(".", "-")
        if not each.is_limit:
            with Client(each.broker.port) as client:
                client.create_topic(topic, 1)
        frames = write_frames(folder, topic, [batch], 1)
        named = measure.options(
            port=each.secure_port,
            connections=CONNECTIONS,
            seconds=session.seconds(1.0, 0.25),
            topic=topic,
            limit_bytes=total,
            pids=measure.pids(each.broker.pid),
            poll=measure.polls(True),
            tls=1,
        )
        measure.back_pages(folder, int(total * 1.1))
        answer = measure.run_native("load", "produce", *named, *frames)
        if not each.is_limit:
            read_back(each.broker.port, topic, [batch], records, answer["requests"], 1 << 20)
            with Client(each.broker.port) as client:
                client.delete_topic(topic)
            wait_until_deleted(each.broker.data_dir, topic)
        return rates(answer)

    return measured


def _fill(session: Session, each: Secured) -> int:
    batch, _ = batch_of_size(BATCH_BYTES, 1000, 3)
    with session.folder("fill") as folder, Client(each.broker.port) as client:
        client.create_topic("w9-read", 1)
        frames = write_frames(folder, "w9-read", [batch], 1)
        total = int(session.seconds(TOTAL, TOTAL / 8))
        named = measure.options(port=each.broker.port, connections=4, seconds=60, topic="w9-read", limit_bytes=total)
        measure.run_native("load", "produce", *named, *frames)
        return min(client.end_offsets("w9-read", 1))


def _fetch(session: Session, each: Secured, end: int, size: int) -> Callable[[], Metrics]:
    def measured() -> Metrics:
        named = measure.options(
            port=each.secure_port,
            connections=CONNECTIONS,
            seconds=session.seconds(1.0, 0.3),
            topic="w9-read",
            max_bytes=size,
            partitions=1,
            end_offset=end,
            pids=measure.pids(each.broker.pid),
            poll=measure.polls(True),
            tls=1,
        )
        return rates(measure.run_native("load", "fetch", *named))

    return measured


def _handshakes(session: Session, each: Secured, resume: bool) -> Callable[[], Metrics]:
    def measured() -> Metrics:
        named = measure.options(
            port=each.secure_port,
            seconds=session.seconds(1.0, 0.3),
            pids=measure.pids(each.broker.pid),
            tls=1,
            resume=int(resume),
        )
        answer = measure.run_native("load", "handshakes", *named)
        return {
            "handshakes_per_s": answer["requests"] / answer["seconds"],
            "cpu_us_per_request": answer["broker_cpu_s"] / answer["requests"] * 1e6,
            "p50_us": answer["latency_us"]["p50"],
            "p99_us": answer["latency_us"]["p99"],
            "load_cores": answer["load_cpu_s"] / answer["seconds"],
        }

    return measured
