"""Streaming reads: what is new in topics, batch after batch.

The start of a new query is pinned: Spark does not keep the first offset that a Python source names until a batch has
begun, and asks again when that batch failed, so a start at the latest offset would move and skip records. The first
batch of a new query is therefore empty and ends where it starts, which writes the start to the checkpoint. (Spark's own
source keeps it in a file below the checkpoint, whose place a Python source is not told.)

Source: org.apache.spark.sql.kafka010.KafkaMicroBatchStream, KafkaOffsetReaderAdmin.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any, Final, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kafkapy_spark.data_loss import report_data_loss
from kafkapy_spark.group_offsets import GroupOffsets
from kafkapy_spark.offset_reader import METADATA_MAX_AGE_S, OffsetReader, without_frames
from kafkapy_spark.offsets import OffsetJson, PartitionOffsets, from_json, names, to_json
from kafkapy_spark.options import SourceOptions
from kafkapy_spark.planning import OffsetRange, limit_rows
from kafkapy_spark.reader import TaskPartition, read_plan, task_partitions

logger = logging.getLogger("kafkapy.spark")

ENDS_MAX_AGE_S: Final = 0.1
"""Ends of partitions are asked for at most this often: Spark asks a source every 10 ms while nothing is new."""
NO_LIMIT: Final = 2**63 - 1


class KafkapyStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one process of the driver for a run of the query, but for `read`, which runs in tasks."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._plan = read_plan(options, schema)
        self._offsets = OffsetReader(options)
        self._initial: PartitionOffsets | None = None
        self._pinned = False
        self._latest: PartitionOffsets | None = None
        self._latest_at = 0.0
        self._available_now = False
        self._target: PartitionOffsets | None = None
        self._last_trigger_ms = 0.0
        self._group: GroupOffsets | None = None

    # --- offsets ----------------------------------------------------------------------------------------------------

    @without_frames
    def initialOffset(self) -> OffsetJson:
        """Where a new query starts; the same at every call of this process."""
        if self._initial is None:
            self._initial = self._offsets.resolve(self._options.starting, starting=True)
            logger.info("Initial offsets: %s", self._initial)
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """maxOffsetsPerTrigger. Never "all", which is how a trigger of one batch is told from others."""
        most = self._options.max_offsets_per_trigger
        return ReadMaxRows(NO_LIMIT if most is None else most)

    def prepareForTriggerAvailableNow(self) -> None:
        """The query ends where the partitions end at its first batch."""
        self._available_now = True

    @without_frames
    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:
        """Where the next batch ends; `start` when there is none now."""
        known = from_json(start)
        self._tell_group(known)
        once = isinstance(limit, ReadAllAvailable)
        if self._available_now and self._target is None:
            self._target = self._offsets.latest(known)
        if self._must_pin(known, once):
            return to_json(known)
        latest = self._await_news(known)
        self._latest = latest
        recreated = self._offsets.take_recreated()
        if recreated:
            if self._group is not None:
                self._group.forget(recreated)
            report_data_loss(
                f"Topics have been deleted and created again: {', '.join(sorted(recreated))}. Some data may have been "
                "missed",
                self._options.fail_on_data_loss,
            )
        if once:
            return to_json(latest)
        if latest == known and self._available_now and self._group is not None:
            self._group.flush()  # Spark ends the run and this process now
        if self._is_too_little(known, latest):
            return to_json(known)
        if isinstance(limit, ReadMaxRows) and limit.max_rows < NO_LIMIT:
            latest = self._limited(limit.max_rows, known, latest)
        return to_json(latest)

    def reportLatestOffset(self) -> OffsetJson | None:
        """The ends of the partitions as last seen, for the query's progress."""
        return to_json(self._latest) if self._latest else None

    def _must_pin(self, start: PartitionOffsets, once: bool) -> bool:
        """Whether this is to be the first batch of a new query. A trigger of one batch has no other to read in."""
        first = self._initial is not None and not self._pinned and start == self._initial
        self._pinned = True
        return first and self._options.pin_start and not once

    def _await_news(self, start: PartitionOffsets) -> PartitionOffsets:
        """The ends, as soon as they are not `start`, or after idlePollMs."""
        if self._target is not None:
            return self._target
        deadline = time.monotonic() + self._options.idle_poll_ms / 1000
        while True:
            wait = self._latest_at + ENDS_MAX_AGE_S - time.monotonic()
            if self._latest is None or self._latest == start or wait <= 0:
                if wait > 0:
                    time.sleep(wait)
                self._latest = self._offsets.latest(start, METADATA_MAX_AGE_S)
                self._latest_at = time.monotonic()
            if self._latest != start or time.monotonic() >= deadline:
                return self._latest

    def _is_too_little(self, start: PartitionOffsets, latest: PartitionOffsets) -> bool:
        """minOffsetsPerTrigger, and maxTriggerDelay after which that is not looked at."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._available_now:
            return False
        now_ms = time.time() * 1000
        new = sum(end - start.get(partition, 0) for partition, end in latest.items())
        if new < least and now_ms - self._last_trigger_ms < self._options.max_trigger_delay_ms:
            return True
        self._last_trigger_ms = now_ms
        return False

    def _limited(self, limit: int, start: PartitionOffsets, latest: PartitionOffsets) -> PartitionOffsets:
        new = latest.keys() - start.keys()
        return limit_rows(limit, start | (self._offsets.earliest(new) if new else {}), latest)

    # --- batches ----------------------------------------------------------------------------------------------------

    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[TaskPartition]:
        """The tasks of a batch. DataLossError, KafkaError."""
        # A first batch that failed is planned again without being asked for, maybe with a start that has moved since.
        moved = self._initial if not self._pinned else None
        self._pinned = True
        first, last = from_json(start), from_json(end)
        if self._target is not None:
            self._check_target(last)
        ranges = self._ranges(first, last, moved or {})
        return task_partitions(self._options, ranges, self._offsets)

    def _ranges(
        self, start: PartitionOffsets, end: PartitionOffsets, moved: PartitionOffsets
    ) -> list[OffsetRange]:
        """Partitions that are new start at their first offset. Nothing is lost where an end is before a start that has
        moved."""
        fail = self._options.fail_on_data_loss
        new = end.keys() - start.keys()
        if new:
            found = self._offsets.earliest(new & self._offsets.partitions())
            if found.keys() != new:
                report_data_loss(
                    f"Cannot find earliest offsets of {names(new - found.keys())}. Some data may have been missed", fail
                )
            for partition, offset in sorted(found.items()):
                if offset != 0:
                    report_data_loss(
                        f"Added partition {partition} starts from {offset} instead of 0. "
                        "Some data may have been missed",
                        fail,
                    )
            start = start | found
        gone = start.keys() - end.keys()
        if gone:
            report_data_loss(f"{names(gone)} are gone. Some data may have been missed", fail)
        ranges = []
        for partition in sorted(end.keys() & start.keys()):
            if end[partition] < start[partition] != moved.get(partition):
                report_data_loss(
                    f"Partition {partition}'s offset was changed from {start[partition]} to {end[partition]}, some "
                    "data may have been missed",
                    fail,
                )
            ranges.append(OffsetRange(partition, start[partition], end[partition]))
        return ranges

    def _check_target(self, end: PartitionOffsets) -> None:
        """With AvailableNow, partitions that come or go are not covered by the ends that were taken at first."""
        assert self._target is not None
        if end.keys() != self._target.keys():
            raise RuntimeError(
                "Kafka partitions of the end of a batch are not those that were there at first: "
                f"[{names(end)}], and at first [{names(self._target)}]"
            )

    def commit(self, end: OffsetJson) -> None:
        """All before these offsets is done. They are in the checkpoint; a group may be told of them."""
        self._tell_group(from_json(end))

    def stop(self) -> None:
        """Ends the connections."""
        self._offsets.close()
        if self._group is not None:
            self._group.close()

    def _tell_group(self, done: PartitionOffsets) -> None:
        """offsetCommitGroup. What Spark names as a start is the end of a batch that is done; of the last batch of a run
        it names no end."""
        group = self._options.offset_commit_group
        if group is not None:
            if self._group is None:  # not before: tasks get a copy of this object
                self._group = GroupOffsets(self._options.kafka, group)
            self._group.offer(done)

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """A task's records. Spark makes one task, of None, where there are no partitions."""
        return partition.batches(self._plan) if isinstance(partition, TaskPartition) else iter(())


class RefusedStreamReader(DataSourceStreamReader):
    """In place of a reader whose options are refused: raises the error at the first question. PySpark would hide one of
    `streamReader` behind an error of its own, as it stops the reader that there is not."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:
        """Raises the error."""
        raise self._error

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> NoReturn:
        """Raises the error."""
        raise self._error

    def partitions(self, start: OffsetJson, end: OffsetJson) -> NoReturn:
        """Raises the error."""
        raise self._error

    def read(self, partition: InputPartition) -> NoReturn:
        """Raises the error."""
        raise self._error
