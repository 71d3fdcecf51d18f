"""From ranges of offsets to tasks: large ranges are split, small ones of many partitions share a task.

Pure functions: equal arguments make equal plans. A batch that is planned again after a failure has the same offsets,
and other tasks perhaps, as averages of bytes may have changed: the source replays offsets, not tasks.
With minPartitions or maxRecordsPerPartition the plan is that of Spark's own Kafka source, one range to a task
(org.apache.spark.sql.kafka010.KafkaOffsetRangeCalculator).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kafkapy.types import TopicPartition

COST: Final = 1024
"""Of an offset whose bytes are not more than what rows are worth."""


class OffsetRange(NamedTuple):
    """Offsets from `start` up to, but without, `end` of one partition."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """Offsets in it; records may be fewer (compaction, transaction markers)."""
        return self.end - self.start


Task = tuple[OffsetRange, ...]
"""What one task reads, in this order."""


def plan_tasks(
    ranges: Sequence[OffsetRange],
    *,
    max_tasks: int | None,
    rows_per_task: int,
    default_tasks: int,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
    bytes_per_task: int | None = None,
    bytes_per_row: Mapping[TopicPartition, float] | None = None,
) -> list[Task]:
    """Tasks that read every offset of the ranges once. Empty ranges are left out.

    max_tasks        most tasks that may be made; None: as many as there are ranges, or `default_tasks` if those are
                     more
    rows_per_task    what makes one more task worth while
    bytes_per_task, bytes_per_row
                     the same by bytes, where it is known how many an offset of a partition has: a task is as large as
                     the greater of the two says
    min_partitions, max_records_per_partition
                     Spark's options of these names; either has precedence over the others
    """
    filled = [each for each in ranges if each.size > 0]
    if not filled:
        return []
    if min_partitions is not None or max_records_per_partition is not None:
        return [(each,) for each in split_as_spark(filled, min_partitions, max_records_per_partition)]
    costs = {}
    if bytes_per_task is not None:
        for partition, size in (bytes_per_row or {}).items():
            costs[partition] = max(COST, round(COST * size * rows_per_task / bytes_per_task))
    total = sum(each.size * costs.get(each.partition, COST) for each in filled)
    most = max(len(filled), default_tasks) if max_tasks is None else max_tasks
    return pack(filled, max(1, min(most, -(-total // (COST * rows_per_task)))), costs)


def pack(ranges: Sequence[OffsetRange], tasks: int, costs: Mapping[TopicPartition, int] | None = None) -> list[Task]:
    """So many tasks of equal cost (one offset more or less), cut from the ranges laid end to end: at most one cut for
    each task, and the ranges of a task are neighbours. They are fewer where one offset costs more than a task.

    costs: of an offset, by partition; COST where there is none.
    """
    ordered = sorted(ranges)
    cost_of = {each.partition: (costs or {}).get(each.partition, COST) for each in ordered}
    total = sum(each.size * cost_of[each.partition] for each in ordered)
    tasks = min(tasks, sum(each.size for each in ordered))
    out: list[Task] = []
    current: list[OffsetRange] = []
    done = 0
    number = 1
    for partition, start, end in ordered:
        while start < end:
            room = max((total * number // tasks - done) // cost_of[partition], 1)
            taken = min(room, end - start) if number < tasks else end - start
            current.append(OffsetRange(partition, start, start + taken))
            start += taken
            done += taken * cost_of[partition]
            if taken == room and number < tasks:
                out.append(tuple(current))
                current = []
                number += 1
                while number < tasks and total * number // tasks <= done:
                    number += 1
    if current:
        out.append(tuple(current))
    return out


def split_as_spark(
    ranges: Sequence[OffsetRange], min_partitions: int | None, max_records_per_partition: int | None
) -> list[OffsetRange]:
    """Ranges as Spark's own source splits them: none larger than `max_records_per_partition`; then about
    `min_partitions` of them, by splitting the large ones in proportion."""
    filled = [each for each in ranges if each.size > 0]
    if max_records_per_partition is not None:
        filled = [part for each in filled for part in _divided(each, math.ceil(each.size / max_records_per_partition))]
    if min_partitions is None or min_partitions <= len(filled):
        return filled
    total = sum(each.size for each in filled)
    small = [each for each in filled if _part_count(each.size, total, min_partitions) == 1]
    whole = {each.partition for each in small}  # a partition with a small range stays as it is
    large_total = total - sum(each.size for each in small)
    large_parts = max(min_partitions - len(small), 1)
    return [
        part
        for each in filled
        for part in _divided(each, 1 if each.partition in whole else _part_count(each.size, large_total, large_parts))
    ]


def _part_count(size: int, total: int, parts: int) -> int:
    return max(math.floor(size / total * parts + 0.5), 1)


def _divided(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    out = []
    start = whole.start
    for left in range(parts, 0, -1):
        end = start + (whole.end - start) // left
        if end > start:
            out.append(OffsetRange(whole.partition, start, end))
        start = end
    return out


def limit_rows(
    limit: int, start: dict[TopicPartition, int], end: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Ends so that about `limit` offsets lie between start and end: each partition's share of them in proportion to
    what it has, at least one where it has any. Partitions that `start` does not know keep their ends
    (KafkaMicroBatchStream.rateLimit)."""
    sizes = {partition: at - start[partition] for partition, at in end.items() if at > start.get(partition, at)}
    total = float(sum(sizes.values()))
    if total < 1:
        return dict(end)
    out = {}
    for partition, at in end.items():
        if partition in sizes:
            share = limit * (sizes[partition] / total)
            at = min(at, start[partition] + (math.ceil(share) if share < 1 else math.floor(share)))
        out[partition] = at
    return out
