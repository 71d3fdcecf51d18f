"""Batch reads: a stretch of topics as one DataFrame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kafkapy.errors import IllegalStateError
from kafkapy.types import TopicPartition
from kafkapy_spark.data_loss import report_data_loss
from kafkapy_spark.delegation_tokens import login_of_tasks, without_login
from kafkapy_spark.executor_reader import ReadPlan, read_task
from kafkapy_spark.filters import PushedFilters
from kafkapy_spark.offset_reader import METADATA_MAX_AGE_S, OffsetReader, without_frames
from kafkapy_spark.offsets import PartitionOffsets
from kafkapy_spark.option_names import KafkaConfigs
from kafkapy_spark.options import SourceOptions
from kafkapy_spark.planning import OffsetRange, Task, plan_tasks
from kafkapy_spark.segments import SegmentSource


@dataclass
class TaskPartition(InputPartition):
    """A task of a read, as Spark carries it to an executor."""

    task: Task
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    """Where segment files are read: what they are known by."""
    login: Mapping[str, str] = field(default_factory=KafkaConfigs)
    """Keys of SASL, where the plan has none."""

    def batches(self, plan: ReadPlan) -> Iterator[Any]:
        """The records."""
        return read_task(with_login(with_topic_ids(plan, self.topic_ids), self.login), self.task)


def read_plan(options: SourceOptions, schema: StructType, topic_ids: Mapping[str, UUID] | None = None) -> ReadPlan:
    """What the tasks of a read need to know. Without the ids of its topics none of them reads segment files."""
    segments = None
    if options.read_from != "broker":
        segments = SegmentSource(
            paths=options.segments_path,
            required=options.read_from == "segments",
            topic_ids=topic_ids or {},
            read_committed=options.read_committed,
            check_crcs=options.kafka.get("check.crcs", "true").lower() != "false",
        )
    return ReadPlan(options.kafka, schema.json(), options.fail_on_data_loss, options.poll_timeout_ms, segments)


def with_topic_ids(plan: ReadPlan, topic_ids: Mapping[str, UUID]) -> ReadPlan:
    """The same plan for topics that were known later."""
    if plan.segments is None:
        return plan
    return replace(plan, segments=replace(plan.segments, topic_ids=topic_ids))


def with_login(plan: ReadPlan, login: Mapping[str, str]) -> ReadPlan:
    """The same plan with other keys of SASL, if any."""
    return replace(plan, kafka=KafkaConfigs({**without_login(plan.kafka), **login})) if login else plan


def task_partitions(
    options: SourceOptions, ranges: list[OffsetRange], offsets: OffsetReader | None = None
) -> list[TaskPartition]:
    """The ranges in tasks; of equal bytes where `offsets` can be asked how large records are. KafkaError."""
    login = login_of_tasks(options)
    by_bytes = offsets is not None and options.min_partitions is None and options.max_records_per_partition is None
    tasks = plan_tasks(
        ranges,
        max_tasks=options.max_tasks,
        rows_per_task=options.rows_per_task,
        default_tasks=options.default_tasks,
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
        bytes_per_task=options.bytes_per_task,
        bytes_per_row=offsets.bytes_per_row(ranges) if offsets is not None and by_bytes else {},
    )
    if offsets is None or options.read_from == "broker":
        return [TaskPartition(task, login=login) for task in tasks]
    # A range of a checkpoint may have been planned at another isolation level; only the broker can wait for its end.
    ids = _ids(offsets, {each.partition for each in ranges} - offsets.decided(ranges))
    return [
        TaskPartition(
            task, {topic: ids[topic] for topic in {each.partition.topic for each in task} & ids.keys()}, login
        )
        for task in tasks
    ]


def _ids(offsets: OffsetReader, undecided: set[TopicPartition]) -> dict[str, UUID]:
    """Ids of the topics that may be read from files."""
    offsets.partitions(METADATA_MAX_AGE_S)
    refused = {partition.topic for partition in undecided}
    return {topic: found for topic, found in offsets.topic_ids().items() if topic not in refused}


class KafkapyReader(DataSourceReader):
    """Offsets are looked up when Spark plans the query, in a process of the driver; `read` runs in tasks."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._plan = read_plan(options, schema)
        self._filters = PushedFilters()
        self.pushFilters: Any = self._filters

    @without_frames
    def partitions(self) -> list[TaskPartition]:
        """The tasks. IllegalArgumentError, IllegalStateError, DataLossError, KafkaError."""
        offsets = OffsetReader(self._options)
        try:
            start = offsets.resolve(self._options.starting, starting=True)
            end = offsets.resolve(self._options.ending, starting=False)
            ranges = self._ranges(start, end, offsets)
            return task_partitions(self._options, self._filters.narrow(ranges, offsets.at_times), offsets)
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
        return partition.batches(self._plan) if isinstance(partition, TaskPartition) else iter(())
