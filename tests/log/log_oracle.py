"""What a log must hold, worked out from its batches alone: the reference that reopened logs are compared with."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.records import record_batch

HEADER = struct.Struct(">qiibIhiqqqhii")
TRANSACTIONAL, CONTROL = 0x10, 0x20
LOG_END = 2


@dataclass(frozen=True, slots=True)
class Batch:
    """One v2 batch as it stands in a log. `data` is all of it."""

    base: int
    last: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    attributes: int
    max_timestamp: int
    data: bytes

    @property
    def content(self) -> bytes:
        """What the producer sent: all behind the fields that the broker fills in."""
        return self.data[16:]


def parse_batch(data: bytes) -> Batch:
    """The first batch of these bytes."""
    base, length, epoch, magic, _, attributes, delta, _, newest, pid, pepoch, sequence, _ = HEADER.unpack_from(data)
    assert magic == 2
    return Batch(base, base + delta, epoch, pid, pepoch, sequence, attributes, newest, bytes(data[: length + 12]))


def parse_batches(data: bytes) -> list[Batch]:
    """Every whole batch of these bytes."""
    found, at = [], 0
    while len(data) - at >= 61 and len(data) - at >= int.from_bytes(data[at + 8 : at + 12], "big") + 12:
        batch = parse_batch(data[at:] if at else data)
        found.append(batch)
        at += len(batch.data)
    return found


def read_all(log: PartitionLog, *, max_bytes: int = 1 << 16) -> list[Batch]:
    """All batches from the log start to the log end, each with a sound CRC, in ascending order."""
    found: list[Batch] = []
    offset = log.log_start_offset
    while data := log.read(offset, max_bytes, isolation=LOG_END)[0]:
        part = parse_batches(data)
        assert part, "bytes that are no batch"
        for batch in part:
            assert record_batch.check_crc(batch.data), f"a torn batch at {batch.base}"
            assert batch.last >= offset, "out of order"
            offset = batch.last + 1
        found += part
    return found


def is_commit(batch: Batch) -> bool:
    """Of a control batch."""
    return batch.data[61 + 5 + 3] == 1


@dataclass(slots=True)
class Derived:
    """What the producer state manager makes of batches."""

    aborted: list[tuple[int, int, int, int]] = field(default_factory=list)
    open: dict[int, int] = field(default_factory=dict)
    producers: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Producer id to epoch, last sequence and last offset (-1 behind a marker of a newer epoch)."""


def derive(batches: Iterable[Batch], known: Derived | None = None) -> Derived:
    """Transactions and producers, from the first batch on, or `known` (changed in place) continued."""
    state = known or Derived()
    for batch in batches:
        producer = batch.producer_id
        if producer < 0:
            continue
        epoch, sequence, offset = state.producers.get(producer, (-1, -1, -1))
        if epoch != batch.producer_epoch:
            epoch, sequence, offset = batch.producer_epoch, -1, -1
        if batch.attributes & CONTROL:
            first = state.open.pop(producer, -1)
            if first >= 0 and not is_commit(batch):
                stable = min(state.open.values(), default=batch.last + 1)
                state.aborted.append((producer, first, batch.last, stable))
        else:
            sequence, offset = (batch.base_sequence + batch.last - batch.base) & 0x7FFFFFFF, batch.last
            if batch.attributes & TRANSACTIONAL:
                state.open.setdefault(producer, batch.base)
        state.producers[producer] = (epoch, sequence, offset)
    return state


def check_derived(
    log: PartitionLog, batches: Sequence[Batch], before: Sequence[Batch] = (), *, whole: bool = True
) -> None:
    """The log's transactions, producers, leader epochs and time index say what its batches say.

    `before`: batches below the log start that were in the log once. `whole`: nothing that speaks of those was lost.
    """
    start = log.log_start_offset
    known = derive([*before, *batches])

    def visible(entries: Iterable[tuple[int, int, int, int]]) -> list[Any]:
        kept = [entry for entry in entries if entry[2] >= start]
        return kept if whole else [(entry[0], max(entry[1], start), entry[2]) for entry in kept]

    expected = known if whole else derive(batches)
    found = visible(log.aborted_transactions())
    if not whole:
        # What was below the start may be known or not.
        assert (
            {entry[2] for entry in expected.aborted} <= {entry[2] for entry in found} <= {e[2] for e in known.aborted}
        )
    else:
        assert found == visible(known.aborted), (found, visible(known.aborted))
    producers = {entry["producer_id"]: entry for entry in log.producers()}
    for producer, (epoch, sequence, offset) in expected.producers.items():
        entry = producers[producer]
        said = (entry["epoch"], entry["last_sequence"], entry["last_offset"])
        assert said == (epoch, sequence, offset) or (not whole and said == known.producers[producer]), producer
        assert max(entry["current_transaction_first_offset"], -1) == known.open.get(producer, -1) or not whole
    assert producers.keys() <= known.producers.keys()
    if log.high_watermark == log.log_end_offset:
        stable = min(known.open.values(), default=log.log_end_offset)
        assert max(stable, start) == max(log.last_stable_offset, start) or not whole
    epochs = log.leader_epochs()
    assert all(low[0] < high[0] and low[1] < high[1] for low, high in pairwise(epochs)), epochs
    for batch in batches:
        of = [epoch for epoch, first in epochs if first <= max(batch.base, start)]
        # A log start that was lost, as it was in no checkpoint yet, has moved the first epoch's start all the same.
        moved = not of and epochs[0][1] > batch.base
        assert moved or of[-1] == batch.leader_epoch, (batch.base, batch.leader_epoch, epochs)


def check_time(log: PartitionLog, batches: Sequence[Batch], timestamp: int) -> None:
    """find_timestamp gives the first batch that holds a record at or above the timestamp. A marker is no record."""
    found = log.find_timestamp(timestamp)
    expected = next((b for b in batches if b.max_timestamp >= timestamp and not b.attributes & CONTROL), None)
    assert found == (expected.data if expected is not None else None), timestamp
