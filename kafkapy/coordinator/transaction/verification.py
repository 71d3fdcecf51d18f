"""Verifies that a partition is in a producer's transaction (KIP-890).

The broker asks the transaction coordinator before it appends a first batch, so that no partition is left with a
transaction that nobody will end. Source: org.apache.kafka.server.transaction.AddPartitionsToTxnManager, and
ReplicaManager for the errors that clients get.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from kafkapy.coordinator.clock import Clock
from kafkapy.coordinator.result import Later
from kafkapy.coordinator.timer import TimerHeap
from kafkapy.coordinator.transaction.metadata import TRANSACTION_VERSION_2, ProducerIdAndEpoch
from kafkapy.errors import ErrorCode, code_of
from kafkapy.types import TopicPartition

Refusals = dict[TopicPartition, ErrorCode]
"""Refused partitions and their errors: outside of the transaction, or not allowed in it."""

TIME_BUCKETS: Final = 16
"""VerificationTimeMs counts times below 1, 2, 4 ... ms."""

_NOT_READY: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Operation(Enum):
    """The client's support of KIP-890, from its request's version.

    Source: TransactionSupportedOperation.
    """

    DEFAULT_ERROR = 0
    GENERIC_ERROR = 1
    """The client knows TRANSACTION_ABORTABLE."""
    ADD_PARTITION = 2
    """The client leaves it to the broker to add the partition."""

    @classmethod
    def of_produce(cls, version: int) -> Operation:
        """The operation of a Produce version."""
        return cls.ADD_PARTITION if version >= 12 else cls.GENERIC_ERROR if version == 11 else cls.DEFAULT_ERROR

    @classmethod
    def of_txn_offset_commit(cls, version: int) -> Operation:
        """The operation of a TxnOffsetCommit version."""
        return cls.ADD_PARTITION if version >= 5 else cls.GENERIC_ERROR if version == 4 else cls.DEFAULT_ERROR


class Coordinates(Protocol):
    """A transaction coordinator: this broker's, or another's by AddPartitionsToTxn 4."""

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        client_version: int,
    ) -> Later[None]:
        """See TransactionCoordinator."""

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> Later[dict[TopicPartition, ErrorCode]]:
        """See TransactionCoordinator."""


@dataclass(slots=True)
class VerificationTimes:
    """The durations of verifications.

    `buckets[i]` counts those below 2**i ms that were not below half of it; the last bucket counts all longer ones.
    """

    buckets: list[int] = field(default_factory=lambda: [0] * (TIME_BUCKETS + 1))
    total_ms: int = 0

    def add(self, took_ms: int) -> None:
        """Add a duration."""
        self.total_ms += took_ms
        self.buckets[min(max(took_ms, 0).bit_length(), TIME_BUCKETS)] += 1


class TransactionVerification:
    """Verifies partitions, and retries while the previous transaction is being ended.

    Coordinators makes it; used on the control loop's thread. `enabled` is transaction.partition.verification.enable:
    without it, only partitions are verified whose client leaves it to the broker to add them.
    """

    def __init__(
        self,
        coordinator: Coordinates,
        clock: Clock,
        *,
        enabled: bool,
        backoff_ms: int,
        backoff_max_ms: int,
    ) -> None:
        self.enabled = enabled
        self.failures = 0
        """The number of partitions that were not confirmed since the start."""
        self.times = VerificationTimes()
        self._coordinator = coordinator
        self._clock = clock
        self._timer = TimerHeap(clock)
        self._waiting: dict[Later[Refusals], Refusals] = {}
        self._backoff_ms = backoff_ms
        self._backoff_max_ms = backoff_max_ms

    def close(self) -> None:
        """End the retries; each gets its last answer."""
        self._timer.close()
        waiting, self._waiting = self._waiting, {}
        for answer, refused in waiting.items():
            answer.set(refused)

    def ask(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        operation: Operation,
        *,
        patient: bool = False,
    ) -> Later[Refusals]:
        """The refused partitions; empty when all are in the transaction. Never fails.

        An accepted partition is in it for certain: the coordinator's record of that is committed. With `patient` the
        request is repeated for a while when the answer is CONCURRENT_TRANSACTIONS and the client leaves adding to the
        broker: the previous transaction ends sooner than the client could ask again.
        """
        started = self._clock.monotonic_ms()
        deadline = started + self._backoff_max_ms if patient and operation is Operation.ADD_PARTITION else started
        answer: Later[Refusals] = Later()

        def answered(refused: Refusals) -> None:
            now = self._clock.monotonic_ms()
            if ErrorCode.CONCURRENT_TRANSACTIONS in refused.values() and now < deadline:
                self._waiting[answer] = refused
                self._timer.schedule(answer, self._backoff_ms, put)
                return
            self._waiting.pop(answer, None)
            self.failures += len(refused)
            self.times.add(now - started)
            answer.set(refused)

        def put() -> None:
            self._put(transactional_id, producer, partitions, operation).then(lambda done: answered(done.result()))

        put()
        return answer

    def _put(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        operation: Operation,
    ) -> Later[Refusals]:
        answer: Later[Refusals] = Later()

        def all_failed(error: BaseException) -> None:
            answer.set(dict.fromkeys(partitions, _shown(code_of(error), operation)))

        def added(done: Later[None]) -> None:
            if done.error is not None:
                all_failed(done.error)
            else:
                answer.set({})

        def verified(done: Later[dict[TopicPartition, ErrorCode]]) -> None:
            if done.error is not None:
                all_failed(done.error)
            else:
                answer.set({each: _shown(code, operation) for each, code in done.result().items() if code})

        if operation is Operation.ADD_PARTITION:
            self._coordinator.add_partitions(transactional_id, producer, partitions, TRANSACTION_VERSION_2).then(added)
        else:
            self._coordinator.verify_partitions(transactional_id, producer, partitions).then(verified)
        return answer


def _shown(error: ErrorCode, operation: Operation) -> ErrorCode:
    """The coordinator's error as the client knows it."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and operation is Operation.DEFAULT_ERROR:
        return ErrorCode.INVALID_TXN_STATE
    return error


def produce_error(error: ErrorCode, operation: Operation) -> tuple[ErrorCode, str]:
    """A refusal as a Produce answers it: code and message.

    Older clients would not retry after some of these errors. They retry after NOT_ENOUGH_REPLICAS, and without asking
    for metadata before.
    """
    if error is ErrorCode.INVALID_TXN_STATE:
        return error, "The partition was not added to the transaction"
    if error in _NOT_READY or (error is ErrorCode.CONCURRENT_TRANSACTIONS and operation is not Operation.ADD_PARTITION):
        return (
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"It cannot be verified that the partition was added to the transaction: {error.name}",
        )
    return error, error.message
