"""The rows of Arrow tables as records, for `KafkaProducer.send_arrow()`."""

from __future__ import annotations

import time
from typing import Any, Final

import pyarrow as pa

from kafkapy._speedups.clients.arrow.rows import ArrowRows
from kafkapy._speedups.clients.producer.record_future import BulkFuture, bulk_future
from kafkapy._speedups.clients.producer.record_sender import RecordSender
from kafkapy._speedups.clients.producer.record_spans import RecordSpans
from kafkapy.clients.arrow.tables import COLUMNS


def send(producer: RecordSender, table: Any, topic: str | None = None) -> BulkFuture:
    """Sends a record for each row of a table; returns one future.

    The records have the order of the rows.

    table: a pyarrow Table or RecordBatch, or an object that pyarrow converts (a DataFrame of polars or pandas).
    Columns:

        key, value    binary or string of any kind; at least one of the two
        headers       list of struct(key, value), or map
        topic         string; required unless `topic` is given, which has precedence
        partition     integer; when null or missing, the producer's partitioner chooses
        timestamp     timestamp, or int64 in ms; when null or missing, the current time
        offset, timestamp_type
                      as in a polled table: ignored

    It calls no serializers and interceptors. ValueError for other columns, unsuitable types, or a row without a topic;
    otherwise the errors of RecordSender.send. The rows before a failing row are sent.
    """
    spans = RecordSpans()
    _send(producer, table, topic, spans)
    return bulk_future(spans)


def append(producer: RecordSender, table: Any, topic: str | None = None) -> None:
    """Sends a record for each row, as `send`, without a future.

    It needs no memory for results. `producer.accumulator.failure` is the error of a lost record, once the records
    before it have results (`flush`).
    """
    _send(producer, table, topic, None)


def _send(producer: RecordSender, table: Any, topic: str | None, spans: RecordSpans | None) -> None:
    rows = _sendable(table if isinstance(table, pa.Table) else _table_of(table), topic is None)
    now_ms = int(time.time() * 1000)
    for batch in rows.to_batches():
        _rows_of(batch).send(producer, topic, now_ms, spans)


def checksum(table: Any) -> int:
    """A 64-bit checksum of a table's keys and values in any order.

    The checksum of a table is the sum of its parts' checksums modulo 2**64. Null and empty differ. Arguments and errors
    are those of `send`; other columns are ignored.
    """
    table = table if isinstance(table, pa.Table) else _table_of(table)
    at = [index for index, name in enumerate(table.column_names) if name in ("key", "value")]
    rows = _sendable(table.select(at), False)
    return sum(_rows_of(batch).checksum() for batch in rows.to_batches()) % 2**64


def _table_of(data: Any) -> pa.Table:
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    try:
        return pa.table(data)
    except TypeError as error:
        kind = type(data).__name__
        raise TypeError(f"a table comes first, then the topic: a {kind} is no table of Arrow's ({error})") from None


def _sendable(table: pa.Table, needs_topic: bool) -> pa.Table:
    """The columns to send, in the types of `_rows_of`."""
    names = table.column_names
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise ValueError(f"column {unknown[0]!r} is not a column of records; these are: {', '.join(COLUMNS)}")
    if len(set(names)) != len(names):
        raise ValueError("a column occurs twice")
    if "key" not in names and "value" not in names:
        raise ValueError("the table has no column key or value")
    if needs_topic and "topic" not in names:
        raise ValueError("the table has no column topic, and no topic was given")
    columns = {}
    for name in names:
        if name in ("offset", "timestamp_type") or (name == "topic" and not needs_topic):
            continue
        try:
            columns[name] = _SENDABLE[name](table.column(name))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise ValueError(
                f"column {name} is {table.schema.field(name).type}, which cannot be sent: {error}"
            ) from error
    return pa.table(columns)


def _as_bytes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type):
        return column.cast(pa.large_binary())
    return column.cast(pa.binary())


def _as_timestamps(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    zone = getattr(column.type, "tz", None)
    return column.cast(pa.timestamp("ms", tz=zone), safe=False).cast(pa.int64())


def _as_headers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_map(column.type):
        column = column.cast(
            pa.list_(pa.struct([pa.field("key", column.type.key_type), pa.field("value", column.type.item_type)]))
        )
    return column.cast(pa.list_(pa.struct([pa.field("key", pa.binary()), pa.field("value", pa.binary())])))


_SENDABLE: Final = {
    "key": _as_bytes,
    "value": _as_bytes,
    "headers": _as_headers,
    "topic": lambda column: column.cast(pa.string()).dictionary_encode(),
    "partition": lambda column: column.cast(pa.int32()),
    "timestamp": _as_timestamps,
}


def _rows_of(batch: pa.RecordBatch) -> ArrowRows:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    owner: list[Any] = [columns]
    parts: dict[str, Any] = {}
    for name, array in columns.items():
        if name in ("key", "value"):
            parts[name] = _bytes_parts(array)
        elif name == "headers":
            names, values = array.values.flatten()
            owner += [names, values]
            lists = array.buffers()
            parts[name] = (
                (_address(lists[0]), _address(lists[1]), 0, array.offset, False),
                _bytes_parts(names),
                _bytes_parts(values),
            )
        elif name == "topic":
            parts["topics"] = array.dictionary.to_pylist()
            parts[name] = _number_parts(array.indices)
            owner.append(array.indices)
        else:
            parts[name] = _number_parts(array)
    return ArrowRows(batch.num_rows, owner, **parts)


def _bytes_parts(array: pa.Array) -> tuple[int, int, int, int, bool]:
    valid, ends, data = array.buffers()
    return _address(valid), _address(ends), _address(data), array.offset, pa.types.is_large_binary(array.type)


def _number_parts(array: pa.Array) -> tuple[int, int, int]:
    valid, data = array.buffers()
    return _address(valid), _address(data), array.offset


def _address(buffer: pa.Buffer | None) -> int:
    return 0 if buffer is None else buffer.address
