"""Reads of records: pages backwards and forwards, searches, live tails. All by a consumer without a group.

Positions of a page are per partition, so that the next page misses and repeats nothing. Offsets are those of the log:
compacted logs, transaction markers and aborted records leave gaps, which a page does not count as records.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from kafkapy.aio import AIOKafkaConsumer
from kafkapy.types import TopicPartition
from kafkapy_console.services.clients import Clients

__all__ = [
    "Batch",
    "Page",
    "Reading",
    "Start",
    "newest",
    "oldest_from",
    "one_record",
    "parse_positions",
    "partitions_of",
    "positions_text",
    "scan",
    "tail",
]

DEADLINE_S = 15.0
"""Seconds after which a page shows what it has."""
MOST_BYTES = 64 << 20
"""Bytes of keys and values that a page holds."""
STEP_ROUNDS = 5
POLL_MS = 500
BATCH = 2000


@dataclass(frozen=True)
class Start:
    """The place where a read begins: "beginning", "end", "offset", "time" or "positions"."""

    kind: str
    number: int = 0
    """The offset, or the time in ms."""
    positions: Mapping[int, int] = field(default_factory=dict)
    """Offsets by partition."""


@dataclass
class Page:
    """Records of a page, newest or oldest first, with the places of the pages before and after it."""

    records: list[Any]
    begin: dict[TopicPartition, int]
    end: dict[TopicPartition, int]
    older: dict[int, int] | None
    """The offset by partition below which the older page begins; None at the beginning of the log."""
    newer: dict[int, int] | None
    """The offset by partition at which the newer page begins; None at the end of the log."""
    complete: bool = True
    """False when the read ended early, by its time or by its bytes."""


@dataclass(frozen=True)
class Batch:
    """Records of a search or a tail, and how far it is."""

    records: list[Any]
    done: int
    """Offsets behind the search, of `total`."""
    total: int
    finished: bool = False


async def newest(
    clients: Clients, partitions: Sequence[TopicPartition], limit: int, below: Mapping[int, int], isolation: str
) -> Page:
    """The newest records below the given offsets (missing: the end of the log), newest first."""
    async with clients.consumer(isolation_level=isolation) as consumer:
        begin, end = await _bounds(consumer, partitions)
        high = {each: min(end[each], below.get(each.partition, end[each])) for each in partitions}
        high = {each: max(high[each], begin[each]) for each in partitions}
        low = dict(high)
        found: dict[TopicPartition, list[Any]] = {each: [] for each in partitions}
        reading = Reading(consumer)
        width = limit
        for _ in range(STEP_ROUNDS):
            ranges = {}
            for each in partitions:
                if len(found[each]) < limit and low[each] > begin[each]:
                    bottom = max(begin[each], low[each] - width)
                    ranges[each] = bottom, low[each]
                    low[each] = bottom
            if not ranges:
                break
            for partition, records in (await reading.ranges(ranges)).items():
                found[partition] = records + found[partition]
            width *= 8
    for each in reading.unfinished:
        # Newer records of it are missing: it waits for the next page, whole.
        found[each], low[each] = [], high[each]
    kept = _merged([records[::-1] for records in found.values()], limit, -1)
    older = _lowest(kept, low, high, found)
    has_older = any(older[each] > begin[each] for each in partitions)
    newer = {each.partition: high[each] for each in partitions}
    return Page(
        kept,
        begin,
        end,
        {each.partition: older[each] for each in partitions} if has_older else None,
        newer if any(high[each] < end[each] for each in partitions) else None,
        reading.complete,
    )


def _merged(sources: Sequence[Sequence[Any]], limit: int, direction: int) -> list[Any]:
    """Records by time, each partition in the order of its offsets even where its times are not."""
    merged = heapq.merge(*sources, key=lambda record: direction * record.timestamp)
    return list(islice(merged, limit))


def _lowest(
    kept: Sequence[Any],
    low: Mapping[TopicPartition, int],
    high: Mapping[TopicPartition, int],
    found: Mapping[TopicPartition, Sequence[Any]],
) -> dict[TopicPartition, int]:
    """The offset by partition below which no record was shown."""
    lowest = {}
    shown: dict[TopicPartition, int] = {}
    for record in kept:
        key = TopicPartition(record.topic, record.partition)
        shown[key] = min(shown.get(key, record.offset), record.offset)
    for each, records in found.items():
        if each in shown:
            lowest[each] = shown[each]
        else:
            # Nothing of it was shown: its records, if any were found, are for the older page.
            lowest[each] = high[each] if records else low[each]
        if records and each in shown and shown[each] == records[0].offset:
            lowest[each] = low[each]
    return lowest


async def oldest_from(
    clients: Clients, partitions: Sequence[TopicPartition], limit: int, start: Start, isolation: str
) -> Page:
    """The first records at or after a place, oldest first."""
    async with clients.consumer(isolation_level=isolation) as consumer:
        begin, end = await _bounds(consumer, partitions)
        low = await _places(consumer, partitions, start, begin, end)
        position = dict(low)
        found: dict[TopicPartition, list[Any]] = {each: [] for each in partitions}
        reading = Reading(consumer)
        width = limit
        for _ in range(STEP_ROUNDS):
            ranges = {}
            for each in partitions:
                if len(found[each]) < limit and position[each] < end[each]:
                    top = min(end[each], position[each] + width)
                    ranges[each] = position[each], top
                    position[each] = top
            if not ranges:
                break
            for partition, records in (await reading.ranges(ranges)).items():
                found[partition] += records
            width *= 8
    for each in reading.unfinished:
        position[each] = found[each][-1].offset + 1 if found[each] else low[each]
    kept = _merged(list(found.values()), limit, 1)
    after = {}
    for each in partitions:
        shown = [record.offset for record in kept if record.partition == each.partition]
        if shown and found[each] and shown[-1] == found[each][-1].offset:
            after[each] = position[each]
        elif shown:
            after[each] = max(shown) + 1
        else:
            after[each] = low[each] if found[each] else position[each]
    return Page(
        kept,
        begin,
        end,
        {each.partition: low[each] for each in partitions} if any(low[e] > begin[e] for e in partitions) else None,
        {each.partition: after[each] for each in partitions} if any(after[e] < end[e] for e in partitions) else None,
        reading.complete,
    )


async def one_record(clients: Clients, partition: TopicPartition, offset: int) -> Any | None:
    """The record of an offset, None when the log has none there."""
    async with clients.consumer() as consumer:
        begin, end = await _bounds(consumer, [partition])
        if not begin[partition] <= offset < end[partition]:
            return None
        found = await Reading(consumer).ranges({partition: (offset, offset + 1)})
    return next((record for record in found[partition] if record.offset == offset), None)


async def scan(
    clients: Clients, partitions: Sequence[TopicPartition], start: Start, isolation: str, until: int | None = None
) -> AsyncGenerator[Batch, None]:
    """All records from a place to the end of the log as it is now, in batches with the progress.

    `until`: a time in ms; records from then on are left out.
    """
    async with clients.consumer(isolation_level=isolation, fetch_max_bytes=16 << 20) as consumer:
        begin, end = await _bounds(consumer, partitions)
        low = await _places(consumer, partitions, start, begin, end)
        if until is not None:
            times = await consumer.offsets_for_times(dict.fromkeys(partitions, until))
            ends = {each: found.offset for each, found in times.items() if found is not None}
            end = {each: min(end[each], ends.get(each, end[each])) for each in partitions}
        left = {each: (low[each], end[each]) for each in partitions if low[each] < end[each]}
        total = sum(high - at for at, high in left.values())
        done = dict.fromkeys(left, 0)
        yield Batch([], 0, total, not left)
        consumer.assign(list(left))
        for each, (at, _) in left.items():
            consumer.seek(each, at)
        while left:
            got = await consumer.getmany(timeout_ms=POLL_MS, max_records=BATCH)
            records = []
            for each in list(left):
                at, high = left[each]
                records += [record for record in got.get(each, ()) if record.offset < high]
                position = await consumer.position(each)
                done[each] = min(position, high) - at
                if position >= high:
                    del left[each]
                    consumer.pause(each)
            yield Batch(records, sum(done.values()), total, not left)
            await asyncio.sleep(0)


async def tail(
    clients: Clients, partitions: Sequence[TopicPartition], isolation: str
) -> AsyncGenerator[list[Any], None]:
    """Records from now on. An empty list about once a second."""
    async with clients.consumer(isolation_level=isolation) as consumer:
        consumer.assign(list(partitions))
        await consumer.seek_to_end(*partitions)
        while True:
            got = await consumer.getmany(timeout_ms=1000, max_records=500)
            records = [record for each in got.values() for record in each]
            records.sort(key=lambda record: (record.timestamp, record.offset))
            yield records


async def _bounds(
    consumer: AIOKafkaConsumer, partitions: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    begin = await consumer.beginning_offsets(partitions)
    end = await consumer.end_offsets(partitions)
    return begin, {each: max(end[each], begin[each]) for each in partitions}


async def _places(
    consumer: AIOKafkaConsumer,
    partitions: Sequence[TopicPartition],
    start: Start,
    begin: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """The offset of the first record of each partition, within the log."""
    if start.kind == "time":
        times = await consumer.offsets_for_times(dict.fromkeys(partitions, start.number))
        wanted = {each: end[each] if (at := times[each]) is None else at.offset for each in partitions}
    elif start.kind == "offset":
        wanted = dict.fromkeys(partitions, start.number)
    elif start.kind == "end":
        # A number of records before the end, of each partition.
        wanted = {each: end[each] - start.number for each in partitions}
    elif start.kind == "positions":
        wanted = {each: start.positions.get(each.partition, begin[each]) for each in partitions}
    else:
        wanted = dict(begin)
    return {each: min(max(wanted[each], begin[each]), end[each]) for each in partitions}


class Reading:
    """Reads ranges of offsets with one consumer, within a time and a number of bytes."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer
        self._deadline = time.monotonic() + DEADLINE_S
        self._bytes = 0
        self.complete = True
        self.unfinished: set[TopicPartition] = set()
        """The partitions whose last range was not read to its end."""

    async def ranges(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, list[Any]]:
        """The records of [low, high) of each partition, in order."""
        found: dict[TopicPartition, list[Any]] = {each: [] for each in ranges}
        left = dict(ranges)
        self._consumer.assign(list(left))
        # A partition of an earlier round is still paused.
        self._consumer.resume(*left)
        for each, (low, _) in left.items():
            self._consumer.seek(each, low)
        while left:
            if time.monotonic() > self._deadline or self._bytes > MOST_BYTES:
                self.complete = False
                self.unfinished.update(left)
                break
            got = await self._consumer.getmany(timeout_ms=POLL_MS, max_records=BATCH)
            for each in list(left):
                high = left[each][1]
                for record in got.get(each, ()):
                    if record.offset < high:
                        found[each].append(record)
                        self._bytes += _size(record)
                if await self._consumer.position(each) >= high:
                    del left[each]
                    self._consumer.pause(each)
        return found


def _size(record: Any) -> int:
    return max(0, record.serialized_key_size) + max(0, record.serialized_value_size)


def positions_text(positions: Mapping[int, int]) -> str:
    """Offsets by partition for an address: 0:17,1:20."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))


def parse_positions(text: str) -> dict[int, int]:
    """The offsets of `positions_text`. ValueError."""
    found = {}
    for part in filter(None, text.split(",")):
        partition, _, offset = part.partition(":")
        found[int(partition)] = int(offset)
    return found


def partitions_of(topic: str, numbers: Iterable[int]) -> list[TopicPartition]:
    """The partitions of a topic."""
    return [TopicPartition(topic, number) for number in numbers]
