"""Exactly-once batch writes: `df.write.format("kafkapy").option("delivery", "exactly-once")`.

With txnAppId and txnVersion a write that is run again is skipped if it was written before, as in Delta Lake. Without
them every write has a sink of its own; if its driver dies amid the commit, `kafkapy-spark txn` finishes it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from pyspark.taskcontext import TaskContext

from kafkapy_spark.sink_identity import batch_sink, transaction_timeout_ms
from kafkapy_spark.sink_options import SinkOptions
from kafkapy_spark.sink_plan import SinkPlan, TaskResult
from kafkapy_spark.sink_session import SinkSession
from kafkapy_spark.transactional_task import write_task
from kafkapy_spark.two_phase_commit import SinkDriver

logger = logging.getLogger("kafkapy.spark")


@dataclass
class TransactionMessage(WriterCommitMessage):
    """What a task tells the driver."""

    result: TaskResult


class ExactlyOnceWriter(DataSourceArrowWriter):
    """Made where the write is planned, by which its driver begins; sent to the tasks, and to the commit."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """KafkaError."""
        self._options, self._schema = options, schema
        self._sink = batch_sink(options)
        self._query = options.txn_app_id or self._sink
        self._batch = options.txn_version or 0
        session = SinkSession.connected(options.kafka)
        timeout_ms = transaction_timeout_ms(session, options)
        self._plan = session.run(self._driver(session).begin(timeout_ms))

    def _driver(self, session: SinkSession) -> SinkDriver:
        return SinkDriver(
            session.control,
            self._sink,
            replay=self._options.on_lost_transaction == "replay",
            on_known=self._options.on_known,
            alone=False,
            temporary=self._options.txn_app_id is None,
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TransactionMessage:
        """Writes a task's rows, in a transaction that is left open."""
        return run_task(self._options, self._schema, self._plan, self._query, self._batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """The write is done when this returns. SinkError; KafkaError."""
        session = SinkSession.connected(self._options.kafka)
        results = results_of(messages)
        session.run(self._driver(session).commit(results))
        log_committed(results, f"The write to the sink {self._sink}")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Takes back what tasks have written, unless the write was decided before it failed."""
        session = SinkSession.connected(self._options.kafka)
        written = session.run(self._driver(session).abort(results_of(messages), self._plan))
        log_aborted(f"The write to the sink {self._sink}", written)


def run_task(
    options: SinkOptions,
    schema: StructType,
    plan: SinkPlan,
    query: str,
    batch: int,
    iterator: Iterator[pa.RecordBatch],
) -> TransactionMessage:
    """A task's part, in Spark's worker. Errors as of write_task."""
    context = TaskContext.get()
    assert context is not None
    partition, attempt = context.partitionId(), context.taskAttemptId()
    return TransactionMessage(write_task(options, schema, plan, query, batch, partition, attempt, iterator))


def results_of(messages: Iterable[WriterCommitMessage | None]) -> list[TaskResult]:
    """Of tasks that have succeeded."""
    return [each.result for each in messages if isinstance(each, TransactionMessage)]


def log_committed(results: list[TaskResult], what: str) -> None:
    """Logs the sum of the tasks' results."""
    if results and all(each.skipped for each in results):
        logger.info("%s was written before", what)
    else:
        logger.info("%s: %d records were committed", what, sum(each.rows for each in results))


def log_aborted(what: str, written: bool) -> None:
    """Logs what became of something that has failed."""
    if written:
        logger.warning("%s has failed after it was decided: its records are committed all the same", what)
    else:
        logger.warning("%s has failed: nothing of it is in Kafka for readers of committed records", what)
