"""Streaming writes, at least once."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kafkapy_spark.record_writer import RecordWriter
from kafkapy_spark.sink_options import SinkOptions
from kafkapy_spark.writer import WrittenMessage, log_stays, log_written


class KafkapyStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches. One that is run again after a failure is written again: nothing is skipped, and nothing
    that an earlier try has left is taken back."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenMessage:
        """Writes a task's rows. Errors are those of RecordWriter: a record that is lost fails the task."""
        with RecordWriter(self._options, self._schema) as writer:
            return WrittenMessage(writer.write(iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks of the batch have written."""
        log_written(messages, f"Batch {batchId}: ")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Some task has failed. What others have written stays."""
        log_stays(messages, f"Batch {batchId}")
