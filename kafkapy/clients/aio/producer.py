"""AIOKafkaProducer: the producer on the user's event loop, with aiokafka's interface.

There is no Python thread: `ProducerCore` runs on the loop of `start()`, asyncio's or uvloop. Appending a record takes
no turn of the loop when the topic is known and the buffer has space.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Unpack

from kafkapy._speedups.clients.producer.partition_queue import PartitionQueue
from kafkapy._speedups.clients.producer.record_future import FutureRecordMetadata
from kafkapy._speedups.clients.producer.record_sender import RecordSender, deliver_to
from kafkapy.clients.aio.batch_builder import BatchBuilder
from kafkapy.clients.aio.client import AIOKafkaClient
from kafkapy.clients.aio.errors import IllegalOperation, ProducerClosed
from kafkapy.clients.aio.lifecycle import StartedClient, drop_old_keywords
from kafkapy.clients.aio.offsets import CommitOffsets, commit_offsets
from kafkapy.clients.consumer.membership.protocol import ConsumerGroupMetadata
from kafkapy.clients.producer.core import ProducerCore
from kafkapy.clients.producer.interceptors import ProducerRecord
from kafkapy.clients.producer.transaction_manager import State
from kafkapy.clients.producer.transactional_requests import PreparedTxnState
from kafkapy.config.config_def import ConfigKey, Importance, at_least
from kafkapy.config.producer import PRODUCER, ProducerConfig
from kafkapy.errors import IllegalStateError
from kafkapy.serializer import made, serialize_with
from kafkapy.types import ConfigType, RecordMetadata

if TYPE_CHECKING:
    from uuid import UUID

    from kafkapy.config.options import AIOProducerOptions

__all__ = ["AIO_PRODUCER", "AIOKafkaProducer", "TransactionContext"]

_LINGER: Final = ConfigKey(
    "linger.ms",
    ConfigType.LONG,
    0,
    at_least(0),
    Importance.MEDIUM,
    "Milliseconds that a batch with free space waits for more records.",
)
AIO_PRODUCER: Final = PRODUCER.with_keys((_LINGER,), aliases={"max.batch.size": "batch.size"}, without_effect=("loop",))
"""A producer's keys. linger.ms is 0 as in aiokafka: a task that awaits each record would wait this long for each."""

Headers = Iterable[tuple[str, bytes | None]]


class _Wait(Exception):
    """The sender's signal to await a topic, a partition, or space.

    Not an error.
    """

    def __init__(self, topic: str | None, partition: int | None = None, room: int = 0) -> None:
        super().__init__()
        self.topic = topic
        self.partition = partition
        self.room = room


class _Sender(RecordSender):
    """Appends records; raises _Wait instead of blocking."""

    def __init__(self, core: ProducerCore, key_serializer: Any = None, value_serializer: Any = None) -> None:
        self.accumulator = core.accumulator
        self.key_serializer = serialize_with(key_serializer)
        self.value_serializer = serialize_with(value_serializer)
        self._core = core

    def refuse(self) -> None:
        """Raises the reason why no records are accepted."""
        with _as_illegal_operation():
            raise self._core.refusal()

    def await_topic(self, topic: str, partition: int | None, deadline: float | None) -> float:
        """Raises _Wait for an unknown topic or partition."""
        raise _Wait(topic, partition)

    def await_room(self, room: int, deadline: float | None) -> float:
        """Raises _Wait for buffer space."""
        raise _Wait(None, room=room)

    def join_transaction(self, queue: PartitionQueue) -> None:
        """Adds a partition to the open transaction, with its first record."""
        self._core.join_transaction(queue)


class AIOKafkaProducer(StartedClient):
    """Publishes records.

        async with AIOKafkaProducer(bootstrap_servers="localhost:9092") as producer:
            metadata = await producer.send_and_wait("orders", b"value", key=b"key")

    Configuration comes as keywords (aiokafka's and kafka-python's names of Kafka's keys), or with Kafka's names in a
    dict called `configs`. Defaults are Kafka's (acks=all, idempotent), except linger_ms=0. ConfigError. All methods run
    on the loop of `start`.
    """

    def __init__(self, *, configs: Mapping[str, object] | None = None, **keywords: Unpack[AIOProducerOptions]) -> None:
        super().__init__()
        drop_old_keywords(keywords)
        self.config = config = ProducerConfig(AIO_PRODUCER, configs, **keywords)
        self._core = core = ProducerCore(config)
        self._serializers = (made(config["key.serializer"]), made(config["value.serializer"]))
        self._sender = _Sender(core, *self._serializers)
        self._raw = _Sender(core)
        self._interceptors = core.interceptors
        self._with_metadata = config["acks"] != 0
        """Whether results have metadata. aiokafka returns None with acks=0, when there is no response."""

    async def start(self, keep_prepared_txn: bool = False) -> None:
        """Connect to the cluster; with a transactional_id, initialize transactions.

        The initialization gets a producer id and aborts open transactions of earlier producers. With
        `keep_prepared_txn` (KIP-939) an open transaction stays open until complete_transaction(), commit_transaction()
        or abort_transaction(). NoBrokersAvailableError, UnsupportedVersionError,
        TransactionalIdAuthorizationFailedError, KafkaTimeoutError.
        """
        if self._stopped:
            raise ProducerClosed("This producer has been stopped")
        if self._started:
            return
        self._started = True
        core = self._core
        try:
            await core.start()
            if core.partitioner is not None:
                # Loading partitioners of plugins takes time; it happens only if the configuration names one.
                from kafkapy.clients.producer.partitioners import bound

                chosen = bound(core.partitioner, core.accumulator, core.network.cluster)
                self._sender.partitioner = self._raw.partitioner = chosen
            if self.config["transactional.id"] is not None:
                await core.init_transactions(keep_prepared_txn)
        except BaseException:
            self._stopped = True
            await core.close(0)
            raise

    async def stop(self) -> None:
        """Send buffered records, abort an open transaction, and close all connections.

        A second call does nothing.
        """
        if self._stopped:
            return
        self._stopped = True
        if self._started:
            await self._core.close()
        for serializer in self._serializers:
            close = getattr(serializer, "close", None)
            if callable(close):
                close()

    def _require_running(self) -> None:
        if not self._running:
            raise ProducerClosed("The producer was stopped" if self._stopped else "The producer is not started")

    # --- records --------------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Send a record; returns a future of its RecordMetadata.

        With acks=0 the future gives None. It waits only for topic metadata and for buffer space (max_block_ms).
        Cancelling the future does not cancel the record. A record that waited may be serialized twice.
        KafkaTimeoutError: no metadata, or no space (BufferExhaustedError). RecordTooLargeError. TypeError.
        IllegalOperation: no transaction is open. TopicAuthorizationFailedError, InvalidTopicError. ProducerClosed.
        """
        return self._as_asyncio(await self._append(topic, value, key, partition, timestamp_ms, headers))

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> RecordMetadata:
        """`send`, and wait for the result."""
        return await self._as_asyncio(await self._append(topic, value, key, partition, timestamp_ms, headers))

    async def _append(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | None,
    ) -> FutureRecordMetadata:
        self._require_running()
        if headers is not None and not isinstance(headers, list | tuple):
            headers = list(headers)  # an iterator works once, and the record may be appended again
        if not self._interceptors:
            return await self._send_with(self._sender, topic, value, key, headers, partition, timestamp_ms)
        record = self._interceptors.on_send(ProducerRecord(topic, value, key, headers, partition, timestamp_ms))
        try:
            future = await self._send_with(
                self._sender,
                record.topic,
                record.value,
                record.key,
                record.headers,
                record.partition,
                record.timestamp_ms,
            )
        except Exception as error:
            self._interceptors.on_acknowledgement(None, error)
            raise
        deliver_to(future, self._interceptors.on_acknowledgement)
        return future

    async def _send_with(
        self, sender: _Sender, topic: str, *record: Any, deadline: float | None = None
    ) -> FutureRecordMetadata:
        """The future of a record, once the record is in a batch.

        `deadline` is on the loop's clock; None: max.block.ms from the first wait on.
        """
        while True:
            try:
                return sender.send_plain(topic, *record)
            except _Wait as wanted:
                now = asyncio.get_running_loop().time()
                if deadline is None:
                    deadline = now + self.config["max.block.ms"] / 1000
                left = max(deadline - now, 0.0)
                if wanted.topic is not None:
                    await self._core.await_partition(wanted.topic, wanted.partition, left)
                else:
                    await self._core.wait_for_room(wanted.room, left)

    def _as_asyncio(self, record: FutureRecordMetadata) -> asyncio.Future[RecordMetadata]:
        """The record's future as an asyncio future of the running loop.

        The loop also completes the record's batch.
        """
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        record.add_done_callback_threadless(partial(_settle, future, self._with_metadata))
        return future

    async def flush(self) -> None:
        """Send all buffered records; returns when all earlier records have results."""
        self._require_running()
        await self._core.flush()

    async def partitions_for(self, topic: str) -> set[int]:
        """The partition numbers of a topic.

        KafkaTimeoutError after max_block_ms; TopicAuthorizationFailedError and others.
        """
        self._require_running()
        return await self._core.partitions(topic)

    @property
    def client(self) -> AIOKafkaClient:
        """The producer's connections and cluster metadata."""
        return AIOKafkaClient.over(self._core.network)

    def metrics(self) -> dict[str, dict[str, Any]]:
        """The metrics by group and name; the names are Kafka's."""
        return self._core.all_metrics()

    async def client_instance_id(self, timeout_ms: float) -> UUID | None:
        """The client's id in the metrics that it pushes (KIP-714).

        None when no broker gives one within `timeout_ms`. IllegalStateError with enable_metrics_push=False or without
        the extra `telemetry`; ValueError for a negative timeout.
        """
        self._require_running()
        return await self._core.telemetry.client_instance_id(timeout_ms / 1000)

    # --- batches --------------------------------------------------------------------------------------------------

    def create_batch(self) -> BatchBuilder:
        """An empty batch of max_batch_size bytes, for `send_batch`."""
        return BatchBuilder(self.config["batch.size"], *map(serialize_with, self._serializers))

    async def send_batch(self, batch: BatchBuilder, topic: str, *, partition: int) -> asyncio.Future[RecordMetadata]:
        """Send a batch's records in order; returns a future.

        The future gives the first record's RecordMetadata, when all records have results. ValueError for a batch that
        is empty or was sent before; otherwise as `send`.
        """
        self._require_running()
        await self._core.await_partition(topic, partition)
        if not self._core.accumulator.open:
            self._sender.refuse()  # before the batch is taken
        records = batch.take()
        deadline = asyncio.get_running_loop().time() + self.config["max.block.ms"] / 1000
        futures = [
            await self._send_with(
                self._raw, topic, each.value, each.key, each.headers, partition, each.timestamp, deadline=deadline
            )
            for each in records
        ]
        return asyncio.ensure_future(_first([self._as_asyncio(each) for each in futures]))

    # --- transactions ---------------------------------------------------------------------------------------------

    def _require_transactional(self) -> None:
        self._require_running()
        if self.config["transactional.id"] is None:
            raise IllegalOperation("Transactions need a transactional_id")

    async def begin_transaction(self) -> None:
        """Begin a transaction. IllegalOperation, ProducerFencedError."""
        self._require_transactional()
        with _as_illegal_operation():
            self._core.begin_transaction()

    async def prepare_transaction(self) -> PreparedTxnState:
        """Send buffered records and leave the transaction open, even after stop(). IllegalOperation.

        See KafkaProducer.prepare_transaction().
        """
        self._require_transactional()
        with _as_illegal_operation():
            return await self._core.prepare_transaction()

    async def complete_transaction(self, prepared: PreparedTxnState) -> None:
        """Commit the prepared transaction if it is the given one; abort another. IllegalOperation."""
        self._require_transactional()
        with _as_illegal_operation():
            await self._core.complete_transaction(prepared)

    async def commit_transaction(self) -> None:
        """Send buffered records and commit the transaction. IllegalOperation.

        Raises the error of a failed record; then abort_transaction() must follow.
        """
        self._require_transactional()
        with _as_illegal_operation():
            await self._core.commit_transaction()

    async def abort_transaction(self) -> None:
        """Abort the transaction. IllegalOperation.

        Buffered records are dropped; sent records stay hidden from readers of committed records.
        """
        self._require_transactional()
        with _as_illegal_operation():
            await self._core.abort_transaction()

    def transaction(self) -> TransactionContext:
        """A context manager for a transaction: `async with producer.transaction():`."""
        return TransactionContext(self)

    async def send_offsets_to_transaction(self, offsets: CommitOffsets, group_id: str | ConsumerGroupMetadata) -> None:
        """Commit the offsets of a consumer group with the open transaction.

        `group_id`: AIOKafkaConsumer.group_metadata(), which fences members that have left the group; or the group's
        name. CommitFailedError, ProducerFencedError, IllegalOperation; ValueError without a group or offsets.
        """
        self._require_transactional()
        with _as_illegal_operation():
            self._core.require_transaction()
        if not group_id:
            raise ValueError("group_id must be the name of a group, or group_metadata() of a consumer")
        group = ConsumerGroupMetadata(group_id) if isinstance(group_id, str) else group_id
        chosen = commit_offsets(offsets)
        with _as_illegal_operation():
            await self._core.send_offsets_to_transaction(chosen, group)

    @property
    def fenced(self) -> bool:
        """Whether the producer has a fatal error: only stop() remains."""
        manager = self._core.transactions
        return manager is not None and manager.state is State.FATAL_ERROR


class TransactionContext:
    """A transaction as a block. It commits, or aborts after an error."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer

    async def __aenter__(self) -> TransactionContext:
        await self._producer.begin_transaction()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self._producer.commit_transaction()
        elif not self._producer.fenced:
            await self._producer.abort_transaction()


@contextmanager
def _as_illegal_operation() -> Iterator[None]:
    """Raises the core's IllegalStateError as IllegalOperation, aiokafka's name outside of transactions."""
    try:
        yield
    except IllegalStateError as error:
        raise IllegalOperation(str(error)) from error


def _settle(future: asyncio.Future[Any], with_metadata: bool, record: FutureRecordMetadata) -> None:
    if future.done():
        return
    error, value = record.exception, record.value
    if error is not None:
        future.set_exception(error)
    elif value is not None:
        future.set_result(value if with_metadata else None)


async def _first(futures: list[asyncio.Future[RecordMetadata]]) -> RecordMetadata:
    """The first future's result, or the first error; waits for all."""
    await asyncio.wait(futures)
    results = [future.result() for future in futures]
    return results[0]
