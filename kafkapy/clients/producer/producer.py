"""KafkaProducer: the synchronous producer, with kafka-python's constructor and methods.

    with KafkaProducer(bootstrap_servers="localhost:9092") as producer:
        future = producer.send("orders", b"value", key=b"key")
        print(future.get(timeout=10).offset)

send() is C (`_speedups/clients/producer/record_sender`); all waits run on the producer's thread.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Unpack

from kafkapy._speedups.clients.producer.partition_queue import PartitionQueue
from kafkapy._speedups.clients.producer.record_future import BulkFuture, FutureRecordMetadata
from kafkapy._speedups.clients.producer.record_sender import RecordSender, deliver_to
from kafkapy.clients.background import BackgroundLoop, runs_a_loop
from kafkapy.clients.producer.core import ProducerCore, no_room
from kafkapy.clients.producer.interceptors import ProducerRecord
from kafkapy.clients.producer.transactional_requests import GroupMetadata, PreparedTxnState
from kafkapy.config.clients import ClientConfig
from kafkapy.config.producer import PRODUCER, ProducerConfig
from kafkapy.errors import IllegalStateError, KafkaError
from kafkapy.serializer import made, serialize_with
from kafkapy.types import OffsetAndMetadata, RecordMetadata, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from kafkapy.config.options import ProducerOptions

__all__ = ["KafkaProducer"]

log = logging.getLogger("kafkapy.producer")

ROOM_CHECK_S: Final = 0.05
ROOM_CAME_S: Final = 0.0005
CLOSE_AT_EXIT_S: Final = 1.0
"""Seconds in which an unclosed producer sends its last records at exit."""
MARGIN_S: Final = 5.0
"""Seconds to wait for the producer's thread beyond its own timeout."""


class _Group(NamedTuple):
    """A group known only by name."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class KafkaProducer(RecordSender):
    """Publishes records. Threads may share one producer.

    A forked child needs a new one. Keyword arguments are kafka-python's, or Kafka's keys with dots:
    ``KafkaProducer(configs={"linger.ms": 5})``. The defaults are those of Kafka 4: acks=all, idempotent, linger.ms=5.
    docs/clients.md lists all of them.
    """

    def __init__(self, configs: Mapping[str, object] | None = None, **keywords: Unpack[ProducerOptions]) -> None:
        """Connects to the cluster.

        NoBrokersAvailableError; ConfigError for unknown keys and invalid values.
        """
        self._closed = True
        config = ProducerConfig(PRODUCER, configs, **keywords)
        self.config: ClientConfig = config
        self._core = core = ProducerCore(config)
        self._max_block_s: float = config["max.block.ms"] / 1000
        self.accumulator = core.accumulator
        self._serializers = [made(config["key.serializer"]), made(config["value.serializer"])]
        self.key_serializer, self.value_serializer = (serialize_with(each) for each in self._serializers)
        self.interceptors = core.interceptors or None
        self._pid = os.getpid()
        self._background = BackgroundLoop(f"kafkapy-{config['client.id']}")
        try:
            self._background.run(core.start())
            self._background.call(core.network.learn_api_version, config)
        except BaseException:
            self._background.stop()
            raise
        if core.partitioner is not None:
            from kafkapy.clients.producer.partitioners import bound

            self.partitioner = bound(core.partitioner, core.accumulator, core.network.cluster)
        self._closed = False
        _open.add(self)

    def __enter__(self) -> KafkaProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_closed", True):
            return
        with contextlib.suppress(Exception):
            if runs_a_loop():
                # A garbage collection on the loop of another client or of the user, which must not block.
                self._closed = True
                self._core.stop_taking()
                self._background.post(_close_aside, self._core, self._background, self._serializers)
            else:
                self.close(timeout=CLOSE_AT_EXIT_S)

    def __repr__(self) -> str:
        return (
            f"<KafkaProducer client_id={self.config['client.id']} transactional_id={self.config['transactional.id']}>"
        )

    # --- slow paths of send() -------------------------------------------------------------------------------------

    def refuse(self) -> None:
        """Raises the reason why no records are accepted."""
        if os.getpid() != self._pid:
            raise IllegalStateError("the producer belongs to the parent process; create a new producer after a fork")
        raise self._core.refusal()

    def _deadline(self, deadline: float | None) -> tuple[float, float]:
        """(deadline of this send, seconds left)."""
        now_s = time.monotonic()
        if deadline is None:
            deadline = now_s + self._max_block_s
        return deadline, max(deadline - now_s, 0.0)

    def await_topic(self, topic: str, partition: int | None, deadline: float | None) -> float:
        """Waits until the topic and the partition are known.

        Errors as in partitions_for().
        """
        deadline, left_s = self._deadline(deadline)
        self._background.run(self._core.await_partition(topic, partition, left_s))
        return deadline

    def join_transaction(self, queue: PartitionQueue) -> None:
        """Adds a partition to the open transaction, with its first record."""
        self._core.join_transaction(queue)

    def await_room(self, room: int, deadline: float | None) -> float:
        """Waits until the buffer may have `room` bytes free. BufferExhaustedError.

        For a refused record.
        """
        deadline, left_s = self._deadline(deadline)
        accumulator = self.accumulator
        told = threading.Event()
        accumulator.wait_for_room(told.set)
        try:
            if not accumulator.open:
                return deadline
            if left_s <= 0:
                raise no_room(accumulator, self._max_block_s)
            if accumulator.has_room(room):
                # The space became free after the refusal. A refusal for another reason must not make this thread spin.
                told.wait(min(left_s, ROOM_CAME_S))
                return deadline
            # Space may become free without a signal, so the loop checks now and then.
            told.wait(min(left_s, ROOM_CHECK_S))
        finally:
            accumulator.stop_waiting(told.set)
        return deadline

    def send_intercepted(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Any,
        partition: int | None,
        timestamp_ms: int | None,
        callback: Callable[[RecordMetadata | None, BaseException | None], object] | None,
    ) -> FutureRecordMetadata:
        """send() with interceptors.

        They see the record first, and then its result, including an error from here.
        """
        interceptors = self._core.interceptors
        record = interceptors.on_send(ProducerRecord(topic, value, key, headers, partition, timestamp_ms))
        try:
            future = self.send_plain(
                record.topic, record.value, record.key, record.headers, record.partition, record.timestamp_ms
            )
        except Exception as error:
            interceptors.on_acknowledgement(None, error)
            raise
        deliver_to(future, interceptors.on_acknowledgement)
        if callback is not None:
            deliver_to(future, callback)
        return future

    # --- methods --------------------------------------------------------------------------------------------------

    def send_arrow(self, table: Any, topic: str | None = None) -> BulkFuture:
        """Sends a record for each row of a table; returns one future.

        The table is a pyarrow table or a DataFrame. See kafkapy.arrow.send for the columns. Needs pyarrow (the extra
        `arrow`).
        """
        from kafkapy.clients.arrow.rows import send

        return send(self, table, topic)

    def flush(self, timeout: float | None = None) -> None:
        """Sends all buffered records and waits for their results.

        timeout: seconds, None without limit. KafkaTimeoutError; the records are still sent.
        """
        if self._closed:
            return
        self._background.run(self._core.flush(timeout))

    def partitions_for(self, topic: str) -> set[int]:
        """The partition numbers of a topic.

        KafkaTimeoutError after max.block.ms; TopicAuthorizationFailedError and others.
        """
        self._require_open()
        return self._background.run(self._core.partitions(topic))

    @classmethod
    def max_usable_produce_magic(cls, api_version: tuple[int, ...]) -> int:
        """The newest message format of a release's brokers: always 2.

        All releases that this client supports have it.
        """
        del api_version
        return 2

    def bootstrap_connected(self) -> bool:
        """Whether the client has reached the cluster."""
        return not self._closed and not self._core.network.cluster.bootstrapping

    def metrics(self, raw: bool = False) -> dict[str, Any]:
        """{group: {name: value}}; raw: {(group, name): value}."""
        groups = self._core.all_metrics()
        if raw:
            return {(group, name): value for group, values in groups.items() for name, value in values.items()}  # type: ignore[misc]
        return groups

    def client_instance_id(self, timeout: float) -> UUID | None:
        """The client's id in the metrics that it pushes (KIP-714).

        None when no broker gives one within `timeout` seconds. IllegalStateError with enable_metrics_push=False or
        without the extra `telemetry`; ValueError for a negative timeout.
        """
        self._require_open()
        return self._background.run(self._core.telemetry.client_instance_id(timeout))

    def close(self, timeout: float | None = None) -> None:
        """Sends buffered records, aborts an open transaction, and ends the producer's thread.

        timeout: largest duration in seconds (None: no limit, 0: no sending); unsent records then fail with a
        KafkaError. A second call does nothing. ValueError for a negative timeout. A forked child sends nothing.
        """
        if timeout is not None and timeout < 0:
            raise ValueError(f"timeout {timeout} is negative")
        if self._closed:
            return
        self._closed = True
        _open.discard(self)
        if self._background.foreign:
            self._background.stop()
            return
        try:
            if threading.get_ident() == self.accumulator.pool.loop_thread:
                # From a callback: waiting for the thread of this call would deadlock.
                self._core.stop_taking()
                self._background.loop.create_task(self._close_here())
                return
            try:
                self._background.run(self._core.close(timeout), None if timeout is None else timeout + MARGIN_S)
            finally:
                self._background.stop()
        finally:
            _close_all_of(self._serializers)

    async def _close_here(self) -> None:
        await self._core.close(0)
        self._background.stop()

    def _require_open(self) -> None:
        if self._closed:
            raise IllegalStateError("the producer is closed")

    # --- transactions ---------------------------------------------------------------------------------------------

    def init_transactions(self, keep_prepared_txn: bool = False) -> None:
        """Initializes transactions; required once before the first one.

        It gets a producer id and aborts open transactions of earlier producers with the same transactional_id. It may
        be called again after a KafkaTimeoutError (max.block.ms).

        With `keep_prepared_txn` (KIP-939) an open transaction stays open: complete_transaction(), commit_transaction()
        or abort_transaction() ends it, and nothing else is possible before. UnsupportedVersionError: the broker cannot
        do that.

        IllegalStateError without a transactional_id; TransactionalIdAuthorizationFailedError and others.
        """
        self._require_open()
        self._background.run(self._core.init_transactions(keep_prepared_txn))

    def begin_transaction(self) -> None:
        """Begins a transaction. IllegalStateError.

        ProducerFencedError: a newer producer has the transactional id.
        """
        self._require_open()
        self._background.call(self._core.begin_transaction)

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group_metadata: GroupMetadata | str
    ) -> None:
        """Commits the offsets of a consumer group with the open transaction.

        A number is an offset without metadata, as of KafkaConsumer.position().
        group_metadata: KafkaConsumer.group_metadata(), which fences members that have left the group; or the group's
        name. CommitFailedError: the member has left; ProducerFencedError; KafkaTimeoutError; IllegalStateError.
        """
        self._require_open()
        group = _Group(group_metadata) if isinstance(group_metadata, str) else group_metadata
        chosen = {
            partition: OffsetAndMetadata(offset) if isinstance(offset, int) else offset
            for partition, offset in offsets.items()
        }
        self._background.run(self._core.send_offsets_to_transaction(chosen, group))

    def prepare_transaction(self) -> PreparedTxnState:
        """Sends buffered records and leaves the transaction open, even after close().

        It accepts no more records. The transaction ends by the returned state and its transactional_id, or by the
        broker (transaction.timeout.ms), which never does that with transaction.two.phase.commit.enable.

        The names are KIP-939's; the broker need not support it. Raises the error of a failed record; then
        abort_transaction() must follow. It may be called again after a KafkaTimeoutError.
        """
        self._require_open()
        return self._background.run(self._core.prepare_transaction())

    def complete_transaction(self, prepared: PreparedTxnState) -> None:
        """Commits the prepared transaction if it is the given one; aborts another.

        Without effect after init_transactions(keep_prepared_txn=True) that found no open transaction: it was ended
        already. IllegalStateError without a prepared transaction; other errors as in commit_transaction().
        """
        self._require_open()
        self._background.run(self._core.complete_transaction(prepared))

    def commit_transaction(self) -> None:
        """Sends buffered records and commits the transaction.

        Raises the error of a failed record; then abort_transaction() must follow. It may be called again after a
        KafkaTimeoutError. After ProducerFencedError only close() remains.
        """
        self._require_open()
        self._background.run(self._core.commit_transaction())

    def abort_transaction(self) -> None:
        """Aborts the transaction.

        Buffered records are dropped; sent records stay hidden from readers of committed records.
        """
        self._require_open()
        self._background.run(self._core.abort_transaction())


def _close_all_of(serializers: list[Any]) -> None:
    for serializer in serializers:
        close = getattr(serializer, "close", None)
        if callable(close):
            close()


_closing: set[asyncio.Task[None]] = set()


def _close_aside(core: ProducerCore, background: BackgroundLoop, serializers: list[Any]) -> None:
    """Closes an abandoned producer in the background, on its loop."""

    async def close() -> None:
        try:
            await core.close(CLOSE_AT_EXIT_S)
        finally:
            _close_all_of(serializers)
            background.stop()

    task = background.loop.create_task(close())
    _closing.add(task)
    task.add_done_callback(_closing.discard)


_open: weakref.WeakSet[KafkaProducer] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for producer in list(_open):
        with contextlib.suppress(KafkaError):
            producer.close(CLOSE_AT_EXIT_S)


def _forked() -> None:
    """Abandons the producers of the parent in a forked child.

    The parent sends their records.
    """
    for producer in list(_open):
        producer.accumulator.open = False
        producer.accumulator.wake = None


os.register_at_fork(after_in_child=_forked)
