"""Where a follower's log is cut when its leader's log is another one.

Source: kafka.server.AbstractFetcherThread.getOffsetTruncationState, KIP-101 and KIP-279.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kafkapy._speedups.log.partition_log import PartitionLog

__all__ = ["UNDEFINED", "EpochEnd", "Truncation", "first_batch", "truncation_of"]

UNDEFINED: Final = -1
"""An epoch or an offset that the leader does not know."""
LENGTH_AT: Final = 8
LENGTH_END: Final = 12
"""The length field of a batch; it does not count itself and what is before."""


class EpochEnd(NamedTuple):
    """The leader's largest epoch up to the follower's, and its end offset."""

    epoch: int
    end_offset: int


class Truncation(NamedTuple):
    """The offset from which a log is cut."""

    offset: int
    complete: bool
    """The logs agree afterwards; else the leader must be asked about the next epoch."""


def truncation_of(log: PartitionLog, answer: EpochEnd, initial_offset: int) -> Truncation:
    """The cut for an answer about the log's newest epoch.

    `initial_offset`: for a leader that does not know where the epoch ends.
    """
    if answer.end_offset == UNDEFINED:
        return Truncation(initial_offset, True)
    end = log.log_end_offset
    if answer.epoch == UNDEFINED:
        return Truncation(min(answer.end_offset, end), True)
    epoch, end_of_epoch = log.offset_for_leader_epoch(answer.epoch)
    if end_of_epoch == UNDEFINED:
        return Truncation(min(answer.end_offset, end), True)
    if epoch != answer.epoch:
        # This log has no such epoch: what it has of later ones cannot be the leader's.
        return Truncation(min(end_of_epoch, end), False)
    return Truncation(min(end_of_epoch, answer.end_offset, end), True)


def first_batch(records: bytes) -> bytes | None:
    """The first record batch, if it is whole."""
    if len(records) < LENGTH_END:
        return None
    size = LENGTH_END + int(struct.unpack_from(">i", records, LENGTH_AT)[0])
    return records[:size] if LENGTH_END < size <= len(records) else None
