"""The Arrow schema of records, and tables of fetched records.

ArrowColumns builds the columns in C from the broker's batches, without a Python object per record.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, Final

import pyarrow as pa

from kafkapy._speedups.clients.arrow.columns import ArrowColumns
from kafkapy._speedups.clients.consumer.fetched_partition import FetchedPartition

_HEADER: Final = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])

SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.field("header", _HEADER, nullable=False)), nullable=False),
        pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
        pa.field("timestamp_type", pa.int8(), nullable=False),
    ]
)
"""All columns. timestamp is null without a timestamp; timestamp_type is 0 CreateTime, 1 LogAppendTime, -1 none."""

MAX_TABLE_BYTES: Final = 64 << 20
"""The approximate largest size in bytes of a table from `poll_arrow`, and of a batch from `stream`."""

COLUMNS: Final[tuple[str, ...]] = tuple(SCHEMA.names)


class TableBuilder:
    """Collects records of fetched partitions as rows of one table.

    One thread at a time uses it. columns: names from COLUMNS, in the order of the table; None for all. ValueError for
    unknown columns or none. `columns` takes the records, from a FetchedPartition (`append`) or a consumer's buffer
    (`take_columns`).
    """

    def __init__(self, columns: Sequence[str] | None = None) -> None:
        names = COLUMNS if columns is None else tuple(columns)
        if not names or len(set(names)) != len(names):
            raise ValueError(f"columns {list(names)} are empty, or a column occurs twice")
        self.columns = ArrowColumns(names)
        self.schema = _schema_of(names)

    @property
    def rows(self) -> int:
        """Number of collected rows."""
        return self.columns.rows

    @property
    def bytes(self) -> int:
        """Size of the collected rows in bytes."""
        return self.columns.bytes

    def add(self, partition: FetchedPartition, max_records: int) -> int:
        """Takes up to `max_records` of a started partition; returns their number.

        See ArrowColumns.append.
        """
        return self.columns.append(partition, max_records)

    def batches(self) -> list[pa.RecordBatch]:
        """The collected rows in record batches; the builder is empty afterwards.

        Arrow's 32-bit offsets may need several batches.
        """
        names = self.schema.names
        topics = _topic_names(tuple(self.columns.topics)) if "topic" in names else None
        return [
            pa.RecordBatch.from_arrays(
                [_array(name, rows, buffers[name], topics) for name in names], schema=self.schema
            )
            for rows, buffers in self.columns.finish()
        ]

    def table(self) -> pa.Table:
        """The collected rows; the builder is empty afterwards."""
        return pa.Table.from_batches(self.batches(), schema=self.schema)


@cache
def _schema_of(names: tuple[str, ...]) -> pa.Schema:
    """The schema of these columns. A poll of a few thousand records is too small to make one each time."""
    return pa.schema([SCHEMA.field(name) for name in names])


@lru_cache(maxsize=64)
def _topic_names(topics: tuple[str, ...]) -> pa.Array:
    """The dictionary of a topic column."""
    return pa.array(topics, pa.string())


def _array(name: str, rows: int, buffers: Any, topics: pa.Array | None) -> pa.Array:
    if name == "topic":
        return pa.DictionaryArray.from_arrays(array_of("topic", pa.int32(), rows, buffers), topics, safe=False)
    return array_of(name, SCHEMA.field(name).type, rows, buffers)


def array_of(name: str, kind: pa.DataType, rows: int, buffers: Any) -> pa.Array:
    """A column of a chunk of ArrowColumns.finish(); for topic, the indexes."""
    if name in ("key", "value"):
        nulls, valid, ends, data = buffers
        return pa.Array.from_buffers(kind, rows, [_buffer(valid), _buffer(ends), _buffer(data)], nulls)
    if name == "timestamp":
        nulls, valid, data = buffers
        return pa.Array.from_buffers(kind, rows, [_buffer(valid), _buffer(data)], nulls)
    if name == "headers":
        no_headers, some, ends, count, name_ends, name_data, nulls, valid, value_ends, value_data = buffers
        names = pa.Array.from_buffers(pa.string(), count, [None, _buffer(name_ends), _buffer(name_data)], 0)
        values = pa.Array.from_buffers(
            pa.binary(), count, [_buffer(valid), _buffer(value_ends), _buffer(value_data)], nulls
        )
        entries = pa.Array.from_buffers(kind.value_type, count, [None], 0, children=[names, values])
        return pa.Array.from_buffers(kind, rows, [_buffer(some), _buffer(ends)], no_headers, children=[entries])
    return pa.Array.from_buffers(kind, rows, [None, _buffer(buffers)], 0)


def _buffer(memory: Any) -> pa.Buffer | None:
    return None if memory is None else pa.py_buffer(memory)
