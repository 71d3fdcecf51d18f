"""Records as Apache Arrow tables.

The types of `KafkaConsumer.poll_arrow()` and `KafkaProducer.send_arrow()`, and `read()` for a range of a topic.

    import kafkapy.arrow

    table = kafkapy.arrow.read("orders", {0: (0, 1000)}, bootstrap_servers="localhost:9092", columns=["key", "value"])
    frame = table.to_pandas()

C code builds the columns from the broker's batches, without a Python object per record. Needs pyarrow:
`pip install "kafkapy[arrow]"`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from kafkapy.clients.arrow import pyarrow as pa
from kafkapy.clients.arrow.rows import append, checksum, send
from kafkapy.clients.arrow.tables import COLUMNS, MAX_TABLE_BYTES, SCHEMA, TableBuilder, array_of
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
"""A position in a partition: an offset, the first record at or after a time, the first record, or the end."""
Stretch = tuple[Place, Place]
"""A range: start and end; the end is not included."""

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
    """A range of a topic in one table.

    It must fit in memory; `stream` is for larger ones. The rows of a partition are in order; rows of partitions
    alternate. Arguments and errors are those of `stream`.
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
    """A range of a topic in record batches of about `batch_bytes`.

    The reader reads on demand. Its consumer closes at the end of the range, or when the reader is garbage.

    topic       the topic's name
    offsets     (start, end) for all partitions, or by partition (only these are read). The end is not included; above
                the partition's current end it means that end. An offset; a datetime with a time zone; "earliest";
                "latest". With isolation_level="read_committed" a partition ends at its last stable offset.
    columns     names from COLUMNS, None for all
    timeout_ms  longest time without a record
    configs, keywords
                configuration of a KafkaConsumer, including bootstrap_servers

    UnknownTopicOrPartitionError; OffsetOutOfRangeError when the partition does not have (or no longer has) the start;
    KafkaTimeoutError; ValueError for an invalid position or column; while reading, the errors of KafkaConsumer.poll.
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
    """A consumer without a group that reads partitions up to an end."""

    def begin(self, topic: str, offsets: Stretch | Mapping[int, Stretch]) -> None:
        """Finds the partitions, their start and end offsets, and starts to fetch."""
        numbers = self.partitions_for_topic(topic)
        if not numbers:
            raise UnknownTopicOrPartitionError(f"topic {topic} does not exist")
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
                    f"{partition} has offsets {first[partition]} to {last[partition]}; it cannot start at {start}"
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
                raise ValueError(f"{place!r} is not an offset, a datetime, 'earliest' or 'latest'")
        return out

    def batches(self, builder: TableBuilder, batch_bytes: int, timeout_s: float) -> Iterator[pa.RecordBatch]:
        """Reads until all partitions are at their end offsets, then closes."""

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
                    raise KafkaTimeoutError(f"no record of {min(self._left)} arrived within {timeout_s:g} s")
                yield from builder.batches()
                self._ended()
        finally:
            self.close()

    def _ended(self) -> bool:
        """Stops the fetching of finished partitions; whether all are finished."""
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
