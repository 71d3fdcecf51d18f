"""The producer's core: its parts, and all its waits as coroutines.

    core = ProducerCore(ProducerConfig(bootstrap_servers="localhost:9092"))
    await core.start()
    future = core.accumulator.append("orders", None, None, None, b"value")   # None: await core.partitions("orders")
    metadata = await future
    await core.close()

It runs on any asyncio loop. KafkaProducer and AIOKafkaProducer are facades over it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

from kafkapy._speedups.clients.producer.partition_queue import PartitionQueue
from kafkapy._speedups.clients.producer.producer_batch import ProducerBatch
from kafkapy._speedups.clients.producer.record_accumulator import RecordAccumulator
from kafkapy.clients.backoff import Backoff
from kafkapy.clients.cluster import ClusterMetadata, index_limit
from kafkapy.clients.coordinator_lookup import CoordinatorLookup
from kafkapy.clients.network_client import NetworkClient
from kafkapy.clients.producer.interceptors import ProducerInterceptors
from kafkapy.clients.producer.metrics import ProducerMetrics
from kafkapy.clients.producer.sender import Sender
from kafkapy.clients.producer.transaction_manager import TransactionManager
from kafkapy.clients.producer.transactional_requests import (
    GroupMetadata,
    PreparedTxnState,
    TransactionalRequests,
)
from kafkapy.clients.telemetry import TelemetryReporter
from kafkapy.config.producer import ProducerConfig
from kafkapy.errors import (
    BufferExhaustedError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
)
from kafkapy.types import ZERO_UUID, OffsetAndMetadata, TopicPartition

__all__ = ["ProducerCore"]

log = logging.getLogger("kafkapy.producer")

BACKOFF_STEPS: Final = 16
"""The number of back-off steps; later attempts wait as long as the last step."""
ROOM_CHECK_S: Final = 0.05
WANT_AGAIN_S: Final = 1.0
SEND_OFFSETS: Final = "send_offsets_to_transaction"


class ProducerCore:
    """The core of one producer.

    All of it runs on one loop, except the accumulator, to which any thread appends.
    """

    def __init__(self, config: ProducerConfig, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """`loop` is the loop of a later start(), only for comparisons. ConfigError."""
        self.config = config
        self.loop = loop
        self.network = NetworkClient(config)
        self.closed = False
        self._closing = False
        self._backoff = Backoff(config["retry.backoff.ms"], config["retry.backoff.max.ms"])
        self._max_block_s: float = config["max.block.ms"] / 1000
        self._ignore_keys, self.partitioner = _partitioning(config)
        self.accumulator = RecordAccumulator(
            config["buffer.memory"],
            config["batch.size"],
            config["linger.ms"],
            config["max.request.size"],
            [int(self._backoff.delay_ms(attempt)) for attempt in range(BACKOFF_STEPS)],
            ignore_keys=self._ignore_keys,
            adaptive=config["partitioner.adaptive.partitioning.enable"],
        )
        self.interceptors = ProducerInterceptors(config["interceptor.classes"])
        self.metrics = ProducerMetrics(
            self.accumulator, config["metrics.num.samples"], config["metrics.sample.window.ms"] / 1000
        )
        self.transactions: TransactionManager | None = None
        if config["enable.idempotence"]:
            self.transactions = TransactionManager(self.accumulator, config["transactional.id"])
        self.sender = Sender(config, self.network, self.accumulator, self.metrics, self.transactions)
        self.telemetry = TelemetryReporter(
            self.network, self.all_metrics, lambda: {"transactional_id": config["transactional.id"]}
        )
        self._requests: TransactionalRequests | None = None
        self._pending: asyncio.Task[None] | None = None
        self._wanting: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Connects to the cluster. NoBrokersAvailableError; AuthenticationError."""
        self.loop = asyncio.get_running_loop()
        self.accumulator.pool.loop_thread = threading.get_ident()
        await self.network.start()
        self.network.cluster.add_listener(self._metadata_changed)
        if self.transactions is not None:
            self._requests = TransactionalRequests(
                self.network,
                CoordinatorLookup(self.network, own_connections=False),
                self.transactions,
                transaction_timeout_ms=self.config["transaction.timeout.ms"],
                two_phase=self.config["transaction.two.phase.commit.enable"],
                backoff=self._backoff,
                all_sent=self.sender.all_complete,
            )
            self.sender.requests = self._requests
            self.transactions.wake = self.sender.wake
        self.sender.start()
        self._want_again()
        self.telemetry.start()

    def all_metrics(self) -> dict[str, dict[str, float]]:
        """The metrics by group and name."""
        groups = self.network.metrics_snapshot("producer")
        groups.setdefault("producer-metrics", {}).update(self.metrics.snapshot())
        return groups

    # --- metadata -------------------------------------------------------------------------------------------------

    def _metadata_changed(self, cluster: ClusterMetadata) -> None:
        leaders: set[int] = set()
        for name, queues in list(self.accumulator.topics.items()):
            topic = cluster.topics.get(name)
            if topic is None or topic.error or not topic.partitions:
                continue
            brokers = cluster.brokers()
            known: list[tuple[int, int]] = []
            # The list is as long as its largest index, so an index out of all proportion would cost its size.
            for number in range(min(max(topic.partitions) + 1, index_limit(len(topic.partitions)))):
                partition = topic.partitions.get(number)
                if partition is None or partition.leader not in brokers:
                    known.append((-1, -1))
                else:
                    known.append((partition.leader, partition.leader_epoch))
                    leaders.add(partition.leader)
            queues.update(known, topic.topic_id if topic.topic_id != ZERO_UUID else None)
        self.sender.leaders_changed(leaders)

    def _want_again(self) -> None:
        """Keeps topics with new records in the metadata (metadata.max.idle.ms)."""
        if self.loop is None or self.closed:
            return
        topics = self.accumulator.listed_topics()
        if topics:
            self.network.cluster.want(topics)
        self._wanting = self.loop.call_later(WANT_AGAIN_S, self._want_again)

    async def partitions(self, topic: str, timeout_s: float | None = None) -> set[int]:
        """The partition numbers of a topic; waits at most `timeout_s` (max.block.ms).

        KafkaTimeoutError; TopicAuthorizationFailedError, InvalidTopicError and other errors that are not retriable.
        """
        await self.await_partition(topic, None, timeout_s)
        return self.network.cluster.partitions_for_topic(topic) or set(range(len(self.accumulator.topics[topic])))

    async def await_partition(self, topic: str, partition: int | None, timeout_s: float | None = None) -> None:
        """Waits until the topic and the partition are known.

        Errors as in partitions().
        """
        deadline_s = time.monotonic() + (self._max_block_s if timeout_s is None else timeout_s)
        cluster = self.network.cluster
        queues = self.accumulator.topic(topic)
        cluster.want({topic})
        self._metadata_changed(cluster)
        attempts = 0
        last: BaseException | None = None
        while not self._has_partition(topic, queues, partition):
            self._require_open()
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise _unknown(topic, partition, len(queues), self._max_block_s) from last
            try:
                async with asyncio.timeout(left_s):
                    await cluster.refresh()
                    error = cluster.topic_error(topic)
                    if error is not None and not error.retriable:
                        raise error
                    last = error or last
                    if not self._has_partition(topic, queues, partition):
                        await asyncio.sleep(self._backoff.delay_s(attempts))
            except TimeoutError:
                pass
            except KafkaError as error:
                if not error.retriable:
                    raise
                last = error
                await asyncio.sleep(min(self._backoff.delay_s(attempts), max(deadline_s - time.monotonic(), 0)))
            attempts += 1

    def _has_partition(self, topic: str, queues: Any, partition: int | None) -> bool:
        error = self.network.cluster.topic_error(topic)
        if error is not None and not error.retriable:
            raise error
        return len(queues) > (0 if partition is None else partition)

    # --- buffer space ---------------------------------------------------------------------------------------------

    async def wait_for_room(self, room: int, timeout_s: float) -> None:
        """Waits until the buffer has `room` bytes free. BufferExhaustedError.

        For a refused record. It always yields to other tasks, and raises after the timeout even when space is free.
        """
        loop = asyncio.get_running_loop()
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._require_open()
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise no_room(self.accumulator, self._max_block_s)
            if self.accumulator.has_room(room):
                await asyncio.sleep(0)
                return
            told = asyncio.Event()

            def tell(told: asyncio.Event = told) -> None:
                loop.call_soon_threadsafe(told.set)

            self.accumulator.wait_for_room(tell)
            try:
                async with asyncio.timeout(min(left_s, ROOM_CHECK_S)):
                    await told.wait()
            except TimeoutError:
                pass
            finally:
                self.accumulator.stop_waiting(tell)

    # --- flush ----------------------------------------------------------------------------------------------------

    async def flush(self, timeout_s: float | None = None) -> None:
        """Sends buffered records and waits for their results.

        KafkaTimeoutError, which does not affect the records.
        """
        accumulator = self.accumulator
        accumulator.flushes += 1
        try:
            self.sender.schedule()
            async with asyncio.timeout(timeout_s):
                await self._all_done(list(accumulator.incomplete))
        except TimeoutError:
            raise KafkaTimeoutError(f"not all records were sent within {timeout_s:g} s") from None
        finally:
            accumulator.flushes -= 1

    async def _all_done(self, batches: Iterable[ProducerBatch]) -> None:
        loop = asyncio.get_running_loop()
        left = list(batches)
        if not left:
            return
        done = asyncio.Event()
        count = len(left)

        def one_done() -> None:
            nonlocal count
            count -= 1
            if not count:
                loop.call_soon_threadsafe(done.set)

        for batch in left:
            batch.on_done(one_done)
        await done.wait()

    # --- transactions ---------------------------------------------------------------------------------------------

    def _transactional(self) -> tuple[TransactionManager, TransactionalRequests]:
        self._require_open()
        if self.transactions is None or self._requests is None or not self.transactions.transactional:
            raise IllegalStateError("transactions need a transactional_id in the producer's configuration")
        return self.transactions, self._requests

    async def _settle(self, operation: str, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs an operation to its end.

        KafkaTimeoutError after max.block.ms: the operation continues, and a second call waits for it; other operations
        raise IllegalStateError until then.
        """
        manager, _ = self._transactional()
        manager.require_no_pending(operation)
        if self._pending is None:
            self._pending = asyncio.ensure_future(begin())
            manager.pending = operation
        task = self._pending
        done, _ = await asyncio.wait({task}, timeout=self._max_block_s)
        if not done:
            raise KafkaTimeoutError(f"{operation}() did not complete within {self._max_block_s:g} s; call it again")
        if self._pending is task:
            self._pending = None
            manager.pending = ""
        if task.cancelled():
            raise IllegalStateError("the producer was closed during the call")
        task.result()

    async def init_transactions(self, keep_prepared_txn: bool = False) -> None:
        """Gets a producer id and ends transactions of earlier producers.

        These are the producers with the same transactional.id. `keep_prepared_txn`: an open transaction of theirs stays
        open, and complete_transaction() or its like ends it.
        """
        _, requests = self._transactional()
        await self._settle("init_transactions", lambda: requests.initialize(keep_prepared=keep_prepared_txn))

    def begin_transaction(self) -> None:
        """Begins a transaction. IllegalStateError; fatal errors such as ProducerFencedError."""
        manager, _ = self._transactional()
        manager.begin()

    def require_transaction(self) -> None:
        """IllegalStateError without an open transaction; the producer's error."""
        manager, _ = self._transactional()
        manager.require_open()

    def join_transaction(self, queue: PartitionQueue) -> None:
        """Adds a partition to the open transaction, with its first record."""
        manager, _ = self._transactional()
        manager.add_partition(queue)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Commits offsets of a consumer group with the open transaction."""
        _, requests = self._transactional()
        await self._settle(SEND_OFFSETS, lambda: requests.send_offsets(offsets, group))

    async def prepare_transaction(self) -> PreparedTxnState:
        """Sends buffered records and leaves the transaction open, even after close()."""
        _, requests = self._transactional()
        await self._settle("prepare_transaction", requests.prepare)
        return requests.prepared_state

    async def complete_transaction(self, prepared: PreparedTxnState) -> None:
        """Commits the prepared transaction if it is this one; aborts another.

        Without effect when init_transactions() should keep a prepared transaction and found none.
        """
        manager, requests = self._transactional()
        if manager.took_nothing_over:
            return
        if requests.prepared_state[:2] == prepared[:2]:
            await self.commit_transaction()
        else:
            await self.abort_transaction()

    async def commit_transaction(self) -> None:
        """Commits the open transaction: readers of committed records see it."""
        _, requests = self._transactional()
        await self._settle("commit_transaction", requests.commit)

    async def abort_transaction(self) -> None:
        """Aborts the open transaction: readers of committed records skip it."""
        _, requests = self._transactional()
        await self._finish_offsets()
        await self._settle("abort_transaction", requests.abort)

    async def _finish_offsets(self) -> None:
        """Waits for interrupted offset commits, which must not follow the abort.

        They need not be repeated. KafkaTimeoutError while they run.
        """
        manager, _ = self._transactional()
        task = self._pending
        if task is None or manager.pending != SEND_OFFSETS:
            return
        done, _ = await asyncio.wait({task}, timeout=self._max_block_s)
        if not done:
            raise KafkaTimeoutError(f"{SEND_OFFSETS}() is still running after {self._max_block_s:g} s")
        if self._pending is task:
            self._pending = None
            manager.pending = ""
        if not task.cancelled():
            task.exception()  # the abort undoes it

    # --- end ------------------------------------------------------------------------------------------------------

    def _require_open(self) -> None:
        if self.closed or self.accumulator.closed:
            raise IllegalStateError("the producer is closed")

    def refusal(self) -> BaseException:
        """The error for a record now."""
        if self.closed or self.accumulator.closed:
            return IllegalStateError("the producer is closed")
        if self.transactions is None:
            return IllegalStateError("the producer accepts no records")
        return self.transactions.refusal()

    def stop_taking(self) -> None:
        """Refuses further records. Any thread."""
        self.accumulator.closed = True
        self.accumulator.open = False

    async def close(self, timeout_s: float | None = None) -> None:
        """Sends buffered records, aborts an open transaction, and closes.

        A second call does nothing. It accepts no more records and sends for at most `timeout_s` (None: until
        delivery.timeout.ms is over); then the rest fails.
        """
        if self._closing:
            return
        self._closing = True
        accumulator = self.accumulator
        self.stop_taking()
        accumulator.tell_room(always=True)
        try:
            if timeout_s is None or timeout_s > 0:
                async with asyncio.timeout(timeout_s):
                    await self._finish()
        except TimeoutError:
            log.info("The producer closes with %d unsent batches", len(accumulator.incomplete))
        except KafkaError as error:
            log.info("The producer closes with an error: %s", error)
        finally:
            await self._end()

    async def _finish(self) -> None:
        manager = self.transactions
        if self._pending is not None:
            await asyncio.wait({self._pending})
        requests = self._requests
        if manager is not None and requests is not None and manager.transactional and manager.ongoing:
            # Another client ends a prepared transaction.
            if manager.prepared:
                return
            await requests.abort()
        await self.sender.all_complete()

    async def _end(self) -> None:
        await self.telemetry.close()
        self.closed = True
        self.sender.stop()
        tasks = [] if self._pending is None else [self._pending]
        for task in tasks:
            task.cancel()
        if self._requests is not None:
            self._requests.cancel()
        if self._wanting is not None:
            self._wanting.cancel()
        error = KafkaError("the producer was closed before the record was sent")
        for batch in self.accumulator.take_all():
            self.accumulator.fail(batch, error)
        await self.network.close()
        self.accumulator.wake = None
        self.interceptors.close()


def no_room(accumulator: RecordAccumulator, waited_s: float) -> BufferExhaustedError:
    """The error of a record that got no buffer space."""
    return BufferExhaustedError(
        f"no space in the buffer within {waited_s:g} s: of {accumulator.pool.total} bytes (buffer.memory) "
        f"{accumulator.pool.available} are free, {len(accumulator.incomplete)} batches wait for their results"
    )


def _unknown(topic: str, partition: int | None, count: int, waited_s: float) -> KafkaTimeoutError:
    if partition is None or not count:
        return KafkaTimeoutError(f"topic {topic} is not in the metadata after {waited_s:g} s")
    return KafkaTimeoutError(f"topic {topic} has {count} partitions and no partition {partition} after {waited_s:g} s")


def _partitioning(config: ProducerConfig) -> tuple[bool, Any]:
    """(whether the built-in partitioner ignores keys, another partitioner or None)."""
    if config["partitioner.class"] is None:
        return config["partitioner.ignore.keys"], None
    # Loading plugins takes time; it happens only if the configuration names a partitioner.
    from kafkapy.clients.producer.partitioners import BuiltInPartitioner, partitioner_for

    partitioner = partitioner_for(config)
    if isinstance(partitioner, BuiltInPartitioner):
        return partitioner.ignore_keys or config["partitioner.ignore.keys"], None
    return False, partitioner
