"""Statistics of a topic by sampling: a bounded number of records from places all over its log."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kafkapy.types import TopicPartition
from kafkapy_console.records.reader import Reading
from kafkapy_console.records.view import Viewer
from kafkapy_console.services.clients import Clients

__all__ = ["Statistics", "sampled"]

PLACES = 40
RECORDS_OF_A_PLACE = 50
HOUR_MS = 3_600_000
MOST_PARTITIONS = 200


@dataclass
class Statistics:
    """What the sample says. Sizes in bytes."""

    sampled: int = 0
    complete: bool = True
    """Whether the sample is the whole topic."""
    key_sizes: list[int] = field(default_factory=list)
    value_sizes: list[int] = field(default_factory=list)
    null_keys: int = 0
    tombstones: int = 0
    with_headers: int = 0
    key_formats: Counter[str] = field(default_factory=Counter)
    value_formats: Counter[str] = field(default_factory=Counter)
    distinct_keys: int = 0
    oldest: int | None = None
    newest: int | None = None
    last_hour: int | None = None
    last_day: int | None = None
    by_partition: dict[int, int] = field(default_factory=dict)
    """Offsets in the log of each partition."""

    @staticmethod
    def quantile(sizes: Sequence[int], share: float) -> int:
        """A quantile of sizes, 0 of none."""
        ordered = sorted(sizes)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0

    @property
    def skew(self) -> float | None:
        """The largest partition in parts of the mean; None for an empty topic."""
        counts = list(self.by_partition.values())
        total = sum(counts)
        return max(counts) * len(counts) / total if total else None


async def sampled(clients: Clients, partitions: Sequence[TopicPartition], viewer: Viewer) -> Statistics:
    """The statistics of a topic: of all its records where it is small, else of about 2,000."""
    found = Statistics()
    chosen = list(partitions)
    now_ms = int(time.time() * 1000)
    async with clients.consumer(isolation_level="read_committed") as consumer:
        begin, end = await consumer.beginning_offsets(chosen), await consumer.end_offsets(chosen)
        found.by_partition = {each.partition: max(0, end[each] - begin[each]) for each in chosen}
        for name, back in (("last_hour", HOUR_MS), ("last_day", 24 * HOUR_MS)):
            times = await consumer.offsets_for_times(dict.fromkeys(chosen, now_ms - back))
            count = sum(end[each] - at.offset for each in chosen if (at := times[each]) is not None)
            setattr(found, name, count)
        reading = Reading(consumer)
        for ranges in _ranges(chosen, begin, end):
            records = [record for each in (await reading.ranges(ranges)).values() for record in each]
            await viewer.prepare(records)
            _count(found, records, viewer)
        found.complete = found.sampled >= sum(found.by_partition.values()) and reading.complete
    return found


def _ranges(
    partitions: Sequence[TopicPartition], begin: dict[TopicPartition, int], end: dict[TopicPartition, int]
) -> list[dict[TopicPartition, tuple[int, int]]]:
    """Rounds of ranges, without overlaps: everything of a small topic, random places of a large one."""
    filled = [each for each in partitions if end[each] > begin[each]]
    total = sum(end[each] - begin[each] for each in filled)
    if total <= PLACES * RECORDS_OF_A_PLACE:
        return [{each: (begin[each], end[each]) for each in filled}] if filled else []
    places: dict[TopicPartition, set[int]] = {}
    for each in random.choices(filled, [end[each] - begin[each] for each in filled], k=PLACES):
        blocks = (end[each] - begin[each] + RECORDS_OF_A_PLACE - 1) // RECORDS_OF_A_PLACE
        places.setdefault(each, set()).add(random.randrange(blocks))
    rounds: list[dict[TopicPartition, tuple[int, int]]] = []
    for each, blocks_of in places.items():
        for number, block in enumerate(sorted(blocks_of)):
            while len(rounds) <= number:
                rounds.append({})
            low = begin[each] + block * RECORDS_OF_A_PLACE
            rounds[number][each] = low, min(low + RECORDS_OF_A_PLACE, end[each])
    return rounds


def _count(found: Statistics, records: Sequence[Any], viewer: Viewer) -> None:
    keys = set()
    for record in records:
        view = viewer.view(record)
        found.sampled += 1
        found.key_formats[_kind(view.key.format)] += 1
        found.value_formats[_kind(view.value.format)] += 1
        if record.key is None:
            found.null_keys += 1
        else:
            found.key_sizes.append(len(record.key))
            keys.add(record.key)
        if record.value is None:
            found.tombstones += 1
        else:
            found.value_sizes.append(len(record.value))
        found.with_headers += bool(record.headers)
        if record.timestamp >= 0:
            found.oldest = record.timestamp if found.oldest is None else min(found.oldest, record.timestamp)
            found.newest = record.timestamp if found.newest is None else max(found.newest, record.timestamp)
    found.distinct_keys += len(keys)


def _kind(form: str) -> str:
    return form.partition(" #")[0]
