"""The states of a transactional id, and their allowed transitions.

Source: kafka.coordinator.transaction.TransactionState. The numbers and names are Kafka's: the numbers stand in
__transaction_state, the names in answers to ListTransactions and DescribeTransactions.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class TransactionState(Enum):
    """The state of a transactional id; records hold the value.

    PrepareEpochFence and Dead are never written: fencing a producer and preparing the abort of its transaction are one
    step here, and a forgotten id leaves a tombstone.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """Kafka's name of the state."""
        return _LABELS[self]

    @classmethod
    def of_label(cls, label: str) -> TransactionState | None:
        """The state of that name, or None for an unknown name."""
        return _BY_LABEL.get(label)

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and not yet in all partitions."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        """Whether the last transaction's outcome is in all partitions."""
        return self in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

    @property
    def may_expire(self) -> bool:
        """Whether an unused id in this state expires."""
        return self is TransactionState.EMPTY or self.is_complete

    def may_follow(self, before: TransactionState) -> bool:
        """Whether an id may go from `before` to this state."""
        return before in _PREVIOUS[self]


_LABELS: Final = {
    TransactionState.EMPTY: "Empty",
    TransactionState.ONGOING: "Ongoing",
    TransactionState.PREPARE_COMMIT: "PrepareCommit",
    TransactionState.PREPARE_ABORT: "PrepareAbort",
    TransactionState.COMPLETE_COMMIT: "CompleteCommit",
    TransactionState.COMPLETE_ABORT: "CompleteAbort",
    TransactionState.DEAD: "Dead",
    TransactionState.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}
_BY_LABEL: Final = {label: state for state, label in _LABELS.items()}

_RESTING: Final = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})

_PREVIOUS: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    TransactionState.EMPTY: _RESTING,
    TransactionState.ONGOING: _RESTING | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    # From the resting states too: a client that knows KIP-890 may abort a transaction it has put nothing into.
    TransactionState.PREPARE_ABORT: _RESTING | {TransactionState.ONGOING},
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.DEAD: _RESTING,
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.ONGOING}),
}
