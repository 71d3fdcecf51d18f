"""W5: 1,000 and 10,000 partitions, one record in each, so that a start has something to load and to recover."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measure
import peers
from client import METADATA, Client, record_batch, value
from peers import KAFKAPY, Peer

from work.session import Metrics, Session

TOPICS = 10
PRODUCE_AT_ONCE = 100


def topic_name(index: int) -> str:
    return f"many-{index}"


def ready(port: int, partitions: int, records: bytes, timeout_s: float = 300) -> None:
    """Waits until every partition has a leader and every topic's last one accepts a record. Raises RuntimeError."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            with Client(port) as client:
                while True:
                    if client.partitions_with_leader() >= partitions:
                        last = [partitions // TOPICS - 1]
                        if all(client.produce(topic_name(i), last, records) == 0 for i in range(TOPICS)):
                            return
                    if time.monotonic() > deadline:
                        raise RuntimeError(f"not all of {partitions} partitions serve after {timeout_s} s")
                    time.sleep(0.005)
        except OSError:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no answer after {timeout_s} s") from None
            time.sleep(0.005)


def _create(port: int, partitions: int) -> None:
    with Client(port, timeout_s=300) as client:
        for index in range(TOPICS):
            client.create_topic(topic_name(index), partitions // TOPICS)


def _fill(port: int, partitions: int, records: bytes) -> None:
    each = partitions // TOPICS
    with Client(port) as client:
        for index in range(TOPICS):
            for first in range(0, each, PRODUCE_AT_ONCE):
                code = client.produce(topic_name(index), range(first, min(first + PRODUCE_AT_ONCE, each)), records)
                if code:
                    raise RuntimeError(f"produce to {topic_name(index)}: error {code}")


def _metadata(port: int, pid: int, times: int) -> Metrics:
    """Median microseconds until the whole answer about all topics is here, and the broker's CPU for it."""
    taken = []
    with Client(port) as client:
        request = client.metadata_request()
        client.exchange(request, METADATA)
        cpu = measure.cpu_seconds(pid)
        for _ in range(times):
            begin = time.perf_counter()
            answer = client.exchange(request, METADATA)
            taken.append(time.perf_counter() - begin)
        cpu = measure.cpu_seconds(pid) - cpu
    return {
        "metadata_us": statistics.median(taken) * 1e6,
        "metadata_cpu_us": cpu / times * 1e6,
        "metadata_bytes": len(answer),
    }


def _started(broker: Any, partitions: int, records: bytes) -> float:
    begin = time.perf_counter()
    broker.start()
    ready(broker.port, partitions, records)
    return time.perf_counter() - begin


def _one(session: Session, peer: Peer, partitions: int) -> Callable[[], Metrics]:
    def measured() -> Metrics:
        records = record_batch([value(100, random.Random(2))])
        with session.folder("many") as folder:
            broker = peers.started(peer, Path(folder) / peer.name, _overrides(peer))
            try:
                created = peers.seconds_to(lambda: _create(broker.port, partitions))
                _fill(broker.port, partitions, records)
                metrics = _metadata(broker.port, broker.pid, 5 if partitions > 1000 else 20)
                metrics |= {"create_s": created, "rss_mb": measure.rss_bytes(broker.pid) / 1e6}
                metrics["stop_s"] = peers.seconds_to(lambda: broker.stop(timeout_s=180))
                metrics["start_clean_s"] = _started(broker, partitions, records)
                metrics["rss_after_start_mb"] = measure.rss_bytes(broker.pid) / 1e6
                metrics["descriptors"] = measure.file_descriptors(broker.pid)
                broker.kill()
                metrics["start_killed_s"] = _started(broker, partitions, records)
            finally:
                broker.kill()
                broker.remove()
        return metrics

    return measured


def _overrides(peer: Peer) -> dict[str, str]:
    # By default Kafka waits 9 s after a SIGKILL for the broker's former session to end: a setting, not work.
    return {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "250"} if peer.is_apache else {}


def many(session: Session) -> None:
    """Unpinned: what a start does in parallel is part of it."""
    compared = [peer for peer in session.brokers if peer is KAFKAPY or peer.is_apache]
    rounds = session.rounds
    for partitions in (100,) if session.smoke else (1000, 10_000):
        session.rounds = 1 if partitions > 1000 else min(rounds, 2)
        calls = {peer.name: _one(session, peer, partitions) for peer in compared}
        session.in_turns(f"{partitions:,} partitions", calls, "unpinned", warm_up=False)
    session.rounds = rounds
