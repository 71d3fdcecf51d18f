"""The state of a producer's idempotence and transactions: what it may do now, and what an error does to it.

A state machine without I/O; the requests are in `transactional_requests`. What the sending path looks at for every
record and batch (producer id, whether records are taken, whether a partition belongs to the transaction) is written
into the RecordAccumulator and its queues, so that nothing here runs per record.

Source: org.apache.kafka.clients.producer.internals.TransactionManager (4.1, with KIP-360 and KIP-890).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from kafkapy._speedups.clients.producer.partition_queue import PartitionQueue
from kafkapy._speedups.clients.producer.producer_batch import ProducerBatch, next_sequence
from kafkapy._speedups.clients.producer.record_accumulator import RecordAccumulator
from kafkapy.errors import (
    ErrorCode,
    IllegalStateError,
    KafkaError,
    RetriableError,
    TransactionAbortedError,
    code_of,
    error_class,
    error_for,
)

__all__ = ["State", "TransactionManager"]

log = logging.getLogger("kafkapy.producer")

NO_PRODUCER: Final = (-1, -1)
MAX_EPOCH: Final = 2**15 - 1


class State(Enum):
    """Where the producer stands. Without a transactional id only the first three and the last are entered."""

    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    PREPARED = auto()
    COMMITTING = auto()
    ABORTING = auto()
    ABORTABLE_ERROR = auto()
    FATAL_ERROR = auto()


_FROM: Final[dict[State, frozenset[State]]] = {
    State.UNINITIALIZED: frozenset({State.READY, State.INITIALIZING, State.ABORTABLE_ERROR}),
    State.INITIALIZING: frozenset({State.UNINITIALIZED, State.COMMITTING, State.ABORTING}),
    State.READY: frozenset({State.INITIALIZING, State.COMMITTING, State.ABORTING}),
    State.IN_TRANSACTION: frozenset({State.READY}),
    State.PREPARED: frozenset({State.IN_TRANSACTION}),
    State.COMMITTING: frozenset({State.IN_TRANSACTION, State.PREPARED}),
    State.ABORTING: frozenset({State.IN_TRANSACTION, State.PREPARED, State.ABORTABLE_ERROR}),
    State.ABORTABLE_ERROR: frozenset(
        {State.IN_TRANSACTION, State.PREPARED, State.COMMITTING, State.ABORTABLE_ERROR, State.INITIALIZING}
    ),
    State.FATAL_ERROR: frozenset(State),
}
"""The states each state may be entered from."""

_FATAL: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""Errors of a batch that the producer does not survive."""


class TransactionManager:
    """Owned by one producer; used on its loop's thread, but for add_partition, which a thread that sends calls.

    `wake` runs the sender soon.
    """

    def __init__(
        self, accumulator: RecordAccumulator, transactional_id: str | None, wake: Callable[[], object] | None = None
    ) -> None:
        self.accumulator = accumulator
        self.transactional_id = transactional_id
        self.state = State.UNINITIALIZED
        self.last_error: BaseException | None = None
        self.v2 = False
        """Whether the brokers add partitions to the transaction by themselves and bump the epoch with each (KIP-890).
        """
        self.coordinator_bumps = False
        """Whether the coordinator lets the producer raise its own epoch (KIP-360)."""
        self.epoch_bump_required = False
        self.started = False
        """Whether the coordinator knows of the open transaction."""
        self.new_partitions: set[PartitionQueue] = set()
        self.partitions: set[PartitionQueue] = set()
        self._unresolved: set[PartitionQueue] = set()
        self._to_rewrite: set[PartitionQueue] = set()
        self.wake = wake or (lambda: None)
        self.pending = ""
        """The operation that has begun and whose end nobody has seen yet."""
        accumulator.idempotent = True
        accumulator.transactional = self.transactional
        self._publish()

    @property
    def transactional(self) -> bool:
        """Whether there are transactions, and not only idempotence."""
        return self.transactional_id is not None

    @property
    def producer(self) -> tuple[int, int]:
        """Producer id and epoch; (-1, -1) while there are none."""
        return self.accumulator.producer_id, self.accumulator.producer_epoch

    @property
    def has_producer(self) -> bool:
        """Whether there is a producer id."""
        return self.accumulator.producer_id >= 0

    @property
    def completing(self) -> bool:
        """Whether a transaction is on its way to its end."""
        return self.state in (State.COMMITTING, State.ABORTING)

    @property
    def prepared(self) -> bool:
        """Whether a transaction takes no more records and waits to be ended, maybe by another client."""
        return self.state is State.PREPARED

    @property
    def failed(self) -> bool:
        """Whether the state is one of the two errors."""
        return self.state in (State.ABORTABLE_ERROR, State.FATAL_ERROR)

    @property
    def ongoing(self) -> bool:
        """Whether a transaction was begun and not ended."""
        return self.state in (State.IN_TRANSACTION, State.PREPARED, State.ABORTABLE_ERROR) or self.completing

    # --- transitions ----------------------------------------------------------------------------------------------

    def _enter(self, state: State, error: BaseException | None = None) -> None:
        if self.state not in _FROM[state]:
            raise IllegalStateError(
                f"{'' if self.transactional_id is None else f'transactional.id {self.transactional_id}: '}"
                f"the producer cannot go from {self.state.name} to {state.name}"
            )
        log.debug("Producer state %s -> %s (%s)", self.state.name, state.name, error)
        self.state = state
        self.last_error = error
        self._publish()

    def _publish(self) -> None:
        """Tells the accumulator what follows from the state."""
        accumulator = self.accumulator
        taking = self.state is State.IN_TRANSACTION if self.transactional else not self.failed
        accumulator.open = taking and not accumulator.closed
        accumulator.completing = self.completing or self.prepared
        accumulator.sending_allowed = self.state is not State.FATAL_ERROR

    def set_producer(self, producer_id: int, producer_epoch: int) -> None:
        """A producer id and epoch for all batches from now on."""
        log.debug("Producer id %d, epoch %d", producer_id, producer_epoch)
        self.accumulator.producer_id = producer_id
        self.accumulator.producer_epoch = producer_epoch

    def require_transactional(self) -> None:
        """IllegalStateError for a producer without a transactional id."""
        if not self.transactional:
            raise IllegalStateError("transactions need a transactional_id in the producer's configuration")

    def require_no_error(self) -> None:
        """Raises what stands against going on: the error that the producer is in."""
        if not self.failed:
            return
        error = self.last_error
        if isinstance(error, KafkaError) and error.code in (
            ErrorCode.PRODUCER_FENCED,
            ErrorCode.INVALID_PRODUCER_EPOCH,
        ):
            # A new one: the old one's traceback is of another call.
            raise error_for(error.code, f"the producer of {self.transactional_id} {self.producer} was fenced: {error}")
        if isinstance(error, KafkaError) and error.code is not ErrorCode.UNKNOWN_SERVER_ERROR:
            raise error_for(error.code, f"the producer is in an error: {error}") from error
        raise KafkaError(f"the producer is in an error: {error}") from error

    def require_open(self) -> None:
        """IllegalStateError where no transaction is open; the error that the producer is in."""
        self.require_no_error()
        if self.state is not State.IN_TRANSACTION:
            raise IllegalStateError(f"no transaction is open (the producer is {self.state.name})")

    def require_no_pending(self, operation: str) -> None:
        """IllegalStateError while an operation that timed out was not called again."""
        if self.pending and self.pending != operation:
            raise IllegalStateError(f"{operation} has to wait: {self.pending} has timed out and has to be called again")

    def refusal(self) -> BaseException:
        """Why no records are taken now."""
        try:
            self.require_no_pending("send")
            self.require_no_error()
        except KafkaError as error:
            return error
        if not self.has_producer:
            return IllegalStateError("init_transactions() has to be called before records can be sent")
        return IllegalStateError(
            f"no transaction is open (the producer is {self.state.name}): begin_transaction() first"
        )

    def initializing(self) -> None:
        """InitProducerId is about to be sent. IllegalStateError; the error the producer is in."""
        self.require_no_error()
        self._enter(State.INITIALIZING)

    def initialized(self, producer_id: int, producer_epoch: int, *, bumped: bool = False) -> None:
        """InitProducerId was answered; `bumped`: it was for another epoch of the same producer."""
        self.set_producer(producer_id, producer_epoch)
        self._enter(State.READY)
        if bumped:
            self.reset_sequences()
        self._rewrite()
        self.wake()

    def uninitialized(self) -> None:
        """Begins anew with the next record or init_transactions(): an authorization may be granted meanwhile."""
        self._enter(State.UNINITIALIZED)

    def begin(self) -> None:
        """A transaction is open: records are taken. IllegalStateError; the error the producer is in."""
        self.require_transactional()
        self.require_no_pending("begin_transaction")
        self.require_no_error()
        self._enter(State.IN_TRANSACTION)

    def prepare(self) -> None:
        """No more records; the transaction stays open. IllegalStateError; the error the producer is in."""
        self.require_transactional()
        self.require_no_error()
        self._enter(State.PREPARED)

    def begin_commit(self) -> None:
        """No more records; what there is will be sent. IllegalStateError; the error the producer is in."""
        self.require_transactional()
        self.require_no_error()
        self._enter(State.COMMITTING)

    def begin_abort(self) -> None:
        """No more records; what was not sent yet is left out. IllegalStateError; the fatal error the producer is in."""
        self.require_transactional()
        if self.state is not State.ABORTABLE_ERROR:
            self.require_no_error()
        self._enter(State.ABORTING)
        for queue in self.new_partitions:
            queue.joining = False
        self.new_partitions.clear()

    def ended(self, producer_id: int = -1, producer_epoch: int = -1) -> bool:
        """The transaction is over; an id other than -1 is the one to go on with. Whether the epoch has to be bumped
        first.
        """
        if producer_id != -1:
            self.set_producer(producer_id, producer_epoch)
            self.reset_sequences()
        bump = self.epoch_bump_required
        self._enter(State.INITIALIZING if bump else State.READY)
        self.epoch_bump_required = False
        self.started = False
        for queue in self.partitions | self.new_partitions:
            queue.in_transaction = queue.joining = False
        self.partitions.clear()
        self.new_partitions.clear()
        return bump

    def fatal(self, error: BaseException) -> None:
        """The producer cannot go on; it can only be closed."""
        log.info("The producer is in a fatal error: %s", error)
        self._enter(State.FATAL_ERROR, error)
        self.wake()

    def abortable(self, error: BaseException) -> None:
        """The transaction cannot be committed any more."""
        if self.state is State.ABORTING:
            log.debug("An error during an abort: %s", error)
            return
        if self.state is State.FATAL_ERROR:
            return
        log.info("The transaction has to be aborted: %s", error)
        self._enter(State.ABORTABLE_ERROR, error)
        self.wake()

    def abortable_if_possible(self, error: BaseException) -> None:
        """Abortable where the epoch can be bumped afterwards, fatal where it cannot."""
        if self.coordinator_bumps or self.v2:
            self._bump_after_abort()
            self.abortable(error)
        else:
            self.fatal(error)

    def _bump_after_abort(self) -> None:
        if self.coordinator_bumps and not self.v2:
            self.epoch_bump_required = True

    def use_version(self, transaction_version: int, *, initially: bool) -> None:
        """The transaction protocol that is spoken from the next transaction on: the feature transaction.version."""
        was = self.v2
        self.v2 = transaction_version >= 2
        if self.v2 and not was and not initially:
            # Records of the old protocol's epoch must not be taken for the new one's.
            self.epoch_bump_required = True

    # --- partitions -----------------------------------------------------------------------------------------------

    def add_partition(self, queue: PartitionQueue) -> None:
        """A partition gets its first record in this transaction. Raises what refusal() gives."""
        if self.state is not State.IN_TRANSACTION:
            raise self.refusal()
        if self.v2:
            self.partitions.add(queue)
            queue.in_transaction = True
        else:
            self.new_partitions.add(queue)
            queue.joining = True
            self.wake()

    def partitions_added(self, queues: set[PartitionQueue]) -> None:
        """The coordinator knows these partitions: their batches may go."""
        self.started = True
        for queue in queues:
            self.new_partitions.discard(queue)
            self.partitions.add(queue)
            queue.joining = False
            queue.in_transaction = True
        self.wake()

    # --- sequences ------------------------------------------------------------------------------------------------

    def reset_sequences(self) -> None:
        """Every partition begins its sequence anew with its next batch."""
        for topic in list(self.accumulator.topics.values()):
            for queue in topic.partitions:
                queue.reset_sequence()
        self._unresolved.clear()

    def request_epoch_bump(self, queue: PartitionQueue) -> None:
        """The next pass of the sender raises the epoch (of a producer without transactions) and numbers this partition
        anew.
        """
        self.epoch_bump_required = True
        self._to_rewrite.add(queue)

    def bump_epoch_if_required(self) -> None:
        """Raises the epoch where batches asked for it; after the last epoch comes a new producer id. Not for
        transactions.
        """
        if self.transactional or not self.epoch_bump_required or not self.has_producer:
            return
        producer_id, epoch = self.producer
        self.epoch_bump_required = False
        if epoch == MAX_EPOCH:
            # The partitions are numbered anew once there is another id.
            self.set_producer(*NO_PRODUCER)
            self._enter(State.UNINITIALIZED)
        else:
            self.set_producer(producer_id, epoch + 1)
            self._rewrite()

    def _rewrite(self) -> None:
        for queue in self._to_rewrite:
            queue.start_sequence(*self.producer)
            queue.unresolved_sequence = -1
            self._unresolved.discard(queue)
        self._to_rewrite.clear()

    def mark_unresolved(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """A batch that was sent has expired: whether the broker has it is not known."""
        queue.unresolved_sequence = max(queue.unresolved_sequence, next_sequence(batch.last_sequence, 1))
        self._unresolved.add(queue)

    def resolve_sequences(self) -> None:
        """Where nothing is in flight any more: either later batches came through, so the expired one did; or the
        sequence is
        broken, and the epoch has to be raised."""
        for queue in list(self._unresolved):
            if queue.unacked:
                continue
            self._unresolved.discard(queue)
            if queue.is_next_sequence(queue.next_sequence):
                queue.unresolved_sequence = -1
            elif self.transactional:
                queue.unresolved_sequence = -1
                if not self.failed:
                    self.abortable_if_possible(
                        KafkaError("records were sent and neither acknowledged nor refused before their time was up")
                    )
            else:
                self.request_epoch_bump(queue)

    def batch_failed(self, queue: PartitionQueue, batch: ProducerBatch, error: BaseException, adjust: bool) -> None:
        """A batch has failed for good and is out of its queue. adjust: the broker has surely not written it."""
        self.error_of_record(error)
        if self.state is State.FATAL_ERROR or not batch.has_sequence:
            return
        code = code_of(error)
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not self.transactional:
            self.request_epoch_bump(queue)
        elif code is ErrorCode.UNKNOWN_PRODUCER_ID:
            queue.reset_sequence()
            self._unresolved.discard(queue)
        elif adjust:
            if self.transactional:
                queue.close_gap(batch)
            else:
                self.request_epoch_bump(queue)

    def error_of_record(self, error: BaseException) -> None:
        """What an error of a record or a batch means for the producer."""
        if self.state is State.FATAL_ERROR or isinstance(error, TransactionAbortedError):
            return
        code = code_of(error)
        if code in _FATAL:
            self.fatal(error)
        elif self.transactional and self.ongoing:
            if isinstance(error, RetriableError) or code is ErrorCode.INVALID_TXN_STATE:
                cause = error
                error = error_class(ErrorCode.TRANSACTION_ABORTABLE)(
                    f"a record was given up after its retries: {error}"
                )
                error.__cause__ = cause
            if not self.completing:
                self._bump_after_abort()
            self.abortable(error)

    def can_retry(self, queue: PartitionQueue, batch: ProducerBatch, code: ErrorCode, log_start_offset: int) -> bool:
        """Whether a batch that was refused with this code is to be sent again; may ask for another epoch first."""
        if code is ErrorCode.UNKNOWN_PRODUCER_ID:
            if log_start_offset == -1 or batch.sequence_reset:
                # Without the log's start it cannot be told why; and a batch that was in flight when the sequence began
                # anew
                # has failed under its old numbers.
                return True
            if queue.last_acked_offset < log_start_offset and self.transactional:
                # Retention has taken the producer's records, and its state with them.
                queue.start_sequence(*self.producer)
                return True
            if not self.transactional:
                self.request_epoch_bump(queue)
                return True
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            unresolved = queue.unresolved_sequence >= 0
            if not unresolved and (batch.sequence_reset or not queue.is_next_sequence(batch.base_sequence)):
                return True  # one before it has failed, and goes first
            if not self.transactional:
                if not unresolved or batch.base_sequence == queue.unresolved_sequence:
                    self.request_epoch_bump(queue)
                return True
        return code.retriable
