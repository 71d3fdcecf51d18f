"""Records as Apache Arrow tables: what `KafkaConsumer.poll_arrow()` returns and `KafkaProducer.send_arrow()` sends, and
`read()` for a stretch of a topic.

    import kafkapy.arrow

    table = kafkapy.arrow.read("orders", {0: (0, 1000)}, bootstrap_servers="localhost:9092", columns=["key", "value"])
    frame = table.to_pandas()

Columns are built in C straight from the batches that a broker sends; there is no Python object per record. Needs
pyarrow: `pip install "kafkapy[arrow]"`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import pyarrow as pa

from kafkapy._speedups.arrow_columns import ArrowColumns
from kafkapy._speedups.arrow_rows import ArrowRows
from kafkapy._speedups.fetched_partition import FetchedPartition
from kafkapy._speedups.record_future import BulkFuture, bulk_future
from kafkapy._speedups.record_sender import RecordSender
from kafkapy._speedups.record_spans import RecordSpans
from kafkapy.clients.consumer.consumer import KafkaConsumer
from kafkapy.errors import KafkaTimeoutError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kafkapy.types import TopicPartition

__all__ = [
    "COLUMNS",
    "MAX_TABLE_BYTES",
    "SCHEMA",
    "TableBuilder",
    "append",
    "array_of",
    "checksum",
    "read",
    "send",
    "stream",
]

Place = int | datetime | Literal["earliest", "latest"]
"""A place in a partition: an offset, the first record at or after a time, the first record, or behind the last one."""
Stretch = tuple[Place, Place]
"""From the first place up to, but without, the second."""

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
"""All columns. timestamp is null where a record has none; timestamp_type is 0 CreateTime, 1 LogAppendTime, -1 none."""

MAX_TABLE_BYTES: Final = 64 << 20
"""What a table is about to hold at most that `poll_arrow` returns, or a batch of `stream`."""

COLUMNS: Final[tuple[str, ...]] = tuple(SCHEMA.names)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_READ_DEFAULTS: Final = {
    "group.id": None,
    "enable.auto.commit": False,
    "auto.offset.reset": "none",
    "max.partition.fetch.bytes": 8 << 20,
}


def read(
    topic: str,
    offsets: Stretch | Mapping[int, Stretch] = ("earliest", "latest"),
    *,
    columns: Sequence[str] | None = None,
    timeout_ms: float = 60_000,
    configs: Mapping[str, object] | None = None,
    **keywords: Any,
) -> pa.Table:
    """A stretch of a topic in one table, as long as memory lasts; `stream` for more than that.

    The rows of a partition are in order; partitions come in turns. Arguments and errors are those of `stream`.
    """
    return stream(topic, offsets, columns=columns, timeout_ms=timeout_ms, configs=configs, **keywords).read_all()


def stream(
    topic: str,
    offsets: Stretch | Mapping[int, Stretch] = ("earliest", "latest"),
    *,
    columns: Sequence[str] | None = None,
    timeout_ms: float = 60_000,
    batch_bytes: int = MAX_TABLE_BYTES,
    configs: Mapping[str, object] | None = None,
    **keywords: Any,
) -> pa.RecordBatchReader:
    """A stretch of a topic in record batches of about `batch_bytes` at most, read while they are asked for.

    The consumer behind it is closed when the reader is at its end, or nobody refers to the reader any more.

    topic       its name
    offsets     (start, end) for all partitions, or by partition (only those are read). The end is not included, and
                stands where the partition ends now when it lies behind that. An offset; a datetime with a time zone;
                "earliest"; "latest". With isolation_level="read_committed" a partition ends at its last stable offset.
    columns     names out of COLUMNS, None for all
    timeout_ms  how long nothing may come
    configs, keywords
                configuration as KafkaConsumer takes it, bootstrap_servers among it

    UnknownTopicOrPartitionError; OffsetOutOfRangeError for a start that is not in the partition (any more);
    KafkaTimeoutError; ValueError for what is no place or column; while reading what KafkaConsumer.poll raises.
    """
    builder = TableBuilder(columns)
    known = {str(key).replace("_", ".") for key in (*(configs or {}), *keywords)}
    defaults = {key: value for key, value in _READ_DEFAULTS.items() if key not in known}
    reader = _StretchReader(configs={**defaults, **(configs or {})}, **keywords)
    try:
        reader.begin(topic, offsets)
    except BaseException:
        reader.close()
        raise
    return pa.RecordBatchReader.from_batches(builder.schema, reader.batches(builder, batch_bytes, timeout_ms / 1000))


class _StretchReader(KafkaConsumer):
    """A consumer without a group that reads each partition up to an end."""

    def begin(self, topic: str, offsets: Stretch | Mapping[int, Stretch]) -> None:
        """Finds the partitions, their starts and their ends, and begins to fetch."""
        numbers = self.partitions_for_topic(topic)
        if not numbers:
            raise UnknownTopicOrPartitionError(f"there is no topic {topic}")
        stretches = offsets if isinstance(offsets, Mapping) else dict.fromkeys(sorted(numbers), offsets)
        missing = set(stretches) - numbers
        if missing:
            raise UnknownTopicOrPartitionError(f"topic {topic} has no partition {min(missing)}")
        wanted = {TopicPartition(topic, number): stretch for number, stretch in stretches.items()}
        first, last = self.beginning_offsets(wanted), self.end_offsets(wanted)
        starts = self._places({partition: start for partition, (start, _) in wanted.items()}, first, last)
        ends = self._places({partition: end for partition, (_, end) in wanted.items()}, first, last)
        for partition, start in starts.items():
            if not first[partition] <= start <= last[partition]:
                raise OffsetOutOfRangeError(
                    f"{partition} has offsets {first[partition]} to {last[partition]}; {start} is none to start from"
                )
        self._ends = {
            partition: min(end, last[partition])
            for partition, end in ends.items()
            if min(end, last[partition]) > starts[partition]
        }
        self._left = set(self._ends)

        def place() -> None:
            self._core.assign(list(self._ends))
            for partition in self._ends:
                self._core.seek(partition, starts[partition])
            self._positions = {
                partition: self._core.subscription.state_of(partition).buffer for partition in self._ends
            }

        if self._ends:
            self._background.call(place)

    def _places(
        self, places: dict[TopicPartition, Place], first: dict[TopicPartition, int], last: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        times = {partition: _milliseconds(place) for partition, place in places.items() if isinstance(place, datetime)}
        found = self.offsets_for_times(times) if times else {}
        out = {}
        for partition, place in places.items():
            if isinstance(place, datetime):
                at = found[partition]
                out[partition] = last[partition] if at is None else at.offset
            elif place in ("earliest", "latest"):
                out[partition] = (first if place == "earliest" else last)[partition]
            elif isinstance(place, int) and not isinstance(place, bool) and place >= 0:
                out[partition] = place
            else:
                raise ValueError(f"{place!r} is no offset, datetime, 'earliest' or 'latest'")
        return out

    def batches(self, builder: TableBuilder, batch_bytes: int, timeout_s: float) -> Iterator[pa.RecordBatch]:
        """Reads until every partition is at its end, then closes."""

        def take() -> bool:
            rows = self.fetch_buffer.take_columns(builder.columns, 1 << 62, batch_bytes, self._ends)
            return rows > 0 or self._ended()

        try:
            while self._left:
                self._acquire()
                try:
                    taken = self._wait_for(take, timeout_s)
                finally:
                    self._lock.release()
                if not taken:
                    raise KafkaTimeoutError(f"nothing more of {min(self._left)} has come within {timeout_s:g} s")
                yield from builder.batches()
                self._ended()
        finally:
            self.close()

    def _ended(self) -> bool:
        """Ends the fetching of partitions that are at their ends; whether that are all."""
        done = [partition for partition in self._left if self._positions[partition].position >= self._ends[partition]]
        if done:
            self._left.difference_update(done)
            self._background.call(self._set_paused, done, True)
        return not self._left


def _milliseconds(time: datetime) -> int:
    """The first whole millisecond at or after a time."""
    if time.tzinfo is None:
        raise ValueError(f"{time!r} has no time zone")
    return max(-((_EPOCH - time) // timedelta(milliseconds=1)), 0)


class TableBuilder:
    """Collects records of fetched partitions as rows of one table. Used by one thread at a time.

    columns: names out of COLUMNS, in the order that the table has; None for all. ValueError for others or none.
    `columns` takes the records, of a FetchedPartition (`append`) or out of a consumer's buffer (`take_columns`).
    """

    def __init__(self, columns: Sequence[str] | None = None) -> None:
        names = COLUMNS if columns is None else tuple(columns)
        if not names or len(set(names)) != len(names):
            raise ValueError(f"columns {list(names)} are none, or one of them is named twice")
        self.columns = ArrowColumns(names)
        self.schema = pa.schema([SCHEMA.field(name) for name in names])

    @property
    def rows(self) -> int:
        """Rows collected."""
        return self.columns.rows

    @property
    def bytes(self) -> int:
        """Bytes that they take."""
        return self.columns.bytes

    def add(self, partition: FetchedPartition, max_records: int) -> int:
        """Takes up to so many records of a started partition, and returns how many (see ArrowColumns.append)."""
        return self.columns.append(partition, max_records)

    def batches(self) -> list[pa.RecordBatch]:
        """What was collected, in as many record batches as Arrow's 32-bit offsets need; the builder is empty then."""
        topics = pa.array(self.columns.topics, pa.string())
        return [
            pa.RecordBatch.from_arrays(
                [_array(name, rows, buffers[name], topics) for name in self.schema.names], schema=self.schema
            )
            for rows, buffers in self.columns.finish()
        ]

    def table(self) -> pa.Table:
        """What was collected; the builder is empty then."""
        return pa.Table.from_batches(self.batches(), schema=self.schema)


def _array(name: str, rows: int, buffers: Any, topics: pa.Array) -> pa.Array:
    if name == "topic":
        return pa.DictionaryArray.from_arrays(array_of("topic", pa.int32(), rows, buffers), topics, safe=False)
    return array_of(name, SCHEMA.field(name).type, rows, buffers)


def array_of(name: str, kind: pa.DataType, rows: int, buffers: Any) -> pa.Array:
    """A column of a chunk of ArrowColumns.finish(), of Arrow's type for it; of topic the indexes."""
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


# --- sending --------------------------------------------------------------------------------------------------------


def send(producer: RecordSender, table: Any, topic: str | None = None) -> BulkFuture:
    """Has a record sent for each row of a table, in order, and returns one future for all of them.

    table: a pyarrow Table or RecordBatch, or what pyarrow makes a table of (a DataFrame of polars or pandas). Columns:

        key, value    binary or string of any kind; at least one of the two
        headers       list of struct(key, value), or map
        topic         string; needed unless `topic` is given, which goes before it
        partition     integer; where it is null or not there, the producer's partitioner chooses
        timestamp     timestamp, or int64 in ms; where it is null or not there, now
        offset, timestamp_type
                      as a polled table has them: not looked at

    Serializers and interceptors are not called. ValueError for other columns, types that do not fit, a row without a
    topic. For the rest raises what RecordSender.send does; the rows before the one that fails are on their way.
    """
    spans = RecordSpans()
    _send(producer, table, topic, spans)
    return bulk_future(spans)


def append(producer: RecordSender, table: Any, topic: str | None = None) -> None:
    """Has a record sent for each row as `send` does, where nobody asks what became of which: that takes no memory.

    Whether one was lost, `producer.accumulator.failure` says once the records before it are through (`flush`)."""
    _send(producer, table, topic, None)


def _send(producer: RecordSender, table: Any, topic: str | None, spans: RecordSpans | None) -> None:
    rows = _sendable(table if isinstance(table, pa.Table) else _table_of(table), topic is None)
    now_ms = int(time.time() * 1000)
    for batch in rows.to_batches():
        _rows_of(batch).send(producer, topic, now_ms, spans)


def checksum(table: Any) -> int:
    """A number, 0 to 2**64 - 1, that tables with the same keys and values have in common, in whatever order their rows
    are; of the parts of a table the sum modulo 2**64. Null is not the same as empty. Arguments and errors are those of
    `send`; other columns are not looked at."""
    table = table if isinstance(table, pa.Table) else _table_of(table)
    at = [index for index, name in enumerate(table.column_names) if name in ("key", "value")]
    rows = _sendable(table.select(at), False)
    return sum(_rows_of(batch).checksum() for batch in rows.to_batches()) % 2**64


def _table_of(data: Any) -> pa.Table:
    return pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else pa.table(data)


def _sendable(table: pa.Table, needs_topic: bool) -> pa.Table:
    """The columns that are sent, in the types that `_rows_of` knows."""
    names = table.column_names
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise ValueError(f"column {unknown[0]!r} is no part of a record; these are: {', '.join(COLUMNS)}")
    if len(set(names)) != len(names):
        raise ValueError("a column is there twice")
    if "key" not in names and "value" not in names:
        raise ValueError("a table to send has a column key or value")
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
