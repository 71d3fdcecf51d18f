"""Splitting and packing of offset ranges."""

from __future__ import annotations

import math
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafkapy_spark.planning import OffsetRange, Task, limit_rows, pack, plan_tasks, split_as_spark

from kafkapy.types import TopicPartition


def ranges_of(*sizes: int, first: int = 0) -> list[OffsetRange]:
    return [OffsetRange(TopicPartition("t", number), first, first + size) for number, size in enumerate(sizes)]


RANGES = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**7)), max_size=40).map(
    lambda pairs: [
        OffsetRange(TopicPartition(f"t{number % 3}", number), start, start + size)
        for number, (start, size) in enumerate(pairs)
    ]
)
SOME = st.none() | st.integers(1, 200)


def assert_covered_once(ranges: list[OffsetRange], parts: list[OffsetRange]) -> None:
    by_partition = defaultdict(list)
    for part in parts:
        assert part.size > 0
        by_partition[part.partition].append((part.start, part.end))
    for whole in ranges:
        at = whole.start
        for start, end in sorted(by_partition.pop(whole.partition, [])):
            assert start == at
            at = end
        assert at == whole.end
    assert not by_partition


@settings(max_examples=40, deadline=None)
@given(RANGES, SOME, st.integers(1, 10**6), st.integers(1, 64), SOME, st.none() | st.integers(10**4, 10**7))
def test_every_offset_is_read_once(
    ranges: list[OffsetRange],
    max_tasks: int | None,
    rows_per_task: int,
    default_tasks: int,
    min_partitions: int | None,
    max_records: int | None,
) -> None:
    """Acceptance 11."""
    tasks = plan_tasks(
        ranges,
        max_tasks=max_tasks,
        rows_per_task=rows_per_task,
        default_tasks=default_tasks,
        min_partitions=min_partitions,
        max_records_per_partition=max_records,
    )
    assert all(tasks)
    assert_covered_once(ranges, [each for task in tasks for each in task])
    if min_partitions is None and max_records is None and max_tasks is not None:
        assert len(tasks) <= max_tasks
    if max_records is not None:
        assert all(each.size <= max_records for task in tasks for each in task)


@settings(max_examples=40, deadline=None)
@given(RANGES.filter(lambda ranges: any(each.size for each in ranges)), st.integers(1, 300))
def test_packed_tasks_are_of_one_size(ranges: list[OffsetRange], tasks: int) -> None:
    packed = pack(ranges, tasks)
    sizes = [sum(each.size for each in task) for task in packed]
    total = sum(each.size for each in ranges)
    assert len(packed) == min(tasks, total) and max(sizes) - min(sizes) <= 1
    filled = sum(each.size > 0 for each in ranges)
    assert sum(len(task) for task in packed) <= filled + len(packed) - 1


@settings(max_examples=50, deadline=None)
@given(
    RANGES.filter(lambda ranges: any(each.size for each in ranges)), st.integers(1, 300),
    st.dictionaries(st.integers(0, 8).map(lambda at: TopicPartition(f"t{at % 3}", at)), st.floats(0, 10**7)),
)  # fmt: skip
def test_tasks_are_of_equal_bytes_where_these_are_known(
    ranges: list[OffsetRange], most: int, bytes_per_row: dict[TopicPartition, float]
) -> None:
    """An offset costs what its share of a task is, by rows or by bytes."""
    rows_per_task, bytes_per_task = 100, 1 << 20

    def plan() -> list[Task]:
        return plan_tasks(
            ranges, max_tasks=most, rows_per_task=rows_per_task, default_tasks=2, bytes_per_task=bytes_per_task,
            bytes_per_row=bytes_per_row,
        )  # fmt: skip

    def cost(partition: TopicPartition) -> float:
        return max(1 / rows_per_task, bytes_per_row.get(partition, 0) / bytes_per_task)

    tasks = plan()
    assert tasks == plan()
    assert all(tasks) and len(tasks) <= most
    assert_covered_once(ranges, [each for task in tasks for each in task])
    total = sum(each.size * cost(each.partition) for each in ranges)
    dearest = max(cost(each.partition) for each in ranges if each.size)
    # Averages count in 1/1024 of a row's cost.
    for task in tasks:
        spent = sum(each.size * cost(each.partition) for each in task)
        assert spent <= 1.01 * (max(total / most, 1) + 2 * dearest)


def test_large_records_make_more_tasks() -> None:
    ranges = ranges_of(10_000, 10_000)
    small, large = (each.partition for each in ranges)
    plan = plan_tasks(
        ranges, max_tasks=None, rows_per_task=250_000, default_tasks=16, bytes_per_task=128 << 20,
        bytes_per_row={small: 100, large: 100_000},
    )  # fmt: skip
    assert len(plan) == 8
    assert [sum(each.size for each in task if each.partition == small) for task in plan][1:] == [0] * 7
    sizes = [sum(each.size for each in task if each.partition == large) for task in plan]
    assert all(1200 <= size <= 1300 for size in sizes)


def test_many_small_partitions_share_a_task() -> None:
    """Acceptance 16."""
    plan = plan_tasks(ranges_of(*[10] * 128), max_tasks=2, rows_per_task=250_000, default_tasks=2)
    assert [len(task) for task in plan] == [128]
    plan = plan_tasks(ranges_of(*[10_000] * 128), max_tasks=2, rows_per_task=250_000, default_tasks=2)
    assert [len(task) for task in plan] == [64, 64]


def test_a_large_partition_is_split() -> None:
    plan = plan_tasks(ranges_of(1_000_001, first=7), max_tasks=4, rows_per_task=250_000, default_tasks=1)
    assert [(task[0].start, task[0].end) for task in plan] == [
        (7, 250_007), (250_007, 500_007), (500_007, 750_007), (750_007, 1_000_008)
    ]  # fmt: skip


def test_without_max_tasks_there_are_as_many_tasks_as_ranges_or_processors() -> None:
    def tasks(*sizes: int) -> int:
        return len(plan_tasks(ranges_of(*sizes), max_tasks=None, rows_per_task=100, default_tasks=2))

    assert tasks(10_000) == 2
    assert tasks(*[10_000] * 5) == 5
    assert tasks(*[10] * 50) == 5
    assert tasks(0, 0) == 0


@pytest.mark.parametrize(
    ("sizes", "min_partitions", "max_records", "expected"),
    [
        ((1,), None, None, [1]),
        ((1, 1), 1, None, [1, 1]),
        ((5,), 3, None, [1, 2, 2]),
        ((100, 5, 200), 3, None, [100, 5, 200]),
        ((100, 1, 10), 4, None, [50, 50, 1, 10]),
        ((4, 4, 4, 4), 1, 2, [2] * 8),
        ((0, 3), None, None, [3]),
        ((10,), None, 4, [3, 3, 4]),
        ((10, 2), 6, 5, [1, 2, 2, 1, 2, 2, 2]),
        ((5, 5, 4), 9, 3, [2, 3, 2, 3, 2, 2]),
    ],
)
def test_splitting_as_spark_does(
    sizes: tuple[int, ...], min_partitions: int | None, max_records: int | None, expected: list[int]
) -> None:
    assert [part.size for part in split_as_spark(ranges_of(*sizes), min_partitions, max_records)] == expected


OFFSETS = st.dictionaries(st.integers(0, 30), st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), max_size=20)


@settings(max_examples=40, deadline=None)
@given(OFFSETS, st.integers(1, 10**9))
def test_limited_ends_lie_between_start_and_end(offsets: dict[int, tuple[int, int]], limit: int) -> None:
    start = {TopicPartition("t", number): at for number, (at, _) in offsets.items()}
    end = {TopicPartition("t", number): at + size for number, (at, size) in offsets.items()}
    limited = limit_rows(limit, start, end)
    assert limited.keys() == end.keys()
    assert all(start[partition] <= at <= end[partition] for partition, at in limited.items())
    assert all(limited[partition] > start[partition] for partition in end if end[partition] > start[partition])
    filled = sum(end[partition] > start[partition] for partition in end)
    assert sum(limited.values()) - sum(start.values()) <= limit + filled


def test_a_limit_is_shared_in_proportion() -> None:
    parts = [TopicPartition("t", number) for number in range(3)]
    start = dict.fromkeys(parts, 100)
    end = {parts[0]: 1100, parts[1]: 200, parts[2]: 100}
    assert limit_rows(110, start, end) == {parts[0]: 200, parts[1]: 110, parts[2]: 100}
    assert limit_rows(2, start, end)[parts[1]] == 101
    assert math.isclose(limit_rows(10**6, start, end)[parts[0]], 1100)
