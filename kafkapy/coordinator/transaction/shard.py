"""TransactionShard: the transactional ids of one partition of __transaction_state.

Every operation reads the present state of the id, raises the error its caller gets, or returns the record that changes
the id; `apply` applies the record. Source: kafka.coordinator.transaction.TransactionCoordinator and
TransactionStateManager.

A transaction's end has two steps. First a record says that it will end (PrepareCommit, PrepareAbort). When that is
committed, `prepared` is called, and the markers go to all partitions. When all partitions have them, a record says that
it has ended (CompleteCommit, CompleteAbort). A broker that dies in between finds the prepared state in its log, and
completes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from kafkapy.coordinator.result import Later, Result
from kafkapy.coordinator.transaction.config import TransactionConfig
from kafkapy.coordinator.transaction.metadata import (
    LAST_EPOCH,
    MAX_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT,
    TRANSACTION_VERSION_0,
    TRANSACTION_VERSION_2,
    TWO_PHASE_TIMEOUT_MS,
    Initialized,
    ProducerIdAndEpoch,
    TakenOver,
    TransactionMetadata,
)
from kafkapy.coordinator.transaction.records import (
    metadata_of,
    transaction_record,
    transaction_tombstone,
    transactional_id_of,
)
from kafkapy.coordinator.transaction.state import TransactionState
from kafkapy.errors import ErrorCode, error_for

if TYPE_CHECKING:
    from kafkapy.coordinator.hosted import ShardContext
    from kafkapy.coordinator.records import CoordinatorRecord
    from kafkapy.types import TopicPartition

logger = logging.getLogger("kafka.coordinator.transaction.TransactionCoordinator")

RESUME_PAUSE_MS: Final = 100
"""Pause in ms before a prepared transaction, whose record was not committed in time, is checked again."""

Prepared = Callable[["TransactionShard", TransactionMetadata], None]


class TransactionShard:
    """The transactional ids of one partition that this broker leads.

    The runtime makes it; its methods are operations of the runtime, on the control loop's thread.

    `prepared` is called with each transaction whose outcome is decided and committed: its markers are to be written.
    `forget` is called when another broker takes that over. Operations that may need a new producer id get one, or
    return None as their reply to be called again with one.
    """

    def __init__(
        self,
        context: ShardContext[TransactionShard],
        coordinator_epoch: int,
        config: TransactionConfig,
        prepared: Prepared,
        forget: Callable[[TransactionShard], None] = lambda _: None,
        *,
        transaction_version: Callable[[], int] = lambda: TRANSACTION_VERSION_2,
    ) -> None:
        self.partition = context.partition
        self.coordinator_epoch = coordinator_epoch
        """The leader epoch of the partition, in every marker; it fences a replaced coordinator."""
        self.timer = context.timer
        self.transactions: dict[str, TransactionMetadata] = {}
        self.unloaded = False
        self._config = config
        self._prepared = prepared
        self._forget = forget
        self._transaction_version = transaction_version
        self._last_epochs: dict[str, tuple[ProducerIdAndEpoch, int]] = {}
        """The epoch of a producer before its present one, in case it asks again.

        Lost with the broker, as in Kafka.
        """

    # --- state ------------------------------------------------------------------------------------------------------

    def apply(self, record: CoordinatorRecord, producer_id: int = -1, producer_epoch: int = -1) -> None:
        """Apply a record: only this method changes durable state; see Shard."""
        del producer_id, producer_epoch
        metadata = metadata_of(record)
        if metadata is None:
            self.transactions.pop(transactional_id_of(record), None)
            self._last_epochs.pop(transactional_id_of(record), None)
        else:
            self.transactions[metadata.transactional_id] = metadata

    def apply_end_transaction_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """See Shard. No record of this topic belongs to a transaction."""

    def on_loaded(self, now_ms: int) -> None:
        """Complete the transactions that are prepared; see Shard."""
        del now_ms
        for transactional_id, metadata in self.transactions.items():
            if metadata.state.is_prepared:
                self._resume_later(transactional_id, 0)

    def on_unloaded(self) -> None:
        """See Shard."""
        self.unloaded = True
        self._forget(self)

    def _resume_later(self, transactional_id: str, delay_ms: int) -> None:
        def resume(shard: TransactionShard, now_ms: int) -> Result[None]:
            del now_ms
            metadata = shard.transactions.get(transactional_id)
            if metadata is None or not metadata.state.is_prepared:
                return Result(None)
            # No record: this waits until all earlier records are committed. The timer tries it again if not.
            return Result(None, after=lambda error: None if error else shard._prepared(shard, metadata))

        self.timer.schedule(("resume", transactional_id), delay_ms, resume)

    def _write(self, metadata: TransactionMetadata, reply: Any) -> Result[Any]:
        """The result that writes a new state of the id."""
        if self._transaction_version() < 1 and metadata.next_producer_id == NO_PRODUCER_ID:
            # Version 0 of the record has neither field: brokers of Apache Kafka on ZooKeeper know no other. Memory has
            # no more than the log, so that the next coordinator knows the same.
            metadata = metadata._replace(client_version=TRANSACTION_VERSION_0, previous_producer_id=NO_PRODUCER_ID)
        if not metadata.state.is_prepared:
            return Result(reply, [transaction_record(metadata)])

        def written(error: BaseException | None) -> None:
            # Not committed in time does not mean never: the record stays in the log.
            if error is None:
                self._prepared(self, metadata)
            elif not self.unloaded:
                self._resume_later(metadata.transactional_id, RESUME_PAUSE_MS)

        return Result(reply, [transaction_record(metadata)], after=written)

    def find(self, transactional_id: str, producer_id: int, producer_epoch: int) -> TransactionMetadata:
        """The id of a producer that is not fenced.

        INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED; INVALID_TXN_STATE for one that only ends a prepared transaction.
        """
        metadata = self._known(transactional_id)
        client = metadata.client
        if client.producer_id != producer_id and metadata.producer_id != producer_id:
            raise error_for(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if client != (producer_id, producer_epoch):
            raise error_for(ErrorCode.PRODUCER_FENCED)
        if metadata.is_kept:
            raise error_for(ErrorCode.INVALID_TXN_STATE, "The producer may only end the transaction that was prepared")
        return metadata

    def _known(self, transactional_id: str) -> TransactionMetadata:
        if not transactional_id:
            raise error_for(ErrorCode.INVALID_REQUEST, "The transactional id is empty")
        metadata = self.transactions.get(transactional_id)
        if metadata is None:
            raise error_for(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return metadata

    # --- InitProducerId ---------------------------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        now_ms: int,
        new_producer_id: int | None = None,
        *,
        two_phase: bool = False,
        keep_prepared: bool = False,
    ) -> Result[Initialized | None]:
        """Begin a producer and fence its predecessors, or continue after an error.

        A producer with `expected` continues (KIP-360). The transactions of a producer with `two_phase` have no timeout.
        A producer with `keep_prepared` takes an open transaction over; others abort it.

        INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED; TRANSACTIONAL_ID_AUTHORIZATION_FAILED for
        `two_phase` without transaction.two.phase.commit.enable; UNSUPPORTED_VERSION for `keep_prepared` when the
        cluster's transaction.version is 0; CONCURRENT_TRANSACTIONS while a transaction is being ended.
        """
        if not transactional_id:
            raise error_for(ErrorCode.INVALID_REQUEST, "The transactional id is empty")
        if two_phase and not self._config.two_phase_commit:
            raise error_for(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if keep_prepared and self._transaction_version() < 1:
            # Its record needs version 1.
            raise error_for(ErrorCode.UNSUPPORTED_VERSION)
        if two_phase:
            timeout_ms = TWO_PHASE_TIMEOUT_MS
        elif not 0 < timeout_ms <= self._config.max_timeout_ms:
            raise error_for(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        metadata = self.transactions.get(transactional_id)
        if metadata is None:
            if new_producer_id is None:
                return Result(None)
            created = TransactionMetadata(transactional_id, new_producer_id, 0, timeout_ms, last_update_ms=now_ms)
            return self._initialized(created, NO_PRODUCER_EPOCH)
        if metadata.state.is_prepared:
            raise error_for(ErrorCode.CONCURRENT_TRANSACTIONS)
        if expected is not None and not _is_valid(metadata, expected):
            raise error_for(ErrorCode.PRODUCER_FENCED)
        if metadata.state is TransactionState.ONGOING:
            if keep_prepared:
                return self._keep(metadata, expected, timeout_ms, now_ms, new_producer_id)
            return self._fence(metadata, expected, now_ms)
        if metadata.has_exhausted_epochs and (expected is None or expected.producer_epoch == metadata.producer_epoch):
            if new_producer_id is None:
                return Result(None)
            last_epoch = NO_PRODUCER_EPOCH if expected is None else metadata.producer_epoch
            return self._initialized(metadata.rotated(new_producer_id, timeout_ms, now_ms), last_epoch)
        epoch, last_epoch = self._next_epoch(metadata, expected)
        return self._initialized(metadata.initialized(epoch, timeout_ms, now_ms), last_epoch)

    def _keep(
        self,
        metadata: TransactionMetadata,
        expected: ProducerIdAndEpoch | None,
        timeout_ms: int,
        now_ms: int,
        new_producer_id: int | None,
    ) -> Result[Initialized | None]:
        """Let a producer take the open transaction over, and fence those before it (KIP-939)."""
        client = metadata.client
        if expected is not None and expected != client:
            raise error_for(ErrorCode.PRODUCER_FENCED)
        if not metadata.has_exhausted_epochs:
            client = client._replace(producer_epoch=client.producer_epoch + 1)
        elif new_producer_id is None:
            return Result(None)
        else:
            client = ProducerIdAndEpoch(new_producer_id, 0)
        self._last_epochs.pop(metadata.transactional_id, None)
        logger.info("Producer %s took the transaction of %s over", client, metadata.transactional_id)
        return self._write(metadata.kept(client, timeout_ms, now_ms), TakenOver(client, metadata.producer))

    def _initialized(self, metadata: TransactionMetadata, last_epoch: int) -> Result[Initialized | None]:
        self._last_epochs[metadata.transactional_id] = (metadata.producer, last_epoch)
        logger.debug("Transactional id %s has the producer %s", metadata.transactional_id, metadata.producer)
        return self._write(metadata, metadata.producer)

    def _next_epoch(self, metadata: TransactionMetadata, expected: ProducerIdAndEpoch | None) -> tuple[int, int]:
        """The epoch to hand out, and the one whose producer may ask for it again, or -1."""
        if expected is None:
            return metadata.producer_epoch + 1, NO_PRODUCER_EPOCH
        if expected.producer_epoch == metadata.producer_epoch:
            return metadata.producer_epoch + 1, metadata.producer_epoch
        producer, last_epoch = self._last_epochs.get(metadata.transactional_id, (None, NO_PRODUCER_EPOCH))
        if producer == metadata.producer and expected.producer_epoch == last_epoch:
            # It asks again because the answer was lost. No other producer has begun, or the last epoch were -1.
            return metadata.producer_epoch, last_epoch
        raise error_for(ErrorCode.PRODUCER_FENCED)

    def _fence(
        self, metadata: TransactionMetadata, expected: ProducerIdAndEpoch | None, now_ms: int
    ) -> Result[Initialized | None]:
        """Abort the transaction; the client gets an error and asks again.

        The error is sent when the abort is committed. Only the producer of the aborted transaction, if it is the one
        that asks, gets the fencing epoch.
        """
        ask_again: Later[Initialized | None] = Later.failure(error_for(ErrorCode.CONCURRENT_TRANSACTIONS))
        if expected == metadata.client:
            return self._write(self._ended_by_coordinator(metadata, now_ms), ask_again)
        self._last_epochs.pop(metadata.transactional_id, None)
        return self._write(metadata.fenced(now_ms), ask_again)

    def _ended_by_coordinator(self, metadata: TransactionMetadata, now_ms: int) -> TransactionMetadata:
        """The state of the id for an abort by the coordinator.

        Its producer may ask for the next epoch and go on.
        """
        fenced = metadata.fenced(now_ms, self._transaction_version())
        if not metadata.has_exhausted_epochs:
            producer = fenced.completed(now_ms).producer
            self._last_epochs[metadata.transactional_id] = (producer, metadata.client.producer_epoch)
        return fenced

    # --- AddPartitionsToTxn -----------------------------------------------------------------------------------------

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        now_ms: int,
        client_version: int = TRANSACTION_VERSION_0,
    ) -> Result[None]:
        """Add partitions to the transaction.

        The errors of `find`; CONCURRENT_TRANSACTIONS while a transaction is being ended.
        """
        if self._known(transactional_id).state.is_prepared:
            # This check comes first: the producer may know already the id and the epoch that it gets from the end on.
            raise error_for(ErrorCode.CONCURRENT_TRANSACTIONS)
        metadata = self.find(transactional_id, *producer)
        added = frozenset(partitions)
        # A later version is written also when all partitions are known: it decides the epoch of the markers.
        as_before = added <= metadata.partitions and client_version <= metadata.client_version
        if metadata.state is TransactionState.ONGOING and as_before:
            return Result(None)
        return self._write(metadata.with_partitions(added, now_ms, client_version), None)

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Verify partitions: TRANSACTION_ABORTABLE for those outside of the transaction.

        Raises the errors of add_partitions.
        """
        metadata = self.find(transactional_id, *producer)
        if metadata.state.is_prepared:
            raise error_for(ErrorCode.CONCURRENT_TRANSACTIONS)
        return {
            partition: ErrorCode.NONE if partition in metadata.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }

    # --- EndTxn -----------------------------------------------------------------------------------------------------

    def end_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        committed: bool,
        client_version: int,
        now_ms: int,
        new_producer_id: int | None = None,
    ) -> Result[ProducerIdAndEpoch | None]:
        """Commit or abort; the reply is the producer's identity from then on.

        INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE; CONCURRENT_TRANSACTIONS while
        a transaction is being ended.
        """
        metadata = self._known(transactional_id)
        bumps = client_version >= TRANSACTION_VERSION_2
        is_retry = _is_retry(metadata, producer) if bumps else _is_the_same(metadata, producer)
        state = metadata.state
        if state is TransactionState.ONGOING:
            # Where the broker has added a partition, that tells this transaction's marker from the last one's by the
            # epoch. So it must have the next one, also when a client mixes the versions of its requests.
            client_version = max(client_version, metadata.client_version)
            return self._prepare(metadata, committed, client_version, now_ms, new_producer_id)
        if bumps and not is_retry and not committed:
            # The transaction has no partitions. It is ended all the same, as the client counts on its next epoch.
            return self._prepare(metadata, committed, client_version, now_ms, new_producer_id)
        outcome = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
        if not is_retry or state is not outcome:
            raise error_for(ErrorCode.INVALID_TXN_STATE)
        return Result(metadata.producer)

    def _prepare(
        self,
        metadata: TransactionMetadata,
        committed: bool,
        client_version: int,
        now_ms: int,
        new_producer_id: int | None,
    ) -> Result[ProducerIdAndEpoch | None]:
        next_producer_id = NO_PRODUCER_ID
        if client_version >= TRANSACTION_VERSION_2 and metadata.has_exhausted_epochs:
            if new_producer_id is None:
                return Result(None)
            next_producer_id = new_producer_id
        prepared = metadata.prepared(committed, client_version, now_ms, next_producer_id)
        producer = prepared.completed(now_ms).producer
        if client_version >= TRANSACTION_VERSION_2:
            self._last_epochs[metadata.transactional_id] = (producer, metadata.client.producer_epoch)
        return self._write(prepared, producer)

    def complete(self, prepared: TransactionMetadata, now_ms: int) -> Result[None]:
        """Write the last record of a transaction whose markers are all written.

        Without effect when the id has changed since.
        """
        if self.transactions.get(prepared.transactional_id) != prepared:
            return Result(None)
        completed = prepared.completed(now_ms)
        return self._write(completed, None)

    # --- time -------------------------------------------------------------------------------------------------------

    def timed_out(self, now_ms: int, two_phase_max_ms: int = NO_TIMEOUT) -> list[str]:
        """The ids whose transaction has exceeded its timeout."""
        return [name for name, metadata in self.transactions.items() if metadata.timed_out(now_ms, two_phase_max_ms)]

    def abort_timed_out(self, transactional_id: str, now_ms: int, two_phase_max_ms: int = NO_TIMEOUT) -> Result[bool]:
        """Abort a timed out transaction and fence its producer; whether it did.

        A producer that knows KIP-890 may ask for the next epoch, or abort, and go on.
        """
        metadata = self.transactions.get(transactional_id)
        if metadata is None or not metadata.timed_out(now_ms, two_phase_max_ms):
            return Result(False)
        return self._write(self._ended_by_coordinator(metadata, now_ms), True)

    def expired(self, transactional_ids: Iterable[str], now_ms: int) -> list[str]:
        """The ids, of those given, that were unused for transactional.id.expiration.ms."""
        limit = now_ms - self._config.expiration_ms
        known = ((name, self.transactions.get(name)) for name in transactional_ids)
        return [
            name
            for name, metadata in known
            if metadata is not None and metadata.state.may_expire and metadata.last_update_ms <= limit
        ]

    def expire(self, transactional_ids: Iterable[str], now_ms: int) -> Result[int]:
        """Remove the given ids that are still unused; returns their number."""
        tombstones = [transaction_tombstone(name) for name in self.expired(transactional_ids, now_ms)]
        return Result(len(tombstones), tombstones)


def _is_valid(metadata: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    """Whether the producer `expected` may continue, by its producer id.

    The caller checks the epoch later.
    """
    if expected.producer_id in (metadata.producer_id, metadata.client.producer_id):
        return True
    # It may ask again after the answer with its new producer id was lost.
    return expected.producer_id == metadata.previous_producer_id and expected.producer_epoch >= LAST_EPOCH


def _is_the_same(metadata: TransactionMetadata, producer: ProducerIdAndEpoch) -> bool:
    """Whether an EndTxn may be a repeated one.

    Before KIP-890 it cannot be told from the first: True. INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
    CONCURRENT_TRANSACTIONS.
    """
    if metadata.state.is_prepared and producer == metadata.successor:
        raise error_for(ErrorCode.CONCURRENT_TRANSACTIONS)
    if producer.producer_id not in (metadata.producer_id, metadata.client.producer_id):
        raise error_for(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if metadata.client != producer:
        raise error_for(ErrorCode.PRODUCER_FENCED)
    if metadata.state.is_prepared:
        # A client of KIP-890 has begun the end, and this one mixes the versions of its requests.
        raise error_for(ErrorCode.CONCURRENT_TRANSACTIONS)
    return True


def _is_retry(metadata: TransactionMetadata, producer: ProducerIdAndEpoch) -> bool:
    """Whether a KIP-890 client repeats an EndTxn, by its epoch.

    INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
    """
    if metadata.state.is_prepared:
        # This check comes first: the producer may know already the id and the epoch that it gets from the end on.
        raise error_for(ErrorCode.CONCURRENT_TRANSACTIONS)
    ended = metadata.bumps_epochs and metadata.state.is_complete
    on_overflow = (
        ended
        and metadata.previous_producer_id == producer.producer_id
        and producer.producer_epoch == LAST_EPOCH
        and metadata.producer_epoch == 0
    )
    if on_overflow:
        return True
    if producer.producer_id not in (metadata.producer_id, metadata.client.producer_id):
        raise error_for(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if metadata.client == producer:
        return False
    if metadata.producer_id != producer.producer_id:
        raise error_for(ErrorCode.PRODUCER_FENCED)
    # The highest epoch is never sent to a client: only a timeout sets it.
    if ended and metadata.producer_epoch == producer.producer_epoch + 1 and metadata.producer_epoch < MAX_EPOCH:
        return True
    raise error_for(ErrorCode.PRODUCER_FENCED)
