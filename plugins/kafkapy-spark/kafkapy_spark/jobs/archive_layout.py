"""How an archive's files are divided by the time of their records: hourly, daily, or not.

A file's records are of one period, and the file is in the period's directory, date=2026-11-22/hour=05, in UTC. Records
without a timestamp, or with one beyond the year 9999, are in date=__HIVE_DEFAULT_PARTITION__, which readers take for
null.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Layout", "Period"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_HOUR_US: Final = 3_600_000_000


@dataclass(frozen=True, order=True)
class Period:
    """What the records of a file have in common: nothing, a day, or a day and an hour. Both are None for records that
    are in no day."""

    values: tuple[tuple[str, str | None], ...] = ()
    """Columns and their values as text."""

    @property
    def directory(self) -> str:
        """Where its files are: "" or a path that ends with a slash."""
        return "".join(f"{name}={_NULL if value is None else value.zfill(2)}/" for name, value in self.values)

    @property
    def day(self) -> date | None:
        """Its day."""
        text = dict(self.values).get("date")
        return date.fromisoformat(text) if text else None


class Layout(StrEnum):
    """By what an archive is divided."""

    HOURLY = "hourly"
    DAILY = "daily"
    NONE = "none"

    @property
    def columns(self) -> dict[str, pa.DataType]:
        """The columns that directories stand for."""
        every = {"date": pa.date32(), "hour": pa.int32()}
        names = {Layout.HOURLY: ("date", "hour"), Layout.DAILY: ("date",), Layout.NONE: ()}[self]
        return {name: every[name] for name in names}

    def divide(self, batch: pa.RecordBatch) -> Iterator[tuple[Period, pa.RecordBatch]]:
        """The batch's rows by period; rows of one keep their order. The column timestamp is timestamp[us]."""
        if self is Layout.NONE:
            yield Period(), batch
            return
        width = _HOUR_US if self is Layout.HOURLY else 24 * _HOUR_US
        times = batch.column("timestamp").view(pa.int64())
        least, most = (bound.as_py() for bound in pc.min_max(times).values())
        if least is None:
            yield self._period(None, width), batch
            return
        first = least // width
        if most // width == first and not times.null_count:
            yield self._period(first, width), batch
            return
        # From the first period on nothing is negative, where division rounds down.
        numbers = pc.divide(pc.subtract(times, pa.scalar(first * width, pa.int64())), pa.scalar(width, pa.int64()))
        by_period: dict[Period, pa.Array] = {}
        for number in pc.unique(numbers):
            value = number.as_py()
            mask = pc.is_null(numbers) if value is None else pc.fill_null(pc.equal(numbers, number), False)
            period = self._period(None if value is None else first + value, width)
            by_period[period] = pc.or_(by_period[period], mask) if period in by_period else mask
        for period, mask in by_period.items():
            yield period, batch.filter(mask)

    def _period(self, number: int | None, width_us: int) -> Period:
        names = tuple(self.columns)
        try:
            start = None if number is None else _EPOCH + timedelta(microseconds=number * width_us)
        except OverflowError:
            start = None
        if start is None:
            return Period(tuple((name, None) for name in names))
        values = {"date": start.date().isoformat(), "hour": str(start.hour)}
        return Period(tuple((name, values[name]) for name in names))
