"""Batch writes, at least once: a DataFrame's rows as records."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kafkapy_spark.record_writer import RecordWriter, Written
from kafkapy_spark.sink_options import SinkOptions

logger = logging.getLogger("kafkapy.spark")


@dataclass
class WrittenMessage(WriterCommitMessage):
    """What a task tells the driver."""

    written: Written


class KafkapyWriter(DataSourceArrowWriter):
    """Records are there for everybody as soon as brokers have them: there is nothing to commit, and no way back. Those
    of a task that is tried again are there twice."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenMessage:
        """Writes a task's rows. Errors are those of RecordWriter: a record that is lost fails the task."""
        with RecordWriter(self._options, self._schema) as writer:
            return WrittenMessage(writer.write(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks have written."""
        log_written(messages, "")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Some task has failed. What others have written stays."""
        log_stays(messages, "The write")


def log_written(messages: list[WriterCommitMessage | None], what: str) -> None:
    """Logs the sum of the tasks' messages."""
    done = [each.written for each in messages if isinstance(each, WrittenMessage)]
    logger.info(
        "%s%d records of %d bytes were written by %d tasks",
        what,
        sum(each.rows for each in done),
        sum(each.bytes for each in done),
        len(done),
    )


def log_stays(messages: list[WriterCommitMessage | None], what: str) -> None:
    """Logs how much of a write that has failed stays."""
    rows = sum(each.written.rows for each in messages if isinstance(each, WrittenMessage))
    logger.warning("%s has failed; at least %d of its records are in Kafka, and stay there", what, rows)
