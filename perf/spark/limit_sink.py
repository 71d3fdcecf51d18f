"""What Spark gives to a Python sink at most: format("limit-sink") takes Arrow batches and does nothing with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType


@dataclass
class Taken(WriterCommitMessage):
    """How many rows a task was given."""

    rows: int


class LimitSink(DataSource):
    """Takes any columns and options."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "limit-sink"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Of a batch."""
        return LimitWriter()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Of a stream."""
        return LimitStreamWriter()


class LimitWriter(DataSourceArrowWriter):
    """Counts."""

    def write(self, iterator: Iterator[Any]) -> Taken:
        """Takes every batch."""
        return Taken(sum(batch.num_rows for batch in iterator))


class LimitStreamWriter(DataSourceStreamArrowWriter):
    """Counts."""

    def write(self, iterator: Iterator[Any]) -> Taken:
        """Takes every batch."""
        return Taken(sum(batch.num_rows for batch in iterator))
