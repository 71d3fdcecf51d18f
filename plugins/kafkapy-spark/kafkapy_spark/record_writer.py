"""What runs in a task: rows of Arrow batches become records, at least once.

Record batches are built in C straight from Arrow's memory. Producers stay open between tasks of a worker process, which
Spark uses again; that of a task that fails is closed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkapy.arrow import append, checksum
from kafkapy.clients.producer.producer import KafkaProducer
from kafkapy_spark.sink_options import EXACTLY_ONCE, SinkOptions
from kafkapy_spark.throttle import Pace, Rate

COLUMNS: Final = ("key", "value", "headers", "topic", "partition", "timestamp")
SIZED: Final = ("key", "value")
MAX_IDLE_PRODUCERS: Final = 2
"""In one process, whatever their configurations: each has a thread and connections. A worker runs a task at a time."""

_WRITE_CONFIGS: Final[Mapping[str, object]] = {
    "batch.size": 256 << 10,
    "buffer.memory": 64 << 20,
}
"""Unless the user has set them. A task has all its rows at hand: with Kafka's 16 KiB for a batch it takes twice the
processor time, in the brokers too."""

MIN_BATCH_BYTES: Final = 16 << 10
MAX_BATCH_BYTES: Final = 512 << 10
"""Two of them are a request."""

_idle: dict[str, list[KafkaProducer]] = {}


class NullTopicError(ValueError):
    """A row names no topic, and the option topic is not set."""


@dataclass(frozen=True)
class Written:
    """What a task has written. `bytes` are those of keys, values and encoded headers.

    checksum: that of kafkapy.arrow.checksum for all rows, 0 for writes at least once.
    """

    rows: int = 0
    bytes: int = 0
    checksum: int = 0


class RecordWriter:
    """A context manager with a producer: one that an earlier task has left, or a new one with `producer_keys`.

    schema: the batches' (Spark's or Arrow's). Other columns than a record's are not looked at. Errors of the
    constructor are KafkaProducer's.
    """

    def __init__(self, options: SinkOptions, schema: Any, **producer_keys: Any) -> None:
        self._topic = options.topic
        self._rate = options.task_rate
        self._pace = Pace(self._rate) if self._rate != Rate() else None
        self._checks = options.delivery == EXACTLY_ONCE
        self._columns = _Columns(options, schema)
        self._fits_batches = options.topic is not None and "batch.size" not in options.kafka
        configs = {**_WRITE_CONFIGS, **options.kafka}
        # A child that is forked has its parent's table, and none of its threads.
        self._place = None if producer_keys else json.dumps([os.getpid(), options.kafka], sort_keys=True)
        waiting = _idle.get(self._place) if self._place else None
        self.producer = waiting.pop() if waiting else KafkaProducer(configs, **producer_keys)

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            # What is left of a task that has failed is not worth waiting for.
            self.producer.close(0)
        elif self._place is None:
            self.producer.close()
        else:
            # The configuration that was used last is the last one to be given up.
            _idle[self._place] = [*_idle.pop(self._place, ()), self.producer]
            while sum(map(len, _idle.values())) > MAX_IDLE_PRODUCERS:
                _close_oldest()

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Sends a record for each row and waits until the brokers have them all.

        Raises the first error: NullTopicError; ValueError for a row that is no record; else what KafkaProducer.send
        raises, or its future.
        """
        accumulator = self.producer.accumulator
        rows, size = accumulator.records_appended, accumulator.bytes_appended
        total = 0
        for batch in batches:
            for chosen in self._paced(self._columns.of(batch)):
                if self._fits_batches:
                    self._fit_batches()
                append(self.producer, chosen, self._topic)
                if self._checks:
                    total += checksum(chosen)
            self._check()
        self.producer.flush()
        self._check()
        return Written(accumulator.records_appended - rows, accumulator.bytes_appended - size, total % 2**64)

    def _fit_batches(self) -> None:
        """Batches become so large that every partition's open one takes half of the buffer at most: where the buffer is
        full, all of them are sent as they are, however little is in them."""
        assert self._topic is not None
        accumulator = self.producer.accumulator
        share = accumulator.pool.total // (2 * len(self.producer.partitions_for(self._topic)))
        most = min(MAX_BATCH_BYTES, accumulator.max_request_size)
        size = min(max(share, MIN_BATCH_BYTES), most)
        if size != accumulator.batch_size:
            accumulator.set_batch_size(size)
        self._fits_batches = False

    def _check(self) -> None:
        if self.producer.accumulator.failure is not None:
            raise self.producer.accumulator.failure

    def _paced(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The batch, in parts that come when they may be sent."""
        if self._pace is None:
            yield from (batch,) if batch.num_rows else ()
            return
        at_once = self._rate.rows_at_once(batch.num_rows, _size(batch))
        for at in range(0, batch.num_rows, at_once):
            part = batch.slice(at, at_once)
            self._pace.wait(part.num_rows, _size(part))
            yield part

    def last_place(self) -> tuple[str | None, int, int]:
        """Topic, partition and offset of a record that this producer has written; (None, -1, -1) where no broker has
        said where it is."""
        for name, topic in self.producer.accumulator.topics.items():
            for queue in topic.partitions:
                if queue.last_acked_offset >= 0:
                    return name, queue.partition, queue.last_acked_offset
        return None, -1, -1


class _Columns:
    """The columns that records are made of."""

    def __init__(self, options: SinkOptions, schema: Any) -> None:
        names: list[str] = list(schema.names)
        wanted = [name for name in COLUMNS if name in names]
        if options.topic is not None and "topic" in wanted:
            wanted.remove("topic")
        if not options.timestamp_column and "timestamp" in wanted:
            wanted.remove("timestamp")
        self._needs_topic = options.topic is None
        self._places = [(name, names.index(name)) for name in wanted]

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of these columns. NullTopicError."""
        chosen = pa.RecordBatch.from_pydict({name: batch.column(at) for name, at in self._places})
        if self._needs_topic and chosen.column("topic").null_count:
            raise NullTopicError("null topic present in the data. Use the topic option for setting a topic.")
        return chosen


def summed_up(options: SinkOptions, schema: Any, batches: Iterable[pa.RecordBatch]) -> Written:
    """Rows and checksum of what RecordWriter would write. NullTopicError."""
    columns = _Columns(options, schema)
    rows = total = 0
    for batch in batches:
        if batch.num_rows:
            rows += batch.num_rows
            total += checksum(columns.of(batch))
    return Written(rows, 0, total % 2**64)


def _size(batch: pa.RecordBatch) -> int:
    """Bytes of keys and values."""
    found = (pc.sum(pc.binary_length(batch.column(name))).as_py() for name in batch.schema.names if name in SIZED)
    return sum(size or 0 for size in found)


def _close_oldest() -> None:
    place = next(iter(_idle))
    producers = _idle[place]
    if producers:
        producers.pop(0).close()
    if not producers:
        del _idle[place]
