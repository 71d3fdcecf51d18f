"""TransactionCoordinator: the handlers' interface to transactions.

It finds the shard of a transactional id, runs the operation there, and waits. Errors of the runtime (NOT_COORDINATOR,
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE) are raised like those of the operation. Source:
kafka.coordinator.transaction.TransactionCoordinator.

The version of a request says which flow its client follows (KIP-890). Up to AddPartitionsToTxn 3 and EndTxn 4 clients
name their partitions before they produce, and keep their epoch: transaction.version 0. With EndTxn 5 they get a new
epoch with each transaction, and Produce 12 and TxnOffsetCommit 5 add the partitions: transaction.version 2.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from kafkapy.coordinator.clock import Clock
from kafkapy.coordinator.hosted import Operation, ShardContext, ShardState
from kafkapy.coordinator.result import TOO_LARGE, Later, Result
from kafkapy.coordinator.runtime import CoordinatorRuntime
from kafkapy.coordinator.transaction.completion import Completions
from kafkapy.coordinator.transaction.config import TransactionConfig
from kafkapy.coordinator.transaction.markers import MarkerWriter
from kafkapy.coordinator.transaction.metadata import (
    NO_TIMEOUT,
    TRANSACTION_VERSION_0,
    TRANSACTION_VERSION_2,
    Initialized,
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from kafkapy.coordinator.transaction.records import TRANSACTION_RECORDS
from kafkapy.coordinator.transaction.shard import TransactionShard
from kafkapy.coordinator.transaction.state import TransactionState
from kafkapy.coordinator.writer import PartitionWriter
from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.metadata.topic_names import TRANSACTION_STATE_TOPIC
from kafkapy.types import TopicPartition

logger = logging.getLogger("kafka.coordinator.transaction.TransactionCoordinator")

T = TypeVar("T")

EXPIRED_AT_ONCE: Final = 500
"""Ids that one batch removes, so that it stays far below max.message.bytes."""


class TransactionNumbers(NamedTuple):
    """The transactional ids that a broker coordinates, in numbers for its metrics."""

    states: Mapping[str, int]
    """Ids by Kafka's name of their state."""
    open_two_phase: int
    """Open transactions that no timeout of their producer ends (KIP-939)."""
    longest_open_ms: int
    """The age of the oldest open transaction in ms, 0 without any."""


class TransactionCoordinator:
    """Owns the runtime of __transaction_state.

    KafkaServer makes it; handlers call it on the control loop.

    `next_producer_id` returns an id that was never used. `partition_count` returns how many partitions
    __transaction_state has, or will have. `is_gone` returns whether a partition that another broker leads was deleted.
    `transaction_version` returns the cluster's finalized level of that feature, and `two_phase_max_ms` the present
    kafkapy.transaction.two.phase.commit.max.ms.
    """

    def __init__(
        self,
        config: TransactionConfig,
        writer: PartitionWriter,
        clock: Clock,
        markers: MarkerWriter,
        next_producer_id: Callable[[], Awaitable[int]],
        *,
        partition_count: Callable[[], int],
        is_gone: Callable[[TopicPartition], bool],
        transaction_version: Callable[[], int] = lambda: TRANSACTION_VERSION_2,
        two_phase_max_ms: Callable[[], int] = lambda: NO_TIMEOUT,
    ) -> None:
        self.config = config
        self._next_producer_id = next_producer_id
        self._transaction_version = transaction_version
        self.two_phase_max_ms = two_phase_max_ms
        self._leader_epochs: dict[int, int] = {}
        self.completions = Completions(self._run, markers, is_gone)
        self.runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            "transaction.TransactionCoordinator",
            TRANSACTION_STATE_TOPIC,
            self._make_shard,
            TRANSACTION_RECORDS,
            writer,
            clock,
            partition_count=partition_count,
            write_timeout_ms=lambda: self.config.request_timeout_ms,
        )

    def _make_shard(self, context: ShardContext[TransactionShard]) -> TransactionShard:
        epoch = self._leader_epochs.get(context.partition, 0)
        return TransactionShard(
            context,
            epoch,
            self.config,
            self.completions.start,
            self.completions.forget,
            transaction_version=self._transaction_version,
        )

    def _run(self, partition: int, operation: Operation[TransactionShard, T]) -> Later[T]:
        answer: Later[T] = Later()

        def written(done: Later[T]) -> None:
            error = done.error
            if error is None:
                answer.set(done.result())
            elif isinstance(error, KafkaError) and error.code in TOO_LARGE:
                # The transaction's record is too large, not the client's message.
                answer.fail(error_for(ErrorCode.UNKNOWN_SERVER_ERROR, error.message))
            else:
                answer.fail(error)

        self.runtime.write(partition, operation).then(written)
        return answer

    # --- life -------------------------------------------------------------------------------------------------------

    def on_leadership_change(self, partition: TopicPartition, leader_epoch: int, leads: bool) -> None:
        """Load or unload a partition's shard; for ReplicaManager.leadership_listeners."""
        if partition.topic != TRANSACTION_STATE_TOPIC:
            return
        number = partition.partition
        if leader_epoch >= self._leader_epochs.get(number, leader_epoch):
            self._leader_epochs[number] = leader_epoch
        self.runtime.on_leadership_change(partition, leader_epoch, leads)

    def start(self) -> None:
        """Start the checks for timed out transactions and expired ids."""
        self._every(lambda: self.config.abort_interval_ms, "abort-timed-out", self.abort_timed_out)
        self._every(lambda: self.config.expiry_interval_ms, "expire", self.expire)

    def stop(self) -> None:
        """Write the unwritten records; waiting requests get NOT_COORDINATOR."""
        self.runtime.stop()

    def _every(self, interval_ms: Callable[[], int], name: str, work: Callable[[], object]) -> None:
        def due() -> None:
            self._every(interval_ms, name, work)
            work()

        self.runtime.timer.schedule(name, interval_ms(), due)

    def abort_timed_out(self) -> None:
        """Abort the transactions that have exceeded their producers' timeouts, or the operator's limit."""
        limit_ms = self.two_phase_max_ms()
        for partition, shard in self.runtime.shards().items():
            for transactional_id in shard.timed_out(self.runtime.clock.time_ms(), limit_ms):
                log = partial(_log_rollback, transactional_id, shard.transactions[transactional_id].is_two_phase)
                self._run(partition, _abort_timed_out(transactional_id, limit_ms)).then(log)

    def expire(self) -> None:
        """Remove the ids that were unused for transactional.id.expiration.ms."""
        for partition, shard in self.runtime.shards().items():
            self._expire_some(partition, shard, iter(list(shard.transactions)))

    def _expire_some(self, partition: int, shard: TransactionShard, ids: Iterator[str]) -> None:
        """Expire the next ids, and the rest in later turns of the loop."""
        looked_at = list(islice(ids, EXPIRED_AT_ONCE))
        if not looked_at or self.runtime.shards().get(partition) is not shard:
            return
        expired = shard.expired(looked_at, self.runtime.clock.time_ms())
        if expired:
            self._run(partition, _expire(expired)).then(_log_expiry)
        self.runtime.timer.schedule(("expire", partition), 0, lambda: self._expire_some(partition, shard, ids))

    # --- requests ---------------------------------------------------------------------------------------------------

    def partition_for(self, transactional_id: str) -> int:
        """The partition of __transaction_state that an id belongs to."""
        return self.runtime.partition_for(transactional_id)

    async def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None = None,
        *,
        two_phase: bool = False,
        keep_prepared: bool = False,
    ) -> Initialized:
        """InitProducerId with a transactional id; see TransactionShard.init_producer_id.

        TakenOver only with `keep_prepared`, when a transaction is open.
        """

        def operation(new_producer_id: int | None) -> Operation[TransactionShard, Initialized | None]:
            return lambda shard, now_ms: shard.init_producer_id(
                transactional_id,
                timeout_ms,
                expected,
                now_ms,
                new_producer_id,
                two_phase=two_phase,
                keep_prepared=keep_prepared,
            )

        return await self._with_producer_id(transactional_id, operation)

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        client_version: int = TRANSACTION_VERSION_0,
    ) -> Later[None]:
        """AddPartitionsToTxn and AddOffsetsToTxn; see TransactionShard.add_partitions.

        Done when the record is committed.
        """
        added = frozenset(partitions)
        return self._run(
            self.partition_for(transactional_id),
            lambda shard, now_ms: shard.add_partitions(transactional_id, producer, added, now_ms, client_version),
        )

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
    ) -> Later[dict[TopicPartition, ErrorCode]]:
        """AddPartitionsToTxn for verification only; see TransactionShard.verify_partitions.

        Done when the state is committed.
        """
        asked = list(partitions)
        partition = self.partition_for(transactional_id)
        return self.runtime.read(partition, lambda shard, _: shard.verify_partitions(transactional_id, producer, asked))

    async def end_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        committed: bool,
        client_version: int = TRANSACTION_VERSION_0,
    ) -> ProducerIdAndEpoch:
        """EndTxn; see TransactionShard.end_transaction.

        The answer waits until the outcome is committed.
        """

        def operation(new_producer_id: int | None) -> Operation[TransactionShard, ProducerIdAndEpoch | None]:
            return lambda shard, now_ms: shard.end_transaction(
                transactional_id, producer, committed, client_version, now_ms, new_producer_id
            )

        return await self._with_producer_id(transactional_id, operation)

    async def describe(self, transactional_id: str) -> TransactionMetadata:
        """One transactional id. INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND."""
        if not transactional_id:
            raise error_for(ErrorCode.INVALID_REQUEST)
        found = await self.runtime.read(
            self.partition_for(transactional_id), lambda shard, _: shard.transactions.get(transactional_id)
        ).wait()
        if found is None:
            raise error_for(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return found

    def list_transactions(
        self, producer_ids: Iterable[int], states: Iterable[TransactionState] | None, duration_ms: int = -1
    ) -> list[TransactionMetadata]:
        """The ids coordinated here, filtered.

        By producer ids (none: all), states (None: all), and the least time in ms since the transaction began.
        COORDINATOR_LOAD_IN_PROGRESS while not all are known.
        """
        if ShardState.LOADING in self.runtime.states().values():
            raise error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        wanted_ids = set(producer_ids)
        wanted_states = None if states is None else set(states)
        now = self.runtime.clock.time_ms()
        return [
            metadata
            for shard in self.runtime.shards().values()
            for metadata in shard.transactions.values()
            if (not wanted_ids or metadata.producer_id in wanted_ids)
            and (wanted_states is None or metadata.state in wanted_states)
            and (duration_ms < 0 or now - metadata.start_ms > duration_ms)
        ]

    def numbers(self) -> TransactionNumbers:
        """The numbers of the ids coordinated here, for metrics. Any thread."""
        now_ms = self.runtime.clock.time_ms()
        states: Counter[str] = Counter()
        two_phase = longest_ms = 0
        for shard in self.runtime.shards().values():
            for metadata in list(shard.transactions.values()):
                states[metadata.state.label] += 1
                if metadata.state is TransactionState.ONGOING:
                    two_phase += metadata.is_two_phase
                    longest_ms = max(longest_ms, now_ms - metadata.start_ms)
        return TransactionNumbers(states, two_phase, longest_ms)

    async def _with_producer_id(
        self,
        transactional_id: str,
        operation: Callable[[int | None], Operation[TransactionShard, T | None]],
    ) -> T:
        """Run an operation that may need a new producer id.

        Ids come from the metadata store, so the operation runs again with one.
        """
        reply = await self._write(transactional_id, operation(None))
        if reply is None:
            reply = await self._write(transactional_id, operation(await self._next_producer_id()))
        if reply is None:
            raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR)
        return reply

    async def _write(self, transactional_id: str, operation: Operation[TransactionShard, T]) -> T:
        return await self._run(self.partition_for(transactional_id), operation).wait()


def _log_expiry(done: Later[int]) -> None:
    if done.error is not None:
        logger.warning("Transactional ids that expired cannot be removed; the coordinator retries: %s", done.error)


def _abort_timed_out(transactional_id: str, two_phase_max_ms: int) -> Operation[TransactionShard, bool]:
    return lambda shard, now_ms: shard.abort_timed_out(transactional_id, now_ms, two_phase_max_ms)


def _expire(transactional_ids: list[str]) -> Operation[TransactionShard, int]:
    def operation(shard: TransactionShard, now_ms: int) -> Result[int]:
        return shard.expire(transactional_ids, now_ms)

    return operation


def _log_rollback(transactional_id: str, is_two_phase: bool, done: Later[Any]) -> None:
    if done.error is not None:
        logger.warning("Transaction %s timed out and its rollback failed: %s", transactional_id, done.error)
    elif done.result() and is_two_phase:
        logger.warning(
            "Transaction %s exceeded kafkapy.transaction.two.phase.commit.max.ms and is rolled back", transactional_id
        )
    elif done.result():
        logger.info("Transaction %s timed out and is rolled back", transactional_id)
