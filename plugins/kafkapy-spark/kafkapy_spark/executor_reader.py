"""What runs in a task: ranges of offsets become Arrow batches with the columns that were asked for.

Bytes are fetched, checked and decompressed on a consumer's own thread, which does not take the GIL, and it fetches
ahead while Spark takes a batch. Consumers stay open between tasks of a worker process, which Spark uses again; a task
that ends early (LIMIT, errors) closes its own.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from kafkapy.clients.consumer.consumer import KafkaConsumer
from kafkapy.errors import KafkaTimeoutError, OffsetOutOfRangeError
from kafkapy.types import TopicPartition
from kafkapy_spark.data_loss import report_data_loss
from kafkapy_spark.offset_reader import CONSUMER_CONFIGS
from kafkapy_spark.planning import Task
from kafkapy_spark.segments import SegmentSource, segment_batches_of
from kafkapy_spark.spark_batches import SparkBatches

logger = logging.getLogger("kafkapy.spark")

BATCH_ROWS: Final = 16_384
BATCH_BYTES: Final = 8 << 20
"""A batch ends at either."""
FILL_WAIT_S: Final = 0.02
"""How long a batch that has some rows waits for more."""
OUT_OF_RANGE_WAIT_S: Final = 0.1
"""Before an offset is asked for again that is out of range for the leader, and not so by the offsets that it lists."""
MAX_IDLE_CONSUMERS: Final = 2
"""In one process, whatever their configurations: each has a thread and connections. A worker runs a task at a time."""

_READ_CONFIGS: Final[Mapping[str, object]] = {
    "max.partition.fetch.bytes": 8 << 20,
    "fetch.max.bytes": 16 << 20,
    "fetch.max.wait.ms": 5,
}
"""Unless the user has set them. A worker holds about thrice fetch.max.bytes: what is read, what is fetched ahead, and
memory for the next. What is read is there already, and a fetch that was sent ahead beyond a range's end holds up the
next task for as long as it waits."""

_idle: dict[str, list[RangeReader]] = {}


@dataclass(frozen=True)
class ReadPlan:
    """What all tasks of a read have in common. `columns` are names of Spark's, in the schema's order."""

    kafka: dict[str, str]
    schema_json: str
    fail_on_data_loss: bool
    poll_timeout_ms: int
    segments: SegmentSource | None = None
    """Where segment files are; None: records are read from brokers."""


def read_task(plan: ReadPlan, task: Task) -> Iterator[pa.RecordBatch]:
    """The records of a task's ranges. KafkaTimeoutError when nothing comes for kafkaConsumer.pollTimeoutMs;
    DataLossError; segment_batches_of has those of segment files."""
    if plan.segments is None:
        yield from _read_from_brokers(plan, task)
        return
    into = SparkBatches(plan.schema_json)
    for found in segment_batches_of(plan.segments, task, into, BATCH_ROWS, BATCH_BYTES):
        if isinstance(found, pa.RecordBatch):
            yield found
        else:
            yield from _read_from_brokers(plan, found)


def _read_from_brokers(plan: ReadPlan, task: Task) -> Iterator[pa.RecordBatch]:
    key = json.dumps(plan.kafka, sort_keys=True)
    waiting = _idle.get(key)
    reader = waiting.pop() if waiting else RangeReader(configs={**_READ_CONFIGS, **plan.kafka, **CONSUMER_CONFIGS})
    done = False
    try:
        yield from reader.batches(plan, task)
        done = True
    finally:
        if done:
            # The configuration that was used last is the last one to be given up.
            _idle[key] = [*_idle.pop(key, ()), reader]
            while sum(map(len, _idle.values())) > MAX_IDLE_CONSUMERS:
                _close_oldest()
        else:
            reader.close()


def _close_oldest() -> None:
    key = next(iter(_idle))
    readers = _idle[key]
    if readers:
        readers.pop(0).close()
    if not readers:
        del _idle[key]


class RangeReader(KafkaConsumer):
    """A consumer without a group that reads ranges of offsets."""

    def batches(self, plan: ReadPlan, task: Task) -> Iterator[pa.RecordBatch]:
        """Reads every range to its end, and rests then."""
        builder = SparkBatches(plan.schema_json)
        self._plan = plan
        self._ends = {each.partition: each.end for each in task}
        self._background.call(self._begin, {each.partition: each.start for each in task})

        def take() -> bool:
            room = BATCH_ROWS - builder.rows
            self.fetch_buffer.take_columns(builder.columns, room, BATCH_BYTES, self._ends)
            return builder.rows >= BATCH_ROWS or builder.bytes >= BATCH_BYTES or self._ended()

        full = False
        while self._left:
            full = self._take(take, builder)
            if not builder.rows and not full:
                raise KafkaTimeoutError(
                    f"Cannot fetch record for offset {self._positions[min(self._left)].position} of {min(self._left)} "
                    f"in {plan.poll_timeout_ms} milliseconds"
                )
            yield from builder.batches()
        self._background.call(self._rest)

    def _begin(self, starts: Mapping[TopicPartition, int]) -> None:
        """On the loop's thread."""
        self._core.assign(list(starts))
        for partition, start in starts.items():
            self._core.seek(partition, start)
            self._core.subscription.state_of(partition).paused = False
        self._positions = {partition: self._core.subscription.state_of(partition).buffer for partition in starts}
        self._left = set(starts)
        self._core.wake_fetcher()

    def _rest(self) -> None:
        """Reads nothing until the next task. The partitions stay assigned, so that what is known of them is kept."""
        for partition in self._positions:
            self._core.subscription.state_of(partition).paused = True
            self._positions[partition].rewind()
        self._core.wake_fetcher()

    def _take(self, take: Any, builder: SparkBatches) -> bool:
        """Fills a batch; whether it is full, or the last one."""
        limit = self._plan.poll_timeout_ms / 1000
        deadline = time.monotonic() + limit
        self._acquire()
        try:
            while True:
                try:
                    # Waits for the first rows as long as may be, for others a moment.
                    if self._wait_for(lambda: take() or builder.rows > 0, limit):
                        return bool(take() or self._wait_for(take, FILL_WAIT_S))
                    return False
                except OffsetOutOfRangeError:
                    if self._skip_lost():
                        deadline = time.monotonic() + limit
                    elif time.monotonic() > deadline:
                        raise
                    else:
                        time.sleep(OUT_OF_RANGE_WAIT_S)
                    if self._ended():
                        return True
        finally:
            self._lock.release()

    def _ended(self) -> bool:
        """Ends the fetching of partitions that are at their ends; whether that are all."""
        done = [partition for partition in self._left if self._positions[partition].position >= self._ends[partition]]
        if done:
            self._left.difference_update(done)
            self._background.call(self._set_paused, done, True)
        return not self._left

    def _skip_lost(self) -> bool:
        """Goes on behind records that are gone, or raises DataLossError. False where none are: brokers disagree for a
        moment about what there is."""
        partitions: Sequence[TopicPartition] = sorted(self._left)
        first, last = self.beginning_offsets(partitions), self.end_offsets(partitions)
        moved = {}
        for partition in partitions:
            position, end = self._positions[partition].position, self._ends[partition]
            if position < first[partition]:
                moved[partition] = min(first[partition], end)
            elif position > last[partition]:
                moved[partition] = end
            else:
                continue
            report_data_loss(
                f"Cannot fetch offsets {position} to {moved[partition]} of {partition}, which has offsets "
                f"{first[partition]} to {last[partition]}",
                self._plan.fail_on_data_loss,
            )
        self._background.call(self._seek_back, moved)
        return bool(moved)
