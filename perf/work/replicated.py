"""The load on replicated partitions, for the clusters of W10 and for their limit: a leader and two followers in C."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import measure
from client import batch_of_size, record_batch, write_frames
from peers.limit import ReplicatedLimit

from work.session import Metrics, Session, rates

PARTITIONS = 12
BATCH = 64 << 10
PRODUCE = "produce, acks=all, RF 3, batches of 64 KB"
PACED = "produce, acks=all, RF 3, at half of the maximum"
CATCH_UP = "catch-up of an empty follower"
TOPIC = "replicated"


def produce(session: Session, folder: Path, topic: str, port: int, pids: list[int], size: int) -> dict[str, Any]:
    """Produce with acks=all as fast as replies come, one connection for each partition. Gives what load.c printed."""
    batches = [batch_of_size(size, 1000, seed)[0] for seed in range(PARTITIONS)]
    named = measure.options(
        port=port,
        connections=PARTITIONS,
        seconds=session.seconds(3.0, 0.3),
        topic=topic,
        limit_bytes=int(session.seconds(1 << 30, 32 << 20)),
        pids=",".join(map(str, pids)),
    )
    return measure.run_native("load", "produce", *named, *write_frames(folder, topic, batches, -1), pinned=False)


def paced(session: Session, folder: Path, topic: str, port: int, pids: list[int], rate: float) -> Metrics:
    """One record of 1 KB a request at a fixed rate, acks=all; 0 for as fast as replies come."""
    batch = record_batch([b"KAFKAPY!" + bytes(8) + bytes(984)])
    named = measure.options(
        port=port,
        topic=topic,
        rate=rate,
        seconds=session.seconds(3.0, 0.5),
        warm_up=session.seconds(0.5, 0.2),
        connections=16,
        pids=",".join(map(str, pids)),
    )
    answer = measure.run_native("tail", *named, *write_frames(folder, topic, [batch], -1), pinned=False)
    return {
        "p50_us": answer["produce_us"]["p50"],
        "p99_us": answer["produce_us"]["p99"],
        "end_to_end_p99_us": answer["end_to_end_us"]["p99"],
        "requests_per_s": answer["requests"] / answer["seconds"],
        "cpu_us_per_request": answer["broker_cpu_s"] / answer["requests"] * 1e6,
    }


def fill(session: Session, folder: Path, topic: str, port: int, pids: list[int]) -> int:
    """Fills all partitions with batches of 1 MB; gives the bytes."""
    batches = [batch_of_size(1 << 20, 1000, seed)[0] for seed in range(PARTITIONS)]
    named = measure.options(
        port=port,
        connections=PARTITIONS,
        seconds=60,
        topic=topic,
        limit_bytes=int(session.seconds(1 << 30, 16 << 20)),
        pids=",".join(map(str, pids)),
    )
    answer = measure.run_native("load", "produce", *named, *write_frames(folder, topic, batches, -1), pinned=False)
    return int(answer["bytes"])


def copied(size: int, took: float, cpu: float) -> Metrics:
    """The metrics of a follower that has copied so many bytes."""
    return {"mb_per_s": size / took / 1e6, "cpu_s_per_gb": cpu / size * measure.GB, "seconds": took}


# --- the limit ------------------------------------------------------------------------------------------------------


@contextmanager
def _limit(session: Session, partitions: int) -> Iterator[tuple[ReplicatedLimit, Path]]:
    """A running leader with its followers, and a folder for frames. Unpinned."""
    with session.folder("w10-limit") as folder:
        cluster = ReplicatedLimit(folder / "cluster", TOPIC, partitions)
        try:
            cluster.start()
            yield cluster, folder / "frames"
        finally:
            cluster.kill()


def _limit_produce(session: Session) -> Metrics:
    with _limit(session, PARTITIONS) as (cluster, frames):
        return rates(produce(session, frames, TOPIC, cluster.port, cluster.pids, BATCH))


def _limit_paced(session: Session, rate: float) -> Metrics:
    with _limit(session, 1) as (cluster, frames):
        return paced(session, frames, TOPIC, cluster.port, cluster.pids, rate)


def _limit_catch_up(session: Session) -> Metrics:
    """The time and CPU of the new follower count from its start; it has nothing to start but to connect."""
    with _limit(session, PARTITIONS) as (cluster, frames):
        size = fill(session, frames, TOPIC, cluster.port, cluster.pids)
        leader = cluster.pids[0]
        before = measure.cpu_seconds(leader)
        answer = cluster.caught_up(2)
        return copied(size, answer["seconds"], answer["cpu_s"] + measure.cpu_seconds(leader) - before)


def limit_cells(session: Session, rate: float) -> dict[str, Callable[[], Metrics]]:
    """The cells of W10 that have a limit. The paced one has the rate of the clusters; without any, half of its own."""

    def at_rate() -> Metrics:
        return _limit_paced(session, rate or _limit_paced(session, 0)["requests_per_s"] / 2)

    return {
        PRODUCE: lambda: _limit_produce(session),
        PACED: at_rate,
        CATCH_UP: lambda: _limit_catch_up(session),
    }
