"""W6: a warm start up to the first accepted produce, memory at rest, memory under the load of W1."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measure
import peers
from client import Client, batch_of_size, record_batch, write_frames
from peers import LIMIT, Peer

from work.session import Metrics, Session

PARTITIONS = 12


def first_accepted(port: int, topic: str, records: bytes, timeout_s: float = 120.0) -> None:
    """Returns once a record was accepted. Raises RuntimeError."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            with Client(port, timeout_s=10) as client:
                while client.produce(topic, [0], records):
                    if time.monotonic() > deadline:
                        break
                    time.sleep(0.001)
                else:
                    return
        except OSError:
            time.sleep(0.001)
    raise RuntimeError(f"no record was accepted within {timeout_s} s")


def _one(session: Session, broker: Any, folder: Path) -> Callable[[], Metrics]:
    records = record_batch([b"first"])
    batches = [batch_of_size(1 << 20, 1000, seed)[0] for seed in range(PARTITIONS)]

    def measured() -> Metrics:
        begin = time.perf_counter()
        broker.start()
        listening = time.perf_counter() - begin
        first_accepted(broker.port, "w6", records)
        accepted = time.perf_counter() - begin
        start_cpu = measure.cpu_seconds(broker.pid)
        time.sleep(session.seconds(2.0, 0.5))
        idle = measure.rss_bytes(broker.pid)
        cpu = measure.cpu_seconds(broker.pid)
        time.sleep(session.seconds(2.0, 0.5))
        idle_cpu = (measure.cpu_seconds(broker.pid) - cpu) / session.seconds(2.0, 0.5)
        frames = write_frames(folder, "w6", batches, 1)
        named = measure.options(
            port=broker.port,
            connections=PARTITIONS,
            seconds=session.seconds(2.0, 0.3),
            topic="w6",
            limit_bytes=512 << 20,
            pids=measure.pids(broker.pid),
        )
        with measure.PeakMemory(broker.pid) as memory:
            measure.run_native("load", "produce", *named, *frames)
        broker.stop()
        return {
            "listening_s": listening,
            "first_produce_s": accepted,
            "start_cpu_s": start_cpu,
            "idle_rss_mb": idle / 1e6,
            "idle_cpu_share": idle_cpu,
            "rss_under_load_mb": memory.peak / 1e6,
        }

    return measured


def start_and_memory(session: Session) -> None:
    """One broker at a time is up; unpinned. The data directory and its topic exist already."""
    with session.folder("w6") as folder:
        brokers: dict[str, Any] = {}
        calls: dict[str, Callable[[], Metrics]] = {}
        for peer in session.brokers:
            try:
                brokers[peer.name] = broker = _prepared(peer, folder / peer.name)
                calls[peer.name] = _one(session, broker, folder / "frames")
            except Exception as error:
                session.fail(peer.name, "first start", error)
        try:
            session.in_turns("start and memory", calls, "unpinned", warm_up=False)
        finally:
            for broker in brokers.values():
                broker.kill()
                broker.remove()


def _prepared(peer: Peer, folder: Path) -> Any:
    if peer is LIMIT:
        raise RuntimeError("the limit has no start to measure")
    # Old segments go soon: the rounds write 512 MB each.
    broker = peers.started(peer, folder, {"log.retention.bytes": str(64 << 20), "log.segment.bytes": str(64 << 20)})
    with Client(broker.port) as client:
        client.create_topic("w6", PARTITIONS)
    broker.stop()
    return broker
