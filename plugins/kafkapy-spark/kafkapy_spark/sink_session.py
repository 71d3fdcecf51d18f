"""The connection to the cluster that the parts of an exactly-once write have in one process, and what tasks do by it.

Spark uses Python processes again, for planning and committing as for tasks: connections stay open between batches.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Coroutine, Iterator, Mapping
from itertools import chain
from typing import Any, Final, TypeVar

import pyarrow as pa

from kafkapy.clients.background import BackgroundLoop
from kafkapy.errors import KafkaError
from kafkapy_spark.control_topic import ControlTopic, Handle
from kafkapy_spark.record_writer import RecordWriter, Written
from kafkapy_spark.sink_options import SinkOptions
from kafkapy_spark.transactions import TransactionClient
from kafkapy_spark.two_phase_commit import SinkPlan, TaskResult, require_current

__all__ = ["SinkSession", "write_task"]

T = TypeVar("T")

logger = logging.getLogger("kafkapy.spark")

MAX_SESSIONS: Final = 2
"""In one process, whatever their configurations."""

_open: dict[str, SinkSession] = {}


class SinkSession:
    """A client and the thread of its loop. Made by `connected`; used by one thread."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self.client = TransactionClient(kafka)
        self.control = ControlTopic(self.client)
        self._background = BackgroundLoop("kafkapy-sink")
        self.timeout_ms: int | None = None
        try:
            self._background.run(self.client.start())
        except BaseException:
            self._background.stop()
            raise

    @classmethod
    def connected(cls, kafka: Mapping[str, str]) -> SinkSession:
        """The process's session with this configuration. KafkaError."""
        # A child that is forked has its parent's table, and none of its threads.
        place = json.dumps([os.getpid(), dict(kafka)], sort_keys=True)
        session = _open.pop(place, None) or cls(kafka)
        _open[place] = session
        while len(_open) > MAX_SESSIONS:
            _open.pop(next(iter(_open))).close()
        return session

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Waits for a coroutine of the client's."""
        return self._background.run(coroutine)

    def close(self) -> None:
        """Ends the connections and the thread."""
        if not self._background.foreign:
            self._background.run(self.client.close())
        self._background.stop()


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
        return TaskResult(query, batch, partition, plan.driver, skipped=True)
    first = next((each for each in batches if each.num_rows), None)
    if first is None:
        return result
    session = SinkSession.connected(options.kafka)
    session.run(require_current(session.client, plan))
    keys = {
        "transactional_id": plan.transactional_id(partition, attempt),
        "transaction_timeout_ms": plan.timeout_ms,
    }
    kept = not replayed or partition in plan.lost
    with RecordWriter(options, schema, **keys) as writer:
        handle, written = _write(writer, plan, partition, attempt, chain([first], batches), kept)
    return TaskResult(
        query,
        batch,
        partition,
        plan.driver,
        replayed=replayed,
        handle=handle,
        rows=written.rows,
        checksum=written.checksum,
    )


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
