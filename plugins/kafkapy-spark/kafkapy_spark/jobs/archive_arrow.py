"""The arrow engine of `archive`: tasks on Spark's executors write files, the driver commits them.

A run reads from where the archive is to where the partitions end when the run begins, in rounds of so many records. A
round is planned in tasks of about a file each, and ends with a commit; a run that is killed loses its round at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafkapy.types import TopicPartition
from kafkapy_spark.data_loss import report_data_loss
from kafkapy_spark.delegation_tokens import login_of_tasks
from kafkapy_spark.jobs.archive_destination import Destination, OtherRunError, Position
from kafkapy_spark.jobs.archive_layout import Layout
from kafkapy_spark.jobs.archive_writer import ArchivedFile, WritePlan, write_task
from kafkapy_spark.jobs.progress import JobProgress
from kafkapy_spark.offset_reader import OffsetReader
from kafkapy_spark.offsets import PartitionOffsets
from kafkapy_spark.options import SourceOptions
from kafkapy_spark.planning import OffsetRange, Task, limit_rows, pack
from kafkapy_spark.reader import read_plan, with_login

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["Archived", "ArrowArchive"]

BYTES_PER_ROW: Final = 100.0
"""In a file, where nothing is known of it."""


@dataclass
class Archived:
    """What a run has done; `offsets` is where the archive is."""

    offsets: PartitionOffsets
    rows: int = 0
    record_bytes: int = 0
    files: int = 0
    file_bytes: int = 0
    commits: int = 0

    def add(self, files: Iterable[ArchivedFile]) -> None:
        """A commit."""
        self.commits += 1
        for file in files:
            self.rows += file.rows
            self.record_bytes += file.record_bytes
            self.files += 1
            self.file_bytes += file.size


class ArrowArchive:
    """One run. `schema` are the columns of the archive."""

    def __init__(
        self,
        spark: SparkSession,
        options: SourceOptions,
        schema: StructType,
        destination: Destination,
        *,
        layout: Layout,
        target_file_bytes: int,
        rows_per_commit: int,
        compression: str,
        progress: JobProgress,
    ) -> None:
        self._spark, self._options, self._schema = spark, options, schema
        self._destination, self._layout = destination, layout
        self._target_bytes, self._rows_per_commit = target_file_bytes, rows_per_commit
        self._compression, self._progress = compression, progress

    def run(self) -> Archived:
        """Archives what there is. OtherRunError, DataLossError, KafkaError, OSError; errors of tasks are Spark's."""
        self._progress.step("looking up offsets")
        position = self._destination.position()
        lookup = OffsetReader(self._options)
        try:
            start, end = self._span(position, lookup)
            per_row = position.bytes_per_row or _log_bytes_per_row(lookup, _ranges(start, end))
            self._read = read_plan(self._options, self._schema, lookup.topic_ids())
            topic_ids = position.topic_ids | {topic: str(found) for topic, found in lookup.topic_ids().items()}
        finally:
            lookup.close()
        done = Archived(position.offsets | start)
        first = not start.keys() & position.offsets.keys()
        if not first and start == end:
            return done
        self._destination.begin()
        if first:
            # The start is kept before anything is read: it does not move, whatever happens to this run.
            self._commit([], Position(done.offsets, topic_ids, per_row))
        while start != end:
            stop = limit_rows(self._rows_per_commit, start, end)
            files = self._round(_ranges(start, stop), per_row, done.commits)
            rows = sum(file.rows for file in files)
            if rows:
                per_row = sum(file.size for file in files) / rows
            done.offsets = done.offsets | stop
            self._commit(files, Position(done.offsets, topic_ids, per_row))
            done.add(files)
            self._progress.advance(rows, sum(file.record_bytes for file in files))
            start = stop
        self._destination.end()
        return done

    # --- what there is ----------------------------------------------------------------------------------------------

    def _span(self, position: Position, lookup: OffsetReader) -> tuple[PartitionOffsets, PartitionOffsets]:
        """Where this run starts and ends, of the same partitions: start <= end. DataLossError."""
        chosen = lookup.partitions()
        known = {partition: offset for partition, offset in position.offsets.items() if partition in chosen}
        if known:
            new = chosen - known.keys()
            start = known | (lookup.earliest(new) if new else {})
        else:
            start = lookup.resolve(self._options.starting, starting=True)
        recreated = {
            topic
            for topic, found in lookup.topic_ids().items()
            if position.topic_ids.get(topic, str(found)) != str(found)
        }
        first, last = lookup.earliest(start), lookup.ends(start)
        for partition in sorted(known):
            start[partition] = self._kept(partition, known[partition], first[partition], last[partition], recreated)
        wanted = lookup.resolve(self._options.ending, starting=False)
        end = {
            partition: max(offset, min(wanted.get(partition, offset), last[partition]))
            for partition, offset in start.items()
        }
        return start, end

    def _kept(self, partition: TopicPartition, offset: int, first: int, last: int, recreated: set[str]) -> int:
        """Where to go on in a partition that has been archived up to an offset."""
        fail = self._options.fail_on_data_loss
        if partition.topic in recreated:
            report_data_loss(f"Topic {partition.topic} has been deleted and created again since it was archived", fail)
            return first
        archived = f"Partition {partition} has been archived up to offset {offset}"
        if offset < first:
            report_data_loss(f"{archived}, and starts at {first} now", fail)
            return first
        if offset > last:
            report_data_loss(f"{archived}, and ends at {last} now", fail)
            return last
        return offset

    # --- rounds -----------------------------------------------------------------------------------------------------

    def _round(self, ranges: list[OffsetRange], bytes_per_row: float, number: int) -> list[ArchivedFile]:
        total = sum(each.size for each in ranges)
        tasks = pack(ranges, max(1, round(total * bytes_per_row / self._target_bytes)))
        self._progress.step(f"round {number + 1}: {total:,} records in {len(tasks):,} tasks")
        plan = WritePlan(
            read=with_login(self._read, login_of_tasks(self._options)),
            root=self._destination.root,
            name=f"{self._destination.name}-{number:04}",
            layout=self._layout,
            target_bytes=self._target_bytes,
            compression=self._compression,
        )
        return [file for files in _run(self._spark, plan, tasks) for file in files]

    def _commit(self, files: list[ArchivedFile], position: Position) -> None:
        self._progress.step(f"committing {len(files):,} files")
        try:
            self._destination.commit(files, position)
        except OtherRunError:
            self._destination.discard(files)
            raise


def _ranges(start: PartitionOffsets, end: PartitionOffsets) -> list[OffsetRange]:
    """What is between, without what is empty."""
    ranges = [OffsetRange(partition, start[partition], end[partition]) for partition in sorted(start)]
    return [each for each in ranges if each.size > 0]


def _log_bytes_per_row(lookup: OffsetReader, ranges: list[OffsetRange]) -> float:
    """What an offset takes in brokers' logs, which is not far from what it takes in files."""
    sizes = lookup.bytes_per_row(ranges)
    known = [each for each in ranges if each.partition in sizes]
    rows = sum(each.size for each in known)
    return sum(each.size * sizes[each.partition] for each in known) / rows if rows else BYTES_PER_ROW


def _run(spark: SparkSession, plan: WritePlan, tasks: Sequence[Task]) -> list[list[ArchivedFile]]:
    """On the executors, a task of Spark's for each of ours."""
    return list(spark.sparkContext.parallelize([*enumerate(tasks)], len(tasks)).map(_Write(plan)).collect())


class _Write:
    """What is sent to the executors."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def __call__(self, numbered: tuple[int, Any]) -> list[ArchivedFile]:
        return write_task(self._plan, *numbered)
