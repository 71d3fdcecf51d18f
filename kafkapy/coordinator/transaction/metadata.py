"""TransactionMetadata: the state of one transactional id, and its transitions.

Here it is a value: a transition makes a new one, which goes into a record, and the record into the shard. So there is
no pending state; requests that arrive meanwhile use the new one. Source:
kafka.coordinator.transaction.TransactionMetadata.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from kafkapy.coordinator.transaction.state import TransactionState
from kafkapy.types import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_TIMEOUT: Final = -1
MAX_EPOCH: Final = 2**15 - 1
"""Never handed out, so that a higher epoch can fence every producer."""
LAST_EPOCH: Final = MAX_EPOCH - 1

TWO_PHASE_TIMEOUT_MS: Final = 2**31 - 1
"""The timeout in ms of an id with two-phase commit: no timeout (KIP-939)."""

TRANSACTION_VERSION_0: Final = 0
TRANSACTION_VERSION_2: Final = 2
"""KIP-890: each transaction has a new epoch."""


class ProducerIdAndEpoch(NamedTuple):
    """The identity of a producer: its id and epoch."""

    producer_id: int
    producer_epoch: int


class TakenOver(NamedTuple):
    """A producer that has taken an open transaction over.

    `ongoing` is the identity in that transaction's records.
    """

    producer: ProducerIdAndEpoch
    ongoing: ProducerIdAndEpoch


Initialized = ProducerIdAndEpoch | TakenOver


class TransactionMetadata(NamedTuple):
    """One transactional id.

    Immutable; times in ms since the epoch, -1 for none. `next_producer_id` is the id that takes over when a transaction
    has ended with the last epoch of this one, and `previous_producer_id` the id before, as long as its client may not
    have received the new one. With `next_producer_epoch` another producer has taken the transaction over as it was
    prepared (KIP-939): the next id and epoch are that producer's, while `producer_id` and `producer_epoch` stay those
    of the transaction's records; `next_timeout_ms` is that producer's own timeout, which holds when the transaction has
    ended, -1 for an unchanged one. A transition that is not allowed raises ValueError: the caller has to check the
    clients' requests.
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
    """The transaction version that made or ended the present or last transaction."""
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    next_timeout_ms: int = NO_TIMEOUT

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """The producer that may continue with this id."""
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_kept(self) -> bool:
        """Whether a producer has taken the open transaction over as it was prepared (KIP-939)."""
        return self.state is TransactionState.ONGOING and self.next_producer_epoch != NO_PRODUCER_EPOCH

    @property
    def client(self) -> ProducerIdAndEpoch:
        """The producer that may end the transaction."""
        return ProducerIdAndEpoch(self.next_producer_id, self.next_producer_epoch) if self.is_kept else self.producer

    @property
    def successor(self) -> ProducerIdAndEpoch:
        """The producer that goes on when the transaction has ended."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return self.producer
        return ProducerIdAndEpoch(self.next_producer_id, max(self.next_producer_epoch, 0))

    @property
    def is_two_phase(self) -> bool:
        """Whether the id's transactions have no timeout (KIP-939).

        Only a client ends them, or an operator's limit.
        """
        return self.timeout_ms == TWO_PHASE_TIMEOUT_MS

    @property
    def has_exhausted_epochs(self) -> bool:
        """Whether the last epoch that could still be fenced is in use."""
        return self.client.producer_epoch >= LAST_EPOCH

    @property
    def bumps_epochs(self) -> bool:
        """Whether the present or last transaction got a new epoch (KIP-890)."""
        return self.client_version >= TRANSACTION_VERSION_2

    def timed_out(self, now_ms: int, two_phase_max_ms: int = NO_TIMEOUT) -> bool:
        """Whether the transaction has exceeded its timeout, or the operator's."""
        timeout_ms = two_phase_max_ms if self.is_two_phase else self.timeout_ms
        if timeout_ms == NO_TIMEOUT:
            return False
        return self.state is TransactionState.ONGOING and self.start_ms + timeout_ms < now_ms

    # --- transitions ------------------------------------------------------------------------------------------------

    def initialized(self, epoch: int, timeout_ms: int, now_ms: int) -> TransactionMetadata:
        """The id after a producer began, or continued, with an epoch."""
        return self._to(
            TransactionState.EMPTY,
            producer_epoch=epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=-1,
            last_update_ms=now_ms,
        )

    def rotated(self, producer_id: int, timeout_ms: int, now_ms: int) -> TransactionMetadata:
        """The id with a new producer id, after the old one's last epoch."""
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

    def kept(self, client: ProducerIdAndEpoch, timeout_ms: int, now_ms: int) -> TransactionMetadata:
        """The id after a producer has taken its open transaction over, to end it.

        The transaction never gets less time than it had; the producer's own timeout holds for those after it.
        """
        longer_ms = max(timeout_ms, self.timeout_ms)
        return self._to(
            TransactionState.ONGOING,
            next_producer_id=client.producer_id,
            next_producer_epoch=client.producer_epoch,
            timeout_ms=longer_ms,
            next_timeout_ms=NO_TIMEOUT if timeout_ms == longer_ms else timeout_ms,
            last_update_ms=now_ms,
        )

    def with_partitions(
        self, added: Iterable[TopicPartition], now_ms: int, client_version: int = TRANSACTION_VERSION_0
    ) -> TransactionMetadata:
        """The id with partitions added to its transaction.

        The first ones begin the transaction.
        """
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
        """The id with a decided outcome.

        With KIP-890 the epoch grows at once, so that the markers fence late requests.
        """
        bumps = client_version >= TRANSACTION_VERSION_2
        following = self._following(int(bumps))
        if next_producer_id != NO_PRODUCER_ID:
            following |= {"next_producer_id": next_producer_id, "next_producer_epoch": NO_PRODUCER_EPOCH}
        return self._to(
            TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT,
            producer_epoch=self.producer_epoch + 1 if bumps else self.producer_epoch,
            **following,
            # A transaction without partitions has no other beginning than its end.
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            last_update_ms=now_ms,
            client_version=client_version,
        )

    def fenced(self, now_ms: int, client_version: int = TRANSACTION_VERSION_0) -> TransactionMetadata:
        """The id with its producer's epoch fenced, before the coordinator aborts.

        With version 2 a client that knows KIP-890 may find that out by aborting the transaction, and go on with the new
        epoch.
        """
        return self._to(
            TransactionState.PREPARE_ABORT,
            producer_epoch=self.producer_epoch + 1,
            **self._following(1),
            last_update_ms=now_ms,
            client_version=client_version,
        )

    def _following(self, epochs: int) -> dict[str, int]:
        """The changes for a producer that has taken the transaction over: a later epoch."""
        if not self.is_kept:
            return {}
        # A record does not tell an unchanged id from none.
        previous = NO_PRODUCER_ID if self.next_producer_id == self.producer_id else self.next_producer_id
        return {
            "previous_producer_id": previous,
            "next_producer_id": self.next_producer_id,
            "next_producer_epoch": self.next_producer_epoch + epochs,
            "next_timeout_ms": self.next_timeout_ms,
        }

    def completed(self, now_ms: int) -> TransactionMetadata:
        """The id after its outcome reached all partitions."""
        changes: dict[str, Any] = {}
        if self.next_producer_id != NO_PRODUCER_ID:
            before = self.producer_id if self.previous_producer_id == NO_PRODUCER_ID else self.previous_producer_id
            changes["previous_producer_id"] = NO_PRODUCER_ID if before == self.next_producer_id else before
            changes["producer_id"], changes["producer_epoch"] = self.successor
        if self.next_timeout_ms != NO_TIMEOUT:
            changes["timeout_ms"] = self.next_timeout_ms
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
        # They hold until the next transition only: a transition that keeps them passes them.
        fresh: dict[str, Any] = {
            "next_producer_id": NO_PRODUCER_ID,
            "previous_producer_id": NO_PRODUCER_ID,
            "next_producer_epoch": NO_PRODUCER_EPOCH,
            "next_timeout_ms": NO_TIMEOUT,
        }
        made = self._replace(state=state, **(fresh | changes))
        if made.producer_id < 0 or not 0 <= made.producer_epoch <= MAX_EPOCH:
            raise ValueError(f"{self.transactional_id}: {made.producer} is no producer")
        return made
