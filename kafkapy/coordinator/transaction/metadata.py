"""TransactionMetadata: what is known of one transactional id, and its transitions.

Source: kafka.coordinator.transaction.TransactionMetadata. Here it is a value: a transition makes a new one, which goes
into a record, and the record into the shard. So there is no pending state; who comes meanwhile meets the new one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from kafkapy.coordinator.transaction.state import TransactionState
from kafkapy.types import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
MAX_EPOCH: Final = 2**15 - 1
"""Never handed out, so that every producer can be fenced by a higher epoch."""
LAST_EPOCH: Final = MAX_EPOCH - 1

TRANSACTION_VERSION_0: Final = 0
TRANSACTION_VERSION_2: Final = 2
"""KIP-890: each transaction has an epoch of its own."""


class ProducerIdAndEpoch(NamedTuple):
    """What a producer identifies itself by."""

    producer_id: int
    producer_epoch: int


class TransactionMetadata(NamedTuple):
    """One transactional id. Immutable; times in ms since the epoch, -1 for none.

    `next_producer_id` is the id that takes over when a transaction has ended with the last epoch of this one, and
    `previous_producer_id` the id before, as long as its client may not have heard of the new one. A transition that is
    not allowed raises ValueError: the caller has to have checked what clients may ask for.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    last_update_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = TRANSACTION_VERSION_0
    """The transaction version that the current transaction, or the last one, was made or ended by."""

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """Who may go on with this id."""
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def has_exhausted_epochs(self) -> bool:
        """Whether no epoch can be handed out any more that could still be fenced."""
        return self.producer_epoch >= LAST_EPOCH

    @property
    def bumps_epochs(self) -> bool:
        """Whether the transaction has, or had, an epoch of its own (KIP-890)."""
        return self.client_version >= TRANSACTION_VERSION_2

    def timed_out(self, now_ms: int) -> bool:
        """Whether the transaction is open for longer than its producer said it would be."""
        return self.state is TransactionState.ONGOING and self.start_ms + self.timeout_ms < now_ms

    # --- transitions ------------------------------------------------------------------------------------------------

    def initialized(self, epoch: int, timeout_ms: int, now_ms: int) -> TransactionMetadata:
        """A producer begins, or goes on, with an epoch."""
        return self._to(
            TransactionState.EMPTY,
            producer_epoch=epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=-1,
            last_update_ms=now_ms,
        )

    def rotated(self, producer_id: int, timeout_ms: int, now_ms: int) -> TransactionMetadata:
        """A producer begins with a new producer id, as the epochs of the old one have run out."""
        return self._to(
            TransactionState.EMPTY,
            producer_id=producer_id,
            producer_epoch=0,
            timeout_ms=timeout_ms,
            previous_producer_id=self.producer_id,
            partitions=frozenset(),
            start_ms=-1,
            last_update_ms=now_ms,
        )

    def with_partitions(
        self, added: Iterable[TopicPartition], now_ms: int, client_version: int = TRANSACTION_VERSION_0
    ) -> TransactionMetadata:
        """Partitions become part of the transaction, which begins with the first."""
        begins = self.state is not TransactionState.ONGOING
        if not begins:
            client_version = max(client_version, self.client_version)
        return self._to(
            TransactionState.ONGOING,
            partitions=self.partitions.union(added),
            start_ms=now_ms if begins else self.start_ms,
            last_update_ms=now_ms,
            client_version=client_version,
        )

    def prepared(
        self, committed: bool, client_version: int, now_ms: int, next_producer_id: int = NO_PRODUCER_ID
    ) -> TransactionMetadata:
        """The outcome is decided. With KIP-890 the epoch grows at once, so that the markers fence what comes late."""
        bumps = client_version >= TRANSACTION_VERSION_2
        return self._to(
            TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT,
            producer_epoch=self.producer_epoch + 1 if bumps else self.producer_epoch,
            next_producer_id=next_producer_id,
            # A transaction that nothing was put into has no other beginning than its end.
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            last_update_ms=now_ms,
            client_version=client_version,
        )

    def fenced(self, now_ms: int, client_version: int = TRANSACTION_VERSION_0) -> TransactionMetadata:
        """The transaction is to be aborted on behalf of the coordinator, and its producer's epoch is over.

        With version 2 a client that knows KIP-890 may find that out by aborting it, and go on with the new epoch.
        """
        return self._to(
            TransactionState.PREPARE_ABORT,
            producer_epoch=self.producer_epoch + 1,
            last_update_ms=now_ms,
            client_version=client_version,
        )

    def completed(self, now_ms: int) -> TransactionMetadata:
        """The outcome is in all partitions."""
        changes: dict[str, Any] = {}
        if self.next_producer_id != NO_PRODUCER_ID:
            changes["previous_producer_id"] = self.producer_id
            changes |= {"producer_id": self.next_producer_id, "producer_epoch": 0}
        return self._to(
            TransactionState.COMPLETE_COMMIT
            if self.state is TransactionState.PREPARE_COMMIT
            else TransactionState.COMPLETE_ABORT,
            partitions=frozenset(),
            last_update_ms=now_ms,
            **changes,
        )

    def _to(self, state: TransactionState, **changes: Any) -> TransactionMetadata:
        if not state.may_follow(self.state):
            raise ValueError(f"{self.transactional_id}: {state.label} cannot follow {self.state.label}")
        # Both hold until the next transition only: one that wants them says so.
        fresh = {"next_producer_id": NO_PRODUCER_ID, "previous_producer_id": NO_PRODUCER_ID}
        made = self._replace(state=state, **(fresh | changes))
        if made.producer_id < 0 or not 0 <= made.producer_epoch <= MAX_EPOCH:
            raise ValueError(f"{self.transactional_id}: {made.producer} is no producer")
        return made
