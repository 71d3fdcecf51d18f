"""What Spark takes from a Python source at most: format("limit") yields one batch again and again, made beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

BATCH_ROWS = 16_384
TASKS = 2


class LimitSource(DataSource):
    """Option rows: how many in all, about. The columns are those of a Kafka source, or the ones of the schema."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "limit"

    def schema(self) -> str:
        """A Kafka source's."""
        return (
            "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
            "timestampType int"
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        """Of those columns."""
        return LimitReader(schema, int(self.options["rows"]))


class LimitReader(DataSourceReader):
    """Two tasks."""

    def __init__(self, schema: StructType, rows: int) -> None:
        self._schema, self._rows = schema, rows

    def partitions(self) -> list[InputPartition]:
        """Without difference."""
        return [InputPartition(number) for number in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """A task's share."""
        schema = to_arrow_schema(self._schema, timezone="UTC")
        constants: dict[str, Any] = {"key": b"12345678", "value": b"x" * 100, "topic": "rows"}
        columns = [pa.array([constants.get(field.name, 1)] * BATCH_ROWS).cast(field.type) for field in schema]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        left = self._rows // TASKS
        while left > 0:
            yield batch.slice(0, min(left, BATCH_ROWS))
            left -= BATCH_ROWS
