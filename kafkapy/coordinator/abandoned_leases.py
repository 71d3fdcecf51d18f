"""Leases of unloaded shards, whose last append may still be under way.

A load waits for these appends: it must find all records.
"""

from __future__ import annotations

from typing import Protocol


class Lease(Protocol):
    """A coordinator's leave to append to its log, given to network threads."""

    @property
    def busy(self) -> bool:
        """Whether an append is under way."""

    def abandon(self) -> bool:
        """End the lease without a word; whether an append is under way."""


class AbandonedLeases:
    """The leases of one coordinator that have ended with an append under way.

    Used on the control loop's thread.
    """

    def __init__(self) -> None:
        self._leases: dict[int, list[Lease]] = {}
        """By partition."""

    def abandon(self, partition: int, lease: Lease) -> None:
        """End a lease of an unloaded shard."""
        if lease.abandon():
            self._leases.setdefault(partition, []).append(lease)

    def is_settled(self, partition: int) -> bool:
        """Whether no append to the partition is under way."""
        busy = [lease for lease in self._leases.pop(partition, ()) if lease.busy]
        if busy:
            self._leases[partition] = busy
        return not busy
