"""What runs in a task of an exactly-once write."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import pyarrow as pa

from kafkapy.errors import KafkaError, TransactionalIdAuthorizationFailedError, UnsupportedVersionError
from kafkapy_spark.decisions import Handle
from kafkapy_spark.record_writer import RecordWriter, summed_up
from kafkapy_spark.sink_options import TIMEOUT, TWO_PHASES, SinkOptions
from kafkapy_spark.sink_plan import Meaning, SinkPlan, TaskResult
from kafkapy_spark.sink_session import SinkSession
from kafkapy_spark.task_ids import task_ids
from kafkapy_spark.two_phase_commit import require_current

__all__ = ["write_task"]

logger = logging.getLogger("kafkapy.spark")


def write_task(
    options: SinkOptions,
    schema: Any,
    plan: SinkPlan,
    query: str,
    batch: int,
    partition: int,
    attempt: int,
    batches: Iterator[pa.RecordBatch],
) -> TaskResult:
    """Writes a task's rows in a transaction that is left open, unless its batch is known: then its rows are summed up
    at most. attempt: for the log. Raises what RecordWriter raises, having aborted the transaction; SinkError;
    KafkaError."""
    result = plan.result(query, batch, partition)
    if result.meaning in (Meaning.SKIPPED, Meaning.REFUSED):
        return result
    if result.meaning is Meaning.COMPARED or (result.replayed and partition not in plan.lost):
        written = summed_up(options, schema, batches)
        return replace(result, rows=written.rows, checksum=written.checksum)
    first = next((each for each in batches if each.num_rows), None)
    if first is None:
        return result
    session = SinkSession.connected(options.kafka)
    with task_ids.lent(plan.sink, plan.driver, reuse=not plan.lost) as name:
        transactional_id = f"{plan.sink}-{name}"
        logger.debug("Attempt %d of partition %d of batch %d writes as %s", attempt, partition, batch, transactional_id)
        with _initialized(session, options, schema, plan, transactional_id) as writer:
            session.run(require_current(session.client, plan))
            handle = _write(writer, name, partition, chain([first], batches))
    return replace(result, handle=handle, rows=handle.rows, checksum=handle.checksum)


def _initialized(
    session: SinkSession, options: SinkOptions, schema: Any, plan: SinkPlan, transactional_id: str
) -> RecordWriter:
    """A writer whose producer may begin a transaction: one without a timeout where the brokers allow that."""
    without = {name: value for name, value in options.kafka.items() if name not in (TIMEOUT, TWO_PHASES)}
    if options.wants_two_phases and session.two_phases is not False:
        try:
            writer = _initialized_with(options, schema, {**without, TWO_PHASES: "true"}, transactional_id)
        except (TransactionalIdAuthorizationFailedError, UnsupportedVersionError) as error:
            if options.needs_two_phases:
                raise
            logger.debug("The brokers do not allow transactions without a timeout: %s", error)
            session.two_phases = False
        else:
            session.two_phases = True
            return writer
    return _initialized_with(options, schema, {**without, TIMEOUT: str(plan.timeout_ms)}, transactional_id)


def _initialized_with(
    options: SinkOptions, schema: Any, kafka: dict[str, str], transactional_id: str
) -> RecordWriter:
    writer = RecordWriter(replace(options, kafka=kafka), schema, transactional_id=transactional_id)
    try:
        writer.producer.init_transactions()
    except BaseException:
        writer.producer.close(0)
        raise
    return writer


def _write(writer: RecordWriter, name: str, partition: int, batches: Iterator[pa.RecordBatch]) -> Handle:
    producer = writer.producer
    producer.begin_transaction()
    try:
        written = writer.write(batches)
        state = producer.prepare_transaction()
    except BaseException:
        with contextlib.suppress(KafkaError):
            producer.abort_transaction()
        raise
    return Handle(name, partition, *state, written.rows, written.checksum, *writer.last_place())
