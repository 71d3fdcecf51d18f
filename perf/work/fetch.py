"""W3: catch-up reads of data just written, so in the page cache; every batch header is checked on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import measure
from client import Client, batch_of_size, read_back, write_frames
from peers import LIMIT

from work.session import Metrics, Session, rates

BATCH_BYTES = 16 << 10
WHOLE = {16 << 10: 1, 1 << 20: 16}  # by size of a fetch: of so many replies one is copied out of the kernel whole
PARTITIONS = {1: 1, 8: 8}  # partitions for that many consumers: each reads one of its own


def _fill(session: Session, broker: Any, topic: str, partitions: int, total: int) -> int:
    """Gives the offset that every partition has reached."""
    batch, records = batch_of_size(BATCH_BYTES, 1000, 3)
    if len(batch) != BATCH_BYTES:
        raise RuntimeError(f"a batch of {len(batch)} bytes, {BATCH_BYTES} wanted")
    with session.folder("frames") as folder, Client(broker.port) as client:
        client.create_topic(topic, partitions)
        frames = write_frames(folder, topic, [batch] * partitions, 1)
        named = measure.options(
            port=broker.port, connections=partitions * 4, seconds=60, topic=topic, limit_bytes=total
        )
        answer = measure.run_native("load", "produce", *named, *frames)
        read_back(broker.port, topic, [batch] * partitions, records, answer["requests"], 1 << 20)
        return min(client.end_offsets(topic, partitions))


def _reader(
    session: Session, broker: Any, topic: str, consumers: int, end: int, size: int, pinned: bool
) -> Callable[[], Metrics]:
    def measured() -> Metrics:
        named = measure.options(
            port=broker.port,
            connections=consumers,
            seconds=session.seconds(1.0, 0.3),
            topic=topic,
            max_bytes=size,
            partitions=PARTITIONS[consumers],
            end_offset=end,
            pids=measure.pids(broker.pid),
            poll=measure.polls(pinned),
            whole=WHOLE[size],
        )
        return rates(measure.run_native("load", "fetch", *named, pinned=pinned))

    return measured


def catch_up(session: Session) -> None:
    """1 and 8 consumers, one partition each, 16 KB and 1 MB fetches; the log is of 16 KB batches."""
    _cells(session, True, (8,) if session.smoke else (1, 8), (16 << 10, 1 << 20))
    if not session.smoke:
        _cells(session, False, (8,), (1 << 20,))


def _cells(session: Session, pinned: bool, all_consumers: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    total = int(session.seconds(256 << 20, 32 << 20))
    with session.running(pinned=pinned, limit_batch=BATCH_BYTES) as brokers:
        for consumers in all_consumers:
            ends: dict[str, int] = {}
            for name, broker in brokers.items():
                try:
                    if name == LIMIT.name:
                        ends[name] = broker.batches // PARTITIONS[consumers]
                    else:
                        ends[name] = _fill(session, broker, f"r{consumers}", PARTITIONS[consumers], total)
                except Exception as error:
                    session.fail(name, "filling the log", error)
            for size in sizes:
                calls = {
                    name: _reader(session, brokers[name], f"r{consumers}", consumers, end, size, pinned)
                    for name, end in ends.items()
                }
                what = "1 MB" if size >= 1 << 20 else "16 KB"
                cell = f"{consumers} consumer{'s' if consumers > 1 else ''}, {what} fetches"
                session.in_turns(cell, calls, "pinned" if pinned else "unpinned")
