"""Leases of unloaded shards, whose last append may still be under way."""

from __future__ import annotations

from kafkapy.coordinator.abandoned_leases import AbandonedLeases


class Lease:
    def __init__(self, busy: bool) -> None:
        self.busy = busy
        self.abandoned = 0

    def abandon(self) -> bool:
        """See abandoned_leases.Lease."""
        self.abandoned += 1
        return self.busy


def test_a_partition_is_settled_once_no_append_is_under_way() -> None:
    leases, given = AbandonedLeases(), [Lease(busy) for busy in (False, True, True)]
    for each in given:
        leases.abandon(3, each)
    assert [each.abandoned for each in given] == [1, 1, 1]
    assert leases.is_settled(4)
    for number in (1, 2):
        assert not leases.is_settled(3)
        given[number].busy = False
    assert leases.is_settled(3)
    given[1].busy = True
    assert leases.is_settled(3), "it was looked at for the last time"
