"""W1 and W2: produce. A new topic for every round, read back and compared, then deleted."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measure
from client import Client, batch_of_size, read_back, record_batch, value, wait_until_deleted, write_frames
from peers import LIMIT

from kafkapy.types import CompressionType
from work.session import Metrics, Session, rates

LIMIT_BYTES = 256 << 20
SAMPLE_BYTES = 1 << 20
W1_BATCHES = (64 << 10, 1 << 20)
W1_UNPINNED = ((64 << 10, 1, 12, "none"), (1 << 20, 1, 12, "none"))
CONNECTIONS_OF_ONE_PARTITION = 4


W2_CELLS = [(1, 1), (64, 1), (64, 64), (512, 1)]
"""(connections, partitions)"""


class Cell:
    """One combination to measure: owns its frames; `round(broker)` gives a callable for one round."""

    def __init__(
        self, session: Session, folder: Path, batches: list[bytes], records: int, connections: int, acks: int
    ) -> None:
        self.session = session
        self.folder = folder
        self.batches = batches
        self.records = records
        self.connections = connections
        self.acks = acks
        self.turns = itertools.count()

    def round(self, name: str, broker: Any, pinned: bool) -> Callable[[], Metrics]:
        seconds = self.session.seconds(1.0, 0.25)

        def measured() -> Metrics:
            topic = f"w-{self.session.work}-{name}-{next(self.turns)}".replace(".", "-").lower()
            is_broker = name != LIMIT.name
            if is_broker:
                with Client(broker.port) as client:
                    client.create_topic(topic, len(self.batches))
            frames = write_frames(self.folder, topic, self.batches, self.acks)
            named = measure.options(
                port=broker.port,
                connections=self.connections,
                seconds=seconds,
                topic=topic,
                limit_bytes=int(self.session.seconds(LIMIT_BYTES, LIMIT_BYTES / 8)),
                pids=measure.pids(broker.pid),
                poll=measure.polls(pinned),
            )
            measure.back_pages(self.folder, int(self.session.seconds(LIMIT_BYTES, LIMIT_BYTES / 8) * 1.1))
            answer = measure.run_native("load", "produce", *named, *frames, pinned=pinned)
            metrics = rates(answer) | {"rss_mb": measure.rss_bytes(broker.pid) / 1e6}
            if is_broker:
                read_back(
                    broker.port,
                    topic,
                    self.batches,
                    self.records,
                    answer["requests"],
                    SAMPLE_BYTES // len(self.batches),
                )
                with Client(broker.port) as client:
                    client.delete_topic(topic)
                wait_until_deleted(broker.data_dir, topic)
            for frame in frames:
                Path(frame).unlink()
            return metrics

        return measured


def _measure(session: Session, brokers: dict[str, Any], cell: Cell, name: str, pinned: bool) -> None:
    calls = {peer: cell.round(peer, broker, pinned) for peer, broker in brokers.items()}
    session.in_turns(name, calls, "pinned" if pinned else "unpinned")


def _batches(size: int, partitions: int, codec: str) -> tuple[list[bytes], int]:
    compression = CompressionType[codec.upper()]
    made = [batch_of_size(size, 1000, seed, compression) for seed in range(partitions)]
    return [batch for batch, _ in made], made[0][1]


def w1_cells(smoke: bool) -> list[tuple[int, int, int, str]]:
    """(batch bytes, acks, partitions, codec)"""
    if smoke:
        return [(64 << 10, 1, 1, "none"), (1 << 20, -1, 12, "lz4")]
    zstd = [(size, 1, 1, "zstd") for size in W1_BATCHES]
    return [*itertools.product(W1_BATCHES, (1, -1), (1, 12), ("none", "lz4")), *zstd]


def w1_name(size: int, acks: int, partitions: int, codec: str) -> str:
    return (
        f"{'1 MB' if size >= 1 << 20 else f'{size >> 10} KB'}, acks={'all' if acks < 0 else acks}, "
        f"{partitions} partition{'s' if partitions > 1 else ''}, {codec}"
    )


def batches(session: Session) -> None:
    """W1: 1 KB records; 4 connections to one partition, or one to each of 12."""
    for pinned in (True, False):
        with session.running(pinned=pinned) as brokers, session.folder("frames") as folder:
            for size, acks, partitions, codec in w1_cells(session.smoke):
                if not pinned and (size, acks, partitions, codec) not in W1_UNPINNED:
                    continue
                sent, records = _batches(size, partitions, codec)
                connections = CONNECTIONS_OF_ONE_PARTITION if partitions == 1 else partitions
                cell = Cell(session, folder, sent, records, connections, acks)
                _measure(session, brokers, cell, w1_name(size, acks, partitions, codec), pinned)


def requests(session: Session) -> None:
    """W2: one 100-byte record a request, to one partition, or each connection to a partition of its own."""
    small = record_batch([value(100, random.Random(1))])
    for pinned in (True,) if session.smoke else (True, False):
        with session.running(pinned=pinned) as brokers, session.folder("frames") as folder:
            for connections, partitions in ((64, 1),) if session.smoke or not pinned else W2_CELLS:
                cell = Cell(session, folder, [small] * partitions, 1, connections, 1)
                name = f"{connections} connection{'s' if connections > 1 else ''}"
                name += f", {partitions} partitions" if partitions > 1 else ""
                _measure(session, brokers, cell, name, pinned)
