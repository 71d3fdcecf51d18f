"""Batch reads: a stretch of topics as one DataFrame."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kafkapy.errors import IllegalStateError
from kafkapy_spark.data_loss import report_data_loss
from kafkapy_spark.executor_reader import ReadPlan, read_task
from kafkapy_spark.filters import PushedFilters
from kafkapy_spark.offset_reader import OffsetReader
from kafkapy_spark.offsets import PartitionOffsets
from kafkapy_spark.options import SourceOptions
from kafkapy_spark.planning import OffsetRange, Task, plan_tasks


@dataclass
class TaskPartition(InputPartition):
    """A task of a read, as Spark carries it to an executor."""

    task: Task


def read_plan(options: SourceOptions, schema: StructType) -> ReadPlan:
    """What the tasks of a read need to know."""
    return ReadPlan(options.kafka, schema.json(), options.fail_on_data_loss, options.poll_timeout_ms)


def task_partitions(options: SourceOptions, ranges: list[OffsetRange]) -> list[TaskPartition]:
    """The ranges in tasks."""
    tasks = plan_tasks(
        ranges,
        max_tasks=options.max_tasks,
        rows_per_task=options.rows_per_task,
        default_tasks=options.default_tasks,
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
    )
    return [TaskPartition(task) for task in tasks]


class KafkapyReader(DataSourceReader):
    """Offsets are looked up when Spark plans the query, in a process of the driver; `read` runs in tasks."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._plan = read_plan(options, schema)
        self._filters = PushedFilters()
        self.pushFilters: Any = self._filters

    def partitions(self) -> list[TaskPartition]:
        """The tasks. IllegalArgumentError, IllegalStateError, DataLossError, KafkaError."""
        offsets = OffsetReader(self._options)
        try:
            start = offsets.resolve(self._options.starting, starting=True)
            end = offsets.resolve(self._options.ending, starting=False)
            ranges = self._ranges(start, end, offsets)
            return task_partitions(self._options, self._filters.narrow(ranges, offsets.at_times))
        finally:
            offsets.close()

    def _ranges(self, start: PartitionOffsets, end: PartitionOffsets, offsets: OffsetReader) -> list[OffsetRange]:
        """Of partitions that were there both times. What lies behind a partition's end will not come."""
        last = offsets.ends([partition for partition in end if partition in start])
        ranges = []
        for partition in sorted(last):
            at = end[partition]
            if at > last[partition] and start[partition] < at:
                report_data_loss(
                    f"{partition} ends at offset {last[partition]}, before the ending offset {at}",
                    self._options.fail_on_data_loss,
                )
                at = last[partition]
            elif start[partition] > at:
                raise IllegalStateError(
                    f"The resolved start offset {start[partition]} is greater than the resolved end offset {at} for "
                    f"topic {partition.topic} partition {partition.partition}."
                )
            ranges.append(OffsetRange(partition, start[partition], at))
        return ranges

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """A task's records. Spark makes one task, of None, where there are no partitions."""
        return read_task(self._plan, partition.task) if isinstance(partition, TaskPartition) else iter(())
