"""Record batches in exactly the types that Spark takes for a schema, straight from fetched bytes: the kernel writes
what Spark's types have in memory, and nothing is converted afterwards."""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa

from kafkapy.arrow import array_of
from kafkapy.connector import ArrowColumns

_NAMES: Final = {"timestampType": "timestamp_type"}
"""Columns whose names differ in kafkapy."""

_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_HEADERS: Final = pa.list_(pa.field("element", _HEADER))
_TYPES: Final[dict[str, pa.DataType]] = {
    "binary": pa.binary(),
    "string": pa.string(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


class SparkBatches:
    """Collects records as rows of one Spark schema (its JSON; `check_schema` has passed it). Used by one thread.

    `columns` takes the records, of a FetchedPartition (`append`) or out of a consumer's buffer (`take_columns`);
    `schema` is Arrow's of what `batches` returns.
    """

    def __init__(self, schema_json: str) -> None:
        fields = json.loads(schema_json)["fields"]
        self._names = [_NAMES.get(field["name"], field["name"]) for field in fields]
        self.columns = ArrowColumns(self._names, spark=True)
        self.schema = pa.schema([pa.field(field["name"], _arrow_type(field["type"])) for field in fields])
        self._topic = pa.array([], pa.string())

    @property
    def rows(self) -> int:
        """Rows collected."""
        return self.columns.rows

    @property
    def bytes(self) -> int:
        """Bytes that they take."""
        return self.columns.bytes

    def batches(self) -> list[pa.RecordBatch]:
        """What was collected, in as many batches as Arrow's 32-bit offsets need; there is nothing collected then."""
        return [
            pa.RecordBatch.from_arrays(
                [
                    self._topics(rows, buffers[name])
                    if name == "topic"
                    else array_of(name, field.type, rows, buffers[name])
                    for name, field in zip(self._names, self.schema, strict=True)
                ],
                schema=self.schema,
            )
            for rows, buffers in self.columns.finish()
        ]

    def _topics(self, rows: int, indexes: Any) -> pa.Array:
        """Nearly always one topic: then the column is made once, and batches have slices of it."""
        topics = self.columns.topics
        if len(topics) > 1:
            return pa.array(topics, pa.string()).take(array_of("topic", pa.int32(), rows, indexes))
        if len(self._topic) < rows:
            self._topic = pa.repeat(pa.scalar(topics[0], pa.string()), rows)
        return self._topic.slice(0, rows)


def _arrow_type(spark: Any) -> pa.DataType:
    return _HEADERS if isinstance(spark, dict) else _TYPES[spark]
