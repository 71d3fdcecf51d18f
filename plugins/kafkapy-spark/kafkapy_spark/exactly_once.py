"""Exactly-once batch writes: `df.write.format("kafkapy").option("delivery", "exactly-once")`.

With txnAppId and txnVersion a write that is run again is skipped if it was written before, as in Delta Lake. Without
them every write has a sink of its own; if its driver dies amid the commit, `kafkapy-spark txn` finishes it.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from pyspark.taskcontext import TaskContext

from kafkapy.admin import ConfigResource, ConfigResourceType
from kafkapy.errors import KafkaError
from kafkapy_spark.sink_options import SinkOptions
from kafkapy_spark.sink_session import SinkSession
from kafkapy_spark.transactional_task import write_task
from kafkapy_spark.two_phase_commit import SinkDriver, SinkPlan, TaskResult

logger = logging.getLogger("kafkapy.spark")

DEFAULT_MAX_TIMEOUT_MS: Final = 900_000
"""transaction.max.timeout.ms where brokers do not say."""
NAME: Final = "kafkapy-spark"


@dataclass
class TransactionMessage(WriterCommitMessage):
    """What a task tells the driver."""

    result: TaskResult


class ExactlyOnceWriter(DataSourceArrowWriter):
    """Made where the write is planned, by which its driver begins; sent to the tasks, and to the commit."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """KafkaError."""
        self._options, self._schema = options, schema
        named = options.txn_app_id is not None
        self._sink = _batch_sink(options)
        self._query = options.txn_app_id or self._sink
        self._batch = options.txn_version or 0
        self._temporary = not named
        session = SinkSession.connected(options.kafka)
        timeout_ms = transaction_timeout_ms(session, options)
        self._plan = session.run(
            self._driver(session).begin(timeout_ms, ignore_state=options.ignore_sink_state),
        )

    def _driver(self, session: SinkSession) -> SinkDriver:
        replay = self._options.on_lost_transaction == "replay"
        return SinkDriver(session.control, self._sink, replay=replay, temporary=self._temporary)

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


def _batch_sink(options: SinkOptions) -> str:
    """Each application has a name of its own, so that versions of one say nothing of another's."""
    prefix = options.transactional_id_prefix or NAME
    if options.txn_app_id is None:
        return f"{prefix}-{uuid.uuid4().hex}"
    return f"{prefix}-{_hash(options.txn_app_id, '' if options.transactional_id_prefix else options.topic or '')}"


def _hash(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def stream_sink(options: SinkOptions) -> str | None:
    """The name of a streaming query's sink; None where neither option that it follows from is known."""
    if options.transactional_id_prefix:
        return options.transactional_id_prefix
    if options.checkpoint_location:
        return f"{NAME}-{_hash(options.checkpoint_location.rstrip('/'), options.topic or '')}"
    return None


def transaction_timeout_ms(session: SinkSession, options: SinkOptions) -> int:
    """Of tasks' transactions: what the user has set, else the longest that the brokers allow."""
    given = options.kafka.get("transaction.timeout.ms")
    if given is not None:
        return int(given)
    if session.timeout_ms is None:
        session.timeout_ms = session.run(_longest_timeout_ms(session))
    return session.timeout_ms


async def _longest_timeout_ms(session: SinkSession) -> int:
    broker = str(min(await session.client.brokers()))
    try:
        found = await session.client.describe_configs(
            [ConfigResource(ConfigResourceType.BROKER, broker)], config_filter="all"
        )
    except KafkaError as error:
        logger.info("The broker's configuration cannot be read, transactions may last 15 minutes: %s", error)
        return DEFAULT_MAX_TIMEOUT_MS
    return int(found["broker"][broker].get("transaction.max.timeout.ms", {}).get("value") or DEFAULT_MAX_TIMEOUT_MS)


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
    partition, attempt = context.partitionId(), context.attemptNumber()
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
