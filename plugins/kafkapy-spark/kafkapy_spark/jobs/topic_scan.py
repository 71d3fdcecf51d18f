"""Reading topics with Python on Spark's executors: records become what a function makes of them before Spark sees any.

Spark takes rows one by one out of Arrow, which costs many times what decoding them does. A job that needs little of
each record therefore reduces ranges of records where they are read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import StructType

from kafkapy_spark.executor_reader import ReadPlan
from kafkapy_spark.jobs.session import kafka_options
from kafkapy_spark.jobs.task_frame import Run, frame_of_tasks
from kafkapy_spark.offset_reader import OffsetReader
from kafkapy_spark.options import SourceOptions
from kafkapy_spark.planning import OffsetRange
from kafkapy_spark.reader import TaskPartition, read_plan, task_partitions
from kafkapy_spark.schema import SCHEMA_WITH_HEADERS
from kafkapy_spark.session import default_parallelism

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["TopicScan", "Work", "time_options"]

Work = Callable[[OffsetRange, "Iterator[pa.RecordBatch]"], "Iterator[pa.RecordBatch]"]
"""What is made of a range: its batches of records, in the order of offsets, come in. It runs on executors."""

TASKS_PER_SLOT: Final = 2
"""So that a slow task holds up less, and a task that fails loses less."""


class TopicScan:
    """A stretch of topics. Its ends are those of the moment when this is made, however often it is read.

    options: those of a batch read, by their names as Spark users write them. IllegalArgumentError, KafkaError.
    """

    def __init__(
        self,
        spark: SparkSession,
        kafka: Mapping[str, str],
        topics: Sequence[str],
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._spark = spark
        given = {**kafka_options(kafka), "subscribe": ",".join(topics), **(options or {})}
        self._options = SourceOptions.parse(given, streaming=False)
        offsets = OffsetReader(self._options)
        try:
            start = offsets.resolve(self._options.starting, starting=True)
            end = offsets.resolve(self._options.ending, starting=False)
            self.ranges = [
                OffsetRange(partition, offset, max(offset, end[partition]))
                for partition, offset in sorted(start.items())
                if partition in end
            ]
            self._tasks = task_partitions(self._with_max_tasks(), self.ranges, offsets)
        finally:
            offsets.close()

    @property
    def size(self) -> int:
        """Offsets; records may be fewer."""
        return sum(each.size for each in self.ranges)

    def frame(self, columns: Sequence[str], work: Work, schema: str) -> DataFrame:
        """What `work` makes of the records, as a DataFrame of this schema. A large partition may come in several
        ranges.

        columns: those of the source that `work` gets, in its types.
        """
        plan = read_plan(self._options, StructType([SCHEMA_WITH_HEADERS[name] for name in columns]))
        return frame_of_tasks(self._spark, len(self._tasks), _on_executor(plan, self._tasks, work), schema)

    def _with_max_tasks(self) -> SourceOptions:
        options = self._options
        if options.max_tasks is not None:
            return options
        slots = default_parallelism(self._spark)
        return dataclasses.replace(options, max_tasks=max(len(self.ranges), TASKS_PER_SLOT * slots))


def time_options(since_ms: int | None, until_ms: int | None) -> dict[str, str]:
    """Options of a read from one time up to, but without, another. A partition in which nothing is that late is read
    from its end, or to it."""
    options: dict[str, str] = {}
    if since_ms is not None:
        options |= {"startingTimestamp": str(since_ms), "startingOffsetsByTimestampStrategy": "latest"}
    if until_ms is not None:
        options["endingTimestamp"] = str(until_ms)
    return options


def _on_executor(plan: ReadPlan, tasks: list[TaskPartition], work: Work) -> Run:
    def run(number: int) -> Iterator[pa.RecordBatch]:
        partition = tasks[number]
        for each in partition.task:
            yield from work(each, dataclasses.replace(partition, task=(each,)).batches(plan))

    return run
