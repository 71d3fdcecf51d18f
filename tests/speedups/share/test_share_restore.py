"""A new leader's share partition: the state that the share coordinator has, its gaps, and states that cannot be."""

from __future__ import annotations

import random

import pytest
from speedups.share.share_steps import (
    ACCEPT,
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    acknowledge,
    fetch,
    log,
    runs,
    write,
)

from kafkapy._speedups.testing.share_partition import SharePartition

A = b"a"
Batch = tuple[int, int, int, int]


def test_nothing_is_in_flight() -> None:
    share = SharePartition(7, state_epoch=3, leader_epoch=4)
    assert runs(share) == []
    description = share.describe()
    assert (description["start_offset"], description["next_offset"], description["records"]) == (7, 7, 0)
    fetch(share, A, log(7, 10))
    acknowledge(share, A, 7, 9, ACCEPT)
    taken = share.take_write()
    assert taken is not None
    assert (taken.state_epoch, taken.leader_epoch) == (3, 4)


def test_the_start_offset_moves_over_final_batches() -> None:
    share = SharePartition(0, [(0, 4, ACKNOWLEDGED, 1), (5, 6, ARCHIVED, 5), (7, 9, AVAILABLE, 2)])
    assert runs(share) == [(7, 9, AVAILABLE, 2, None, None)]
    assert share.describe()["start_offset"] == 7
    assert fetch(share, A, log(0, 12)) == [(7, 9, 3), (10, 11, 1)]


def test_records_between_batches_are_available() -> None:
    share = SharePartition(0, [(5, 9, ACKNOWLEDGED, 1), (12, 12, ARCHIVED, 2)])
    assert runs(share) == [
        (0, 4, AVAILABLE, 0, None, None),
        (5, 9, ACKNOWLEDGED, 1, None, None),
        (10, 11, AVAILABLE, 0, None, None),
        (12, 12, ARCHIVED, 2, None, None),
    ]
    assert share.describe()["delivery_complete"] == 6
    assert share.can_fetch() == 0
    assert fetch(share, A, log(0, 15)) == [(0, 4, 1), (10, 11, 1), (13, 14, 1)]


def test_records_whose_lock_was_lost_are_available() -> None:
    share = SharePartition(0, [(0, 4, ACQUIRED, 2)])
    assert fetch(share, A, log(0, 5)) == [(0, 4, 3)]


@pytest.mark.parametrize(
    ("start", "batches"),
    [
        (-1, []),
        (0, [(5, 4, AVAILABLE, 0)]),
        (5, [(4, 9, AVAILABLE, 0)]),
        (0, [(0, 5, AVAILABLE, 0), (5, 9, AVAILABLE, 0)]),
        (0, [(5, 9, AVAILABLE, 0), (0, 4, AVAILABLE, 0)]),
        (0, [(0, 4, 5, 0)]),
        (0, [(0, 4, -1, 0)]),
        (0, [(0, 4, AVAILABLE, -1)]),
        (0, [(0, 2**63 - 1, AVAILABLE, 0)]),
    ],
)
def test_states_that_cannot_be(start: int, batches: list[Batch]) -> None:
    with pytest.raises(ValueError, match="The state of a share partition is impossible"):
        SharePartition(start, batches)


def test_the_largest_offsets() -> None:
    last = 2**63 - 2
    share = SharePartition(last - 1, [(last - 1, last, AVAILABLE, 0)])
    assert fetch(share, A, [(last - 1, last, False)]) == [(last - 1, last, 1)]
    acknowledge(share, A, last - 1, last, ACCEPT)
    write(share)
    assert share.describe()["start_offset"] == last + 1


def test_the_widest_batches_cost_no_memory() -> None:
    share = SharePartition(0, [(10, 2**62, AVAILABLE, 1)], max_in_flight=100)
    assert share.acquire(A, [(2**61, 2**61 + 9, False)], 2**61, max_records=5) == [(2**61, 2**61 + 9, 2)]
    assert share.describe()["memory"] < 4000


def test_what_was_written_is_what_a_new_leader_has() -> None:
    """Random acknowledgements: what one leader has written, the next one restores, but for the locks."""
    generator = random.Random(24)
    for _ in range(300):
        share = SharePartition(0, max_in_flight=50)
        stored: dict[int, tuple[int, int]] = {}
        start = 0
        bounds = sorted(generator.sample(range(1, 40), 6))
        batches = log(0, *bounds)
        for _ in range(5):
            if share.can_fetch() is not None:
                for first, last, _ in fetch(share, A, batches):
                    types = bytes(generator.randrange(4) for _ in range(first, last + 1))
                    assert share.acknowledge(A, [(first, last, types)])[0] == 0
            taken = share.take_write()
            if taken is None:
                break
            start = taken.start_offset
            for first, last, state, count in taken.batches:
                stored |= dict.fromkeys(range(first, last + 1), (state, count))
            share.finish_write(taken, True)
        durable = [(offset, offset, *stored[offset]) for offset in sorted(stored) if offset >= start]
        other = SharePartition(start, durable)
        assert runs(other) == runs(share)
        assert other.describe()["start_offset"] == share.describe()["start_offset"]
        assert other.describe()["delivery_complete"] == share.describe()["delivery_complete"]
