"""Rows that pass at a rate: a column that goes through Python on the executors, which waits there.

Each task gets an equal share of the rate, so that all together do not pass it; tasks that have less to do than others
leave theirs unused.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Rate", "throttled"]

BURST_S: Final = 1.0
"""What was not used of the rate for so long may be made up for."""
BATCHES_A_SECOND: Final = 10
MAX_BATCH_ROWS: Final = 10_000


@dataclass(frozen=True)
class Rate:
    """Rows and bytes (of keys and values) a second; None: as fast as may be."""

    rows: float | None = None
    bytes: float | None = None

    def divided(self, parts: int) -> Rate:
        """What is left for each."""
        return Rate(self.rows and self.rows / parts, self.bytes and self.bytes / parts)

    def settings(self) -> dict[str, str]:
        """Of the session: batches that are small beside the rate, so that rows pass evenly."""
        out = {}
        if self.rows is not None:
            most = min(MAX_BATCH_ROWS, max(1, int(self.rows / BATCHES_A_SECOND)))
            out["spark.sql.execution.arrow.maxRecordsPerBatch"] = str(most)
        if self.bytes is not None:
            out["spark.sql.execution.arrow.maxBytesPerBatch"] = str(max(1, int(self.bytes / BATCHES_A_SECOND)))
        return out


class Pace:
    """When the next batch may pass."""

    def __init__(self, rate: Rate, clock: Any = time) -> None:
        self._rate, self._clock = rate, clock
        self._next = clock.monotonic()

    def wait(self, rows: int, size: int) -> None:
        """Returns when so many rows and bytes may pass after those before."""
        now = self._clock.monotonic()
        if now < self._next:
            self._clock.sleep(self._next - now)
        self._next = max(self._next, now - BURST_S)
        costs = [amount / rate for amount, rate in ((rows, self._rate.rows), (size, self._rate.bytes)) if rate]
        self._next += max(costs, default=0.0)


def throttled(frame: DataFrame, rate: Rate) -> DataFrame:
    """The frame, whose column value passes at this rate in each task."""
    from pyspark.sql import functions
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]

    def passing(batches: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        pace = Pace(rate)
        for keys, values in batches:
            size = sum(pc.sum(pc.binary_length(each)).as_py() or 0 for each in (keys, values))
            pace.wait(len(values), size)
            yield values

    passing_udf = arrow_udf(passing, frame.schema["value"].dataType).asNondeterministic()
    keys = functions.col("key") if "key" in frame.columns else functions.lit(None)
    return frame.withColumn("value", passing_udf(keys.cast("binary"), functions.col("value")))
