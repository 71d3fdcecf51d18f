"""Filters of a query that narrow the ranges of a batch read. All of them are also applied by Spark afterwards, so a
range may be too large, but never too small."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from kafkapy.types import TopicPartition
from kafkapy_spark.planning import OffsetRange

OffsetsAtTimes = Callable[[Mapping[TopicPartition, int]], dict[TopicPartition, int | None]]

_MAX_OFFSET: Final = 2**63 - 1


class PushedFilters:
    """Collects what Spark pushes down, and is itself a reader's `pushFilters`.

    Spark refuses a query whose reader overrides pushFilters while spark.sql.python.filterPushdown.enabled is off; it
    looks at `pushFilters.__func__`. This one has the base class's, so that it is called when that is on, and not looked
    at when it is off.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self) -> None:
        self._topics: set[str] | None = None
        self._partitions: set[int] | None = None
        self._first = 0
        self._end = _MAX_OFFSET
        self._since_ms: int | None = None

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        for each in filters:
            self._add(each)
        return filters

    def _add(self, pushed: Filter) -> None:
        column = getattr(pushed, "attribute", ())
        if column == ("topic",):
            self._topics = _narrowed(self._topics, pushed)
        elif column == ("partition",):
            self._partitions = _narrowed(self._partitions, pushed)
        elif column == ("offset",):
            self._add_offset(pushed)
        elif column == ("timestamp",):
            self._add_time(pushed)

    def _add_offset(self, pushed: Any) -> None:
        if isinstance(pushed, (EqualTo, EqualNullSafe)) and pushed.value is not None:
            self._between(pushed.value, pushed.value + 1)
        elif isinstance(pushed, In):
            offsets = [value for value in pushed.value if value is not None]
            if offsets:
                self._between(min(offsets), max(offsets) + 1)
        elif isinstance(pushed, GreaterThan):
            self._between(pushed.value + 1, _MAX_OFFSET)
        elif isinstance(pushed, GreaterThanOrEqual):
            self._between(pushed.value, _MAX_OFFSET)
        elif isinstance(pushed, LessThan):
            self._between(0, pushed.value)
        elif isinstance(pushed, LessThanOrEqual):
            self._between(0, pushed.value + 1)

    def _between(self, first: int, end: int) -> None:
        self._first, self._end = max(self._first, first), min(self._end, end)

    def _add_time(self, pushed: Any) -> None:
        value = getattr(pushed, "value", None)
        is_bound = isinstance(pushed, (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual))
        if is_bound and isinstance(value, datetime) and value.tzinfo is not None:
            # The first record at or after t: all before it are earlier than t, in whatever order they came.
            since = int(value.timestamp() * 1000)
            self._since_ms = since if self._since_ms is None else max(self._since_ms, since)

    def narrow(self, ranges: Iterable[OffsetRange], at_times: OffsetsAtTimes) -> list[OffsetRange]:
        """The parts of the ranges in which all matching records are."""
        kept = [
            OffsetRange(each.partition, max(each.start, self._first), min(each.end, self._end))
            for each in ranges
            if (self._topics is None or each.partition.topic in self._topics)
            and (self._partitions is None or each.partition.partition in self._partitions)
        ]
        kept = [each for each in kept if each.size > 0]
        if self._since_ms is None or self._since_ms <= 0 or not kept:
            return kept
        since = at_times(dict.fromkeys((each.partition for each in kept), self._since_ms))
        return [
            OffsetRange(each.partition, max(each.start, since[each.partition] or 0), each.end)
            for each in kept
            if since[each.partition] is not None
        ]


def _narrowed(chosen: set[Any] | None, pushed: Any) -> set[Any] | None:
    """What is left of a choice of values; None is every value."""
    if isinstance(pushed, (EqualTo, EqualNullSafe)):
        values = {pushed.value}
    elif isinstance(pushed, In):
        values = set(pushed.value)
    else:
        return chosen
    return values if chosen is None else chosen & values
