"""The state of a producer's idempotence and transactions.

A state machine without I/O; the requests are in `transactional_requests`. It defines which operations are allowed, and
the effect of errors. The facts that the sending path needs per record and batch (producer id, whether records are
accepted, whether a partition belongs to the transaction) are stored in the RecordAccumulator and its queues, so that
nothing here runs per record.

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
    """The states of a producer.

    Without a transactional id it enters only the first three and the last.
    """

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
    State.PREPARED: frozenset({State.IN_TRANSACTION, State.READY}),
    State.COMMITTING: frozenset({State.IN_TRANSACTION, State.PREPARED}),
    State.ABORTING: frozenset({State.IN_TRANSACTION, State.PREPARED, State.ABORTABLE_ERROR}),
    State.ABORTABLE_ERROR: frozenset(
        {State.IN_TRANSACTION, State.PREPARED, State.COMMITTING, State.ABORTABLE_ERROR, State.INITIALIZING}
    ),
    State.FATAL_ERROR: frozenset(State),
}
"""The states from which each state may be entered."""

_FATAL: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""The fatal errors of a batch."""


class TransactionManager:
    """The transaction state of one producer.

    All of it belongs to the loop's thread, except add_partition, which sending threads call. `wake` schedules a pass of
    the sender.
    """

    def __init__(
        self, accumulator: RecordAccumulator, transactional_id: str | None, wake: Callable[[], object] | None = None
    ) -> None:
        self.accumulator = accumulator
        self.transactional_id = transactional_id
        self.state = State.UNINITIALIZED
        self.last_error: BaseException | None = None
        self.v2 = False
        """Whether the brokers add partitions to the transaction themselves and bump the epoch after each transaction
        (KIP-890)."""
        self.coordinator_bumps = False
        """Whether the coordinator allows the producer to bump its epoch (KIP-360)."""
        self.epoch_bump_required = False
        self.started = False
        """Whether the coordinator knows the open transaction."""
        self.ongoing_producer: tuple[int, int] | None = None
        """Id and epoch of the producer that has prepared the transaction, where that was another one."""
        self.took_nothing_over = False
        """Whether a producer that would complete a prepared transaction has found none."""
        self.new_partitions: set[PartitionQueue] = set()
        self.partitions: set[PartitionQueue] = set()
        self._unresolved: set[PartitionQueue] = set()
        self._to_rewrite: set[PartitionQueue] = set()
        self.wake = wake or (lambda: None)
        self.pending = ""
        """The name of the operation that has started and whose end no call has seen."""
        accumulator.idempotent = True
        accumulator.transactional = self.transactional
        self._publish()

    @property
    def transactional(self) -> bool:
        """Whether the producer has transactions, not only idempotence."""
        return self.transactional_id is not None

    @property
    def producer(self) -> tuple[int, int]:
        """Producer id and epoch; (-1, -1) without them."""
        return self.accumulator.producer_id, self.accumulator.producer_epoch

    @property
    def has_producer(self) -> bool:
        """Whether the producer has a producer id."""
        return self.accumulator.producer_id >= 0

    @property
    def completing(self) -> bool:
        """Whether a transaction is committing or aborting."""
        return self.state in (State.COMMITTING, State.ABORTING)

    @property
    def prepared(self) -> bool:
        """Whether a transaction is prepared.

        A prepared transaction accepts no records, and any client may end it.
        """
        return self.state is State.PREPARED

    @property
    def failed(self) -> bool:
        """Whether the producer has an abortable or fatal error."""
        return self.state in (State.ABORTABLE_ERROR, State.FATAL_ERROR)

    @property
    def ongoing(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self.state in (State.IN_TRANSACTION, State.PREPARED, State.ABORTABLE_ERROR) or self.completing

    # --- transitions ----------------------------------------------------------------------------------------------

    def _enter(self, state: State, error: BaseException | None = None) -> None:
        if self.state not in _FROM[state]:
            raise IllegalStateError(
                f"{'' if self.transactional_id is None else f'transactional.id {self.transactional_id}: '}"
                f"the producer cannot change from {self.state.name} to {state.name}"
            )
        log.debug("Producer state %s -> %s (%s)", self.state.name, state.name, error)
        self.state = state
        self.last_error = error
        self._publish()

    def _publish(self) -> None:
        """Passes the state's consequences to the accumulator."""
        accumulator = self.accumulator
        taking = self.state is State.IN_TRANSACTION if self.transactional else not self.failed
        accumulator.open = taking and not accumulator.closed
        accumulator.completing = self.completing or self.prepared
        accumulator.sending_allowed = self.state is not State.FATAL_ERROR

    def set_producer(self, producer_id: int, producer_epoch: int) -> None:
        """Sets the producer id and epoch of later batches."""
        log.debug("Producer id %d, epoch %d", producer_id, producer_epoch)
        self.accumulator.producer_id = producer_id
        self.accumulator.producer_epoch = producer_epoch

    def require_transactional(self) -> None:
        """IllegalStateError for a producer without a transactional id."""
        if not self.transactional:
            raise IllegalStateError("transactions need a transactional_id in the producer's configuration")

    def require_no_error(self) -> None:
        """Raises the producer's error."""
        if not self.failed:
            return
        error = self.last_error
        if isinstance(error, KafkaError) and error.code in (
            ErrorCode.PRODUCER_FENCED,
            ErrorCode.INVALID_PRODUCER_EPOCH,
        ):
            # A new exception: the traceback of the stored one belongs to another call.
            raise error_for(error.code, f"the producer of {self.transactional_id} {self.producer} was fenced: {error}")
        if isinstance(error, KafkaError) and error.code is not ErrorCode.UNKNOWN_SERVER_ERROR:
            raise error_for(error.code, f"the producer has an error: {error}") from error
        raise KafkaError(f"the producer has an error: {error}") from error

    def require_open(self) -> None:
        """IllegalStateError without an open transaction; the producer's error."""
        self.require_no_error()
        if self.state is not State.IN_TRANSACTION:
            raise IllegalStateError(f"no transaction is open (the producer is {self.state.name})")

    def require_no_pending(self, operation: str) -> None:
        """IllegalStateError while a timed-out operation was not called again."""
        if self.pending and self.pending != operation:
            raise IllegalStateError(f"{operation} is not possible: {self.pending} timed out and must be called again")

    def refusal(self) -> BaseException:
        """The error for a record now."""
        try:
            self.require_no_pending("send")
            self.require_no_error()
        except KafkaError as error:
            return error
        if not self.has_producer:
            return IllegalStateError("init_transactions() must precede the first record")
        return IllegalStateError(
            f"no transaction is open (the producer is {self.state.name}): call begin_transaction() first"
        )

    def initializing(self) -> None:
        """Enters the state before InitProducerId. IllegalStateError; the producer's error."""
        self.require_no_error()
        self._enter(State.INITIALIZING)

    def initialized(self, producer_id: int, producer_epoch: int, *, bumped: bool = False) -> None:
        """Takes the response of InitProducerId.

        `bumped`: the request was for another epoch of the same producer.
        """
        self.set_producer(producer_id, producer_epoch)
        self._enter(State.READY)
        if bumped:
            self.reset_sequences()
        self._rewrite()
        self.wake()

    def took_over(self, producer_id: int, producer_epoch: int) -> None:
        """Enters the state of a prepared transaction whose records another producer has written (KIP-939).

        An id of -1 is none.
        """
        if producer_id < 0:
            self.took_nothing_over = True
            return
        self.ongoing_producer = producer_id, producer_epoch
        self.started = True
        self._enter(State.PREPARED)

    def uninitialized(self) -> None:
        """Returns to the initial state: an authorization may be granted meanwhile.

        The next record or init_transactions() starts again.
        """
        self._enter(State.UNINITIALIZED)

    def begin(self) -> None:
        """Begins a transaction. IllegalStateError; the producer's error."""
        self.require_transactional()
        self.require_no_pending("begin_transaction")
        self.require_no_error()
        self._enter(State.IN_TRANSACTION)
        self.took_nothing_over = False

    def prepare(self) -> None:
        """Refuses further records; the transaction stays open. IllegalStateError; the producer's error."""
        self.require_transactional()
        self.require_open()
        self._enter(State.PREPARED)

    def begin_commit(self) -> None:
        """Refuses further records before a commit. IllegalStateError; the producer's error.

        Buffered records are sent.
        """
        self.require_transactional()
        self.require_no_error()
        self._enter(State.COMMITTING)

    def begin_abort(self) -> None:
        """Refuses further records before an abort. IllegalStateError; a fatal error.

        Unsent records are dropped.
        """
        self.require_transactional()
        if self.state is not State.ABORTABLE_ERROR:
            self.require_no_error()
        self._enter(State.ABORTING)
        for queue in self.new_partitions:
            queue.joining = False
        self.new_partitions.clear()

    def ended(self, producer_id: int = -1, producer_epoch: int = -1) -> bool:
        """Ends the transaction; whether the epoch must be bumped first.

        An id other than -1 is the producer's new id.
        """
        if producer_id != -1:
            self.set_producer(producer_id, producer_epoch)
            self.reset_sequences()
        bump = self.epoch_bump_required
        self._enter(State.INITIALIZING if bump else State.READY)
        self.epoch_bump_required = False
        self.started = False
        self.ongoing_producer = None
        for queue in self.partitions | self.new_partitions:
            queue.in_transaction = queue.joining = False
        self.partitions.clear()
        self.new_partitions.clear()
        return bump

    def fatal(self, error: BaseException) -> None:
        """Sets a fatal error: the producer can only be closed."""
        log.info("The producer has a fatal error: %s", error)
        self._enter(State.FATAL_ERROR, error)
        self.wake()

    def abortable(self, error: BaseException) -> None:
        """Sets an abortable error: the transaction can only be aborted."""
        if self.state is State.ABORTING:
            log.debug("An error during an abort: %s", error)
            return
        if self.state is State.FATAL_ERROR:
            return
        log.info("The transaction must be aborted: %s", error)
        self._enter(State.ABORTABLE_ERROR, error)
        self.wake()

    def abortable_if_possible(self, error: BaseException) -> None:
        """Sets an abortable error, or a fatal one.

        The error is abortable if the epoch can be bumped afterwards.
        """
        if self.coordinator_bumps or self.v2:
            self._bump_after_abort()
            self.abortable(error)
        else:
            self.fatal(error)

    def _bump_after_abort(self) -> None:
        if self.coordinator_bumps and not self.v2:
            self.epoch_bump_required = True

    def use_version(self, transaction_version: int, *, initially: bool) -> None:
        """Sets the transaction protocol of the next transaction (the feature transaction.version)."""
        was = self.v2
        self.v2 = transaction_version >= 2
        if self.v2 and not was and not initially:
            # Records with the old protocol's epoch must not count as the new protocol's.
            self.epoch_bump_required = True

    # --- partitions -----------------------------------------------------------------------------------------------

    def add_partition(self, queue: PartitionQueue) -> None:
        """Adds a partition to the transaction, with its first record.

        Raises the error of refusal().
        """
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
        """Releases the batches of partitions that the coordinator has added."""
        self.started = True
        for queue in queues:
            self.new_partitions.discard(queue)
            self.partitions.add(queue)
            queue.joining = False
            queue.in_transaction = True
        self.wake()

    # --- sequences ------------------------------------------------------------------------------------------------

    def reset_sequences(self) -> None:
        """Restarts the sequence of every partition with its next batch."""
        for topic in list(self.accumulator.topics.values()):
            for queue in topic.partitions:
                queue.reset_sequence()
        self._unresolved.clear()

    def request_epoch_bump(self, queue: PartitionQueue) -> None:
        """Requests a bumped epoch and new sequences for this partition.

        The next pass of the sender bumps the epoch, for a producer without transactions.
        """
        self.epoch_bump_required = True
        self._to_rewrite.add(queue)

    def bump_epoch_if_required(self) -> None:
        """Bumps the epoch if batches requested it, outside of transactions.

        After the last epoch the producer gets a new id.
        """
        if self.transactional or not self.epoch_bump_required or not self.has_producer:
            return
        producer_id, epoch = self.producer
        self.epoch_bump_required = False
        if epoch == MAX_EPOCH:
            # The partitions get new sequences once there is another id.
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
        """Marks the sequence of an expired batch.

        The broker may or may not have written it.
        """
        queue.unresolved_sequence = max(queue.unresolved_sequence, next_sequence(batch.last_sequence, 1))
        self._unresolved.add(queue)

    def resolve_sequences(self) -> None:
        """Resolves expired batches of partitions without batches in flight.

        Either later batches succeeded, and so did the expired one, or the sequence is broken and the epoch must be
        bumped.
        """
        for queue in list(self._unresolved):
            if queue.unacked:
                continue
            self._unresolved.discard(queue)
            if queue.is_next_sequence(queue.next_sequence):
                queue.unresolved_sequence = -1
            elif self.transactional:
                queue.unresolved_sequence = -1
                if not self.failed:
                    self.abortable_if_possible(KafkaError("sent records expired without a response"))
            else:
                self.request_epoch_bump(queue)

    def batch_failed(self, queue: PartitionQueue, batch: ProducerBatch, error: BaseException, adjust: bool) -> None:
        """Handles a failed batch that has left its queue.

        adjust: the broker has certainly not written it.
        """
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
        """Applies the error of a record or batch to the producer's state."""
        if self.state is State.FATAL_ERROR or isinstance(error, TransactionAbortedError):
            return
        code = code_of(error)
        if code in _FATAL:
            self.fatal(error)
        elif self.transactional and self.ongoing:
            if isinstance(error, RetriableError) or code is ErrorCode.INVALID_TXN_STATE:
                cause = error
                error = error_class(ErrorCode.TRANSACTION_ABORTABLE)(f"a record failed after its retries: {error}")
                error.__cause__ = cause
            if not self.completing:
                self._bump_after_abort()
            self.abortable(error)

    def can_retry(self, queue: PartitionQueue, batch: ProducerBatch, code: ErrorCode, log_start_offset: int) -> bool:
        """Whether a refused batch is sent again.

        It may request another epoch first.
        """
        if code is ErrorCode.UNKNOWN_PRODUCER_ID:
            if log_start_offset == -1 or batch.sequence_reset:
                # Without the log start offset the cause is unknown; and a batch that was in flight when the sequence
                # restarted has failed under its old sequence.
                return True
            if queue.last_acked_offset < log_start_offset and self.transactional:
                # Retention has deleted the producer's records, and its state with them.
                queue.start_sequence(*self.producer)
                return True
            if not self.transactional:
                self.request_epoch_bump(queue)
                return True
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            unresolved = queue.unresolved_sequence >= 0
            if not unresolved and (batch.sequence_reset or not queue.is_next_sequence(batch.base_sequence)):
                return True  # an earlier batch has failed and goes first
            if not self.transactional:
                if not unresolved or batch.base_sequence == queue.unresolved_sequence:
                    self.request_epoch_bump(queue)
                return True
        return code.retriable
