"""What runs in a task of an exactly-once write."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import pyarrow as pa

from kafkapy.errors import KafkaError
from kafkapy_spark.control_topic import Handle
from kafkapy_spark.record_writer import RecordWriter, Written
from kafkapy_spark.sink_options import SinkOptions
from kafkapy_spark.sink_session import SinkSession
from kafkapy_spark.two_phase_commit import SinkPlan, TaskResult, require_current

__all__ = ["write_task"]


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
    """Writes a task's rows in a transaction that is left open, unless its batch is written already. Raises what
    RecordWriter raises, having aborted the transaction; SinkError; KafkaError."""
    replayed = plan.is_replayed(query, batch)
    result = TaskResult(query, batch, partition, plan.driver, replayed=replayed)
    if not replayed and plan.is_decided(query, batch):
        return replace(result, skipped=True)
    first = next((each for each in batches if each.num_rows), None)
    if first is None:
        return result
    session = SinkSession.connected(options.kafka)
    session.run(require_current(session.client, plan))
    kept = not replayed or partition in plan.lost
    kafka = {**options.kafka, "transaction.timeout.ms": str(plan.timeout_ms)}
    name = (plan.transactional_id if kept else plan.comparing_transactional_id)(partition, attempt)
    with RecordWriter(replace(options, kafka=kafka), schema, transactional_id=name) as writer:
        handle, written = _write(writer, plan, partition, attempt, chain([first], batches), kept)
    return replace(result, handle=handle, rows=written.rows, checksum=written.checksum)


def _write(
    writer: RecordWriter, plan: SinkPlan, partition: int, attempt: int, batches: Iterator[pa.RecordBatch], kept: bool
) -> tuple[Handle | None, Written]:
    """kept: whether the transaction is left open. What is written again only to be compared is aborted."""
    producer = writer.producer
    producer.init_transactions()
    producer.begin_transaction()
    try:
        written = writer.write(batches)
        state = producer.prepare_transaction()
    except BaseException:
        with contextlib.suppress(KafkaError):
            producer.abort_transaction()
        raise
    if not kept:
        producer.abort_transaction()
        return None, written
    return Handle(plan.slot, partition, attempt, *state, written.rows, written.checksum), written
