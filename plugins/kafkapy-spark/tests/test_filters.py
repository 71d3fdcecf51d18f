"""Ranges that a query's filters leave."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark")

from kafkapy_spark.filters import PushedFilters
from kafkapy_spark.options import SourceOptions
from kafkapy_spark.planning import OffsetRange
from kafkapy_spark.reader import KafkapyReader
from kafkapy_spark.schema import SCHEMA
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from kafkapy.types import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
RANGES = [OffsetRange(A0, 0, 100), OffsetRange(A1, 50, 100), OffsetRange(B0, 0, 10)]


def left(*filters: Filter) -> list[tuple[TopicPartition, int, int]]:
    """What is read when records of offset n are of the time n s, and those of partition a-1 of none."""

    def at_times(times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return {partition: None if partition == A1 else -(-at // 1000) for partition, at in times.items()}

    pushed = PushedFilters()
    assert list(pushed(list(filters))) == list(filters)
    return [tuple(each) for each in pushed.narrow(RANGES, at_times)]


ALL = [(A0, 0, 100), (A1, 50, 100), (B0, 0, 10)]
SECOND_9 = datetime.fromtimestamp(9, UTC)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], ALL),
        ([IsNotNull(("offset",)), EqualTo(("value",), b"x"), Not(EqualTo(("partition",), 0))], ALL),
        ([EqualTo(("topic",), "b")], [(B0, 0, 10)]),
        ([In(("topic",), ("b", "c")), EqualTo(("topic",), "a")], []),
        ([In(("partition",), (1, 2))], [(A1, 50, 100)]),
        ([GreaterThan(("offset",), 49), LessThan(("offset",), 60)], [(A0, 50, 60), (A1, 50, 60)]),
        ([GreaterThanOrEqual(("offset",), 5), LessThanOrEqual(("offset",), 9)], [(A0, 5, 10), (B0, 5, 10)]),
        ([EqualTo(("offset",), 50)], [(A0, 50, 51), (A1, 50, 51)]),
        ([In(("offset",), (3, None, 7))], [(A0, 3, 8), (B0, 3, 8)]),
        ([LessThan(("offset",), 0)], []),
        ([GreaterThanOrEqual(("timestamp",), SECOND_9)], [(A0, 9, 100), (B0, 9, 10)]),
        ([GreaterThan(("timestamp",), SECOND_9), LessThan(("timestamp",), SECOND_9)], [(A0, 9, 100), (B0, 9, 10)]),
        ([LessThan(("timestamp",), SECOND_9)], ALL),
    ],
)  # fmt: skip
def test_ranges_that_are_left(filters: list[Filter], expected: list[tuple[TopicPartition, int, int]]) -> None:
    """Acceptance 13."""
    assert left(*filters) == expected


def test_spark_takes_the_method_for_its_own_while_push_down_is_off() -> None:
    """What Spark looks at before it refuses a reader with a pushFilters of its own (plan_data_source_read.py)."""
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
    reader = KafkapyReader(SourceOptions.parse(given, streaming=False), SCHEMA)
    assert reader.pushFilters.__func__ is DataSourceReader.pushFilters
    assert list(reader.pushFilters([])) == []
