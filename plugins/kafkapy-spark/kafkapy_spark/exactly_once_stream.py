"""Exactly-once streaming writes: `writeStream.format("kafkapy").option("delivery", "exactly-once")`."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from pyspark.taskcontext import TaskContext

from kafkapy.errors import IllegalArgumentError, KafkaError
from kafkapy_spark.exactly_once import (
    TransactionMessage,
    log_aborted,
    log_committed,
    results_of,
    run_task,
)
from kafkapy_spark.sink_errors import SinkError
from kafkapy_spark.sink_identity import stream_sink, transaction_timeout_ms
from kafkapy_spark.sink_options import SinkOptions
from kafkapy_spark.sink_plan import SinkPlan
from kafkapy_spark.sink_session import SinkSession
from kafkapy_spark.two_phase_commit import SinkDriver

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


class ExactlyOnceStreamWriter(DataSourceStreamArrowWriter):
    """Spark makes one to plan each batch, which is sent to the tasks, and one in another process to commit or abort it.

    The driver's new epoch is taken when a writer is pickled for the tasks: that tells the first from the second, which
    must not fence the batch that it commits.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """IllegalArgumentError where nothing names the sink."""
        sink = stream_sink(options)
        if sink is None:
            raise IllegalArgumentError(
                "delivery=exactly-once needs the option transactionalIdPrefix, or checkpointLocation as an option of "
                "the query: a checkpoint that is configured by spark.sql.streaming.checkpointLocation is not told to "
                "Python sinks"
            )
        self._options, self._schema, self._sink = options, schema, sink
        self._plan: SinkPlan | None = None

    def __getstate__(self) -> dict[str, Any]:
        if self._plan is None:
            try:
                self._plan = self._begin()
            except KafkaError as error:
                # Spark's pickler puts "Could not serialize object" before errors of other classes.
                raise pickle.PicklingError(f"{type(error).__name__}: {error}") from error
        return self.__dict__

    def _begin(self) -> SinkPlan:
        session = SinkSession.connected(self._options.kafka)
        timeout_ms = transaction_timeout_ms(session, self._options)
        return session.run(self._driver(session).begin(timeout_ms))

    def _driver(self, session: SinkSession) -> SinkDriver:
        return SinkDriver(
            session.control,
            self._sink,
            replay=self._options.on_lost_transaction == "replay",
            on_known=self._options.on_known,
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TransactionMessage:
        """Writes a task's rows, in a transaction that is left open; nothing if the batch is written already."""
        context = TaskContext.get()
        assert context is not None and self._plan is not None
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise SinkError("Spark does not say which batch of which query a task is of")
        return run_task(self._options, self._schema, self._plan, query, int(batch), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The batch is done when this returns. SinkError; KafkaError."""
        session = SinkSession.connected(self._options.kafka)
        results = results_of(messages)
        if any(each.batch != batchId for each in results):
            raise SinkError(f"results of another batch came to the commit of batch {batchId}: {results}")
        session.run(self._driver(session).commit(results))
        log_committed(results, f"Batch {batchId} of the sink {self._sink}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Takes back what tasks have written, unless the batch was decided before it failed.

        Spark does not say which driver has planned a batch of which no task has succeeded, and it may call this long
        after another driver has begun: nothing is ended then. What tasks that were killed have left open, the query's
        next start ends, or transaction.timeout.ms.
        """
        session = SinkSession.connected(self._options.kafka)
        written = session.run(self._driver(session).abort(results_of(messages)))
        log_aborted(f"Batch {batchId} of the sink {self._sink}", written)
