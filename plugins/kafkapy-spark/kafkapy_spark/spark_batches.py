"""Record batches of kafkapy.arrow in the types that Spark takes for a schema."""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_NAMES: Final = {"timestampType": "timestamp_type"}
"""Columns whose names differ in kafkapy.arrow."""

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
    """Converts batches for one Spark schema (its JSON; `check_schema` has passed it).

    `columns` are the columns to build, `schema` is Arrow's of what `convert` returns.
    """

    def __init__(self, schema_json: str) -> None:
        fields = json.loads(schema_json)["fields"]
        self._names = [field["name"] for field in fields]
        self.columns = [_NAMES.get(name, name) for name in self._names]
        self.schema = pa.schema([pa.field(field["name"], _arrow_type(field["type"])) for field in fields])

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with Spark's names and types."""
        arrays = [
            _converted(batch.column(at), self.schema.field(at).type, name) for at, name in enumerate(self._names)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _arrow_type(spark: Any) -> pa.DataType:
    return _HEADERS if isinstance(spark, dict) else _TYPES[spark]


def _converted(array: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    if array.type.equals(kind):
        return array
    if name in ("key", "value"):
        return pa.Array.from_buffers(kind, len(array), array.buffers(), array.null_count)
    if name == "topic":
        # Nearly always one topic: then the column needs no look at the rows.
        topics = array.dictionary
        return pa.repeat(topics[0], len(array)) if len(topics) == 1 else array.dictionary_decode()
    if name == "headers":
        entries = array.values
        names, values = entries.field(0), entries.field(1)
        structs = pa.StructArray.from_arrays([names, values], fields=list(_HEADER))
        empty = pc.equal(array.value_lengths(), 0)
        offsets = array.offsets
        return pa.ListArray.from_arrays(offsets, structs, type=kind, mask=empty)
    return array.cast(kind)
