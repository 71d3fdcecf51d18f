"""Acquisition of records from the log and the window: whole batches, limits, cuts, suspicious and missing records."""

from __future__ import annotations

import pytest
from speedups.share.share_steps import (
    ACCEPT,
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    BUSY,
    CLOSED,
    FETCH,
    FULL,
    LOCK_MS,
    RECORD_LIMIT,
    RELEASE,
    acknowledge,
    fetch,
    log,
    runs,
    write,
)

from kafkapy._speedups.testing.share_partition import SharePartition

A, B = b"a", b"b"
WIDEST = 1 << 17


def release(share: SharePartition, member: bytes, first: int, last: int) -> None:
    acknowledge(share, member, first, last, RELEASE)
    write(share)


def test_a_batch_is_acquired_whole() -> None:
    share = SharePartition(10)
    assert share.can_fetch() == 10
    assert fetch(share, A, log(10, 15)) == [(10, 14, 1)]
    assert runs(share) == [(10, 14, ACQUIRED, 1, A, None)]
    assert share.can_fetch() == 15
    assert share.next_deadline() == LOCK_MS


def test_a_batch_is_acquired_whole_although_it_passes_the_limit() -> None:
    share = SharePartition()
    assert fetch(share, A, log(0, 5, 10, 15), max_records=7) == [(0, 9, 1)]
    assert share.can_fetch() == 10


def test_a_limit_that_ends_with_a_batch_takes_no_other_batch() -> None:
    share = SharePartition()
    assert fetch(share, A, log(0, 5, 10), max_records=5) == [(0, 4, 1)]


def test_new_ranges_are_cut_at_batches_of_the_log() -> None:
    share = SharePartition()
    batches = log(0, 4, 8, 12, 16)
    assert fetch(share, A, batches, batch_size=5) == [(0, 7, 1), (8, 15, 1)]


@pytest.mark.parametrize("batch_size", [1, 0, -1, -(2**31)])
def test_no_range_is_empty_however_small_the_batch_size(batch_size: int) -> None:
    share = SharePartition()
    assert fetch(share, A, log(0, 1, 2, 5), batch_size=batch_size) == [(0, 0, 1), (1, 1, 1), (2, 4, 1)]


def test_a_record_limit_leaves_the_rest_of_a_batch() -> None:
    share = SharePartition()
    batches = log(0, 10, 20)
    assert fetch(share, A, batches, max_records=4, mode=RECORD_LIMIT) == [(0, 3, 1)]
    assert runs(share) == [(0, 3, ACQUIRED, 1, A, None), (4, 9, AVAILABLE, 0, None, None)]
    assert share.can_fetch() == 4
    assert fetch(share, B, batches, max_records=8, mode=RECORD_LIMIT) == [(4, 9, 1), (10, 11, 1)]
    assert share.can_fetch() == 12


def test_a_record_limit_that_is_no_limit_takes_all() -> None:
    share = SharePartition()
    assert fetch(share, A, log(0, 10), max_records=10, mode=RECORD_LIMIT) == [(0, 9, 1)]
    assert share.can_fetch() == 10


@pytest.mark.parametrize("max_records", [0, -1, -(2**31)])
def test_no_records_are_asked_for(max_records: int) -> None:
    share = SharePartition()
    assert fetch(share, A, log(0, 10), max_records=max_records) == []
    assert runs(share) == []


def test_a_batch_is_never_held_by_two_members() -> None:
    share = SharePartition()
    batches = log(0, 5, 10)
    assert fetch(share, A, batches[:1]) == [(0, 4, 1)]
    assert share.acquire(B, batches, 0) == [(5, 9, 1)]
    assert share.acquire(B, batches, 0) == []


def test_released_records_come_again_and_count() -> None:
    share = SharePartition()
    batches = log(0, 5, 10)
    fetch(share, A, batches[:1])
    acknowledge(share, A, 0, 4, RELEASE)
    assert share.can_fetch() == 5, "the write has not ended"
    assert share.acquire(B, batches[:1], 0) == []
    write(share)
    assert share.can_fetch() == 0
    assert fetch(share, B, batches) == [(0, 4, 2), (5, 9, 1)]


def test_a_part_of_a_released_batch_is_cut_off() -> None:
    share = SharePartition()
    fetch(share, A, log(0, 5, 10))
    release(share, A, 0, 9)
    assert share.acquire(B, log(0, 5), 0) == [(0, 4, 2)]
    assert share.can_fetch() == 5
    assert share.acquire(A, log(5, 10), 5) == [(5, 9, 2)]


def test_the_middle_of_an_available_batch_is_cut_out() -> None:
    share = SharePartition(0, [(0, 29, AVAILABLE, 1)])
    assert share.acquire(A, log(10, 20), 10) == [(10, 19, 2)]
    assert runs(share) == [
        (0, 9, AVAILABLE, 1, None, None),
        (10, 19, ACQUIRED, 2, A, None),
        (20, 29, AVAILABLE, 1, None, None),
    ]


def test_single_records_that_were_released_come_as_one_range() -> None:
    share = SharePartition()
    batches = log(0, 10)
    fetch(share, A, batches)
    acknowledge(share, A, 0, 9, *(ACCEPT, RELEASE, RELEASE, ACCEPT, RELEASE, ACCEPT, ACCEPT, ACCEPT, ACCEPT, ACCEPT))
    write(share)
    assert fetch(share, B, batches) == [(1, 2, 2), (4, 4, 2)]
    assert share.can_fetch() == 10


def test_single_records_are_limited_too() -> None:
    share = SharePartition()
    batches = log(0, 6)
    fetch(share, A, batches)
    acknowledge(share, A, 0, 5, RELEASE, RELEASE, ACCEPT, RELEASE, RELEASE, RELEASE)
    write(share)
    assert fetch(share, B, batches, max_records=3, mode=RECORD_LIMIT) == [(0, 1, 2), (3, 3, 2)]
    assert share.can_fetch() == 4


def test_the_window_is_bounded() -> None:
    share = SharePartition(max_in_flight=10)
    batches = log(0, 4, 8, 12, 16)
    assert fetch(share, A, batches) == [(0, 11, 1)], "up to the batch that passes the bound"
    assert share.can_fetch() is None
    assert share.acquire(A, batches, 12) == []
    acknowledge(share, A, 0, 3, ACCEPT)
    write(share)
    assert share.can_fetch() == 12
    assert fetch(share, B, batches) == [(12, 15, 1)]


def test_records_of_a_full_window_come_again() -> None:
    share = SharePartition(max_in_flight=10)
    batches = log(0, 5, 10, 15)
    fetch(share, A, batches)
    assert share.can_fetch() is None
    release(share, A, 0, 9)
    assert share.can_fetch() == 0
    assert fetch(share, B, batches, batch_size=5) == [(0, 9, 2)], "nothing behind the window"


def test_a_wider_window_has_room() -> None:
    share = SharePartition(max_in_flight=5)
    fetch(share, A, log(0, 5))
    assert share.can_fetch() is None
    assert share.configure(lock_ms=LOCK_MS, max_in_flight=6, delivery_limit=5)
    assert share.can_fetch() == 5
    assert not share.configure(lock_ms=LOCK_MS, max_in_flight=5, delivery_limit=5)
    assert share.can_fetch() is None


def test_a_huge_batch_does_not_make_the_window_huge() -> None:
    share = SharePartition(max_in_flight=100)
    assert fetch(share, A, [(0, 2**31, False)]) == [(0, 99 + WIDEST, 1)]
    assert share.describe()["records"] == 100 + WIDEST
    assert share.can_fetch() is None
    assert share.describe()["memory"] < 2000


def test_the_first_batch_may_begin_below_the_start_offset() -> None:
    share = SharePartition(7)
    assert fetch(share, A, log(5, 10, 12)) == [(7, 11, 1)]


def test_offsets_that_do_not_exist_move_the_start_offset() -> None:
    share = SharePartition(5)
    assert share.acquire(A, log(20, 25), 5) == [(20, 24, 1)]
    assert share.describe()["start_offset"] == 20


def test_offsets_between_batches_of_one_read_are_acquired_too() -> None:
    share = SharePartition()
    assert share.acquire(A, [(0, 4, False), (10, 14, False)], 0) == [(0, 14, 1)]


def test_offsets_between_two_reads_are_no_part_of_the_window() -> None:
    share = SharePartition()
    share.acquire(A, log(0, 5), 0)
    assert share.acquire(B, log(10, 15), 5) == [(10, 14, 1)]
    acknowledge(share, A, 0, 4, ACCEPT)
    write(share)
    assert share.describe()["start_offset"] == 10


def test_records_that_were_compacted_away_are_archived() -> None:
    share = SharePartition()
    share.acquire(A, log(0, 5, 10), 0, batch_size=5)
    share.acquire(A, log(10, 15), 10)
    release(share, A, 0, 9)
    assert share.can_fetch() == 0
    assert share.acquire(B, log(8, 10), 0) == [(8, 9, 2)]
    assert runs(share)[0] == (8, 9, ACQUIRED, 2, B, None), "the records below are gone, and the start offset moved"
    assert share.describe()["start_offset"] == 8


def test_records_that_were_compacted_away_are_archived_within_a_batch() -> None:
    share = SharePartition(0, [(0, 9, AVAILABLE, 1), (10, 19, ACKNOWLEDGED, 1), (20, 29, AVAILABLE, 2)])
    assert share.acquire(A, log(25, 30), 5) == [(25, 29, 3)]
    assert runs(share) == [
        (0, 4, AVAILABLE, 1, None, None),
        (5, 9, ARCHIVED, 1, None, None),
        (10, 19, ACKNOWLEDGED, 1, None, None),
        (20, 24, ARCHIVED, 2, None, None),
        (25, 29, ACQUIRED, 3, A, None),
    ]
    assert share.describe()["delivery_complete"] == 20


def test_single_records_that_were_compacted_away_are_archived() -> None:
    share = SharePartition()
    fetch(share, A, log(0, 4))
    acknowledge(share, A, 1, 2, RELEASE)
    write(share)
    assert share.acquire(B, log(4, 6), 1) == [(4, 5, 1)]
    assert runs(share)[1] == (1, 2, ARCHIVED, 1, None, None)


def test_aborted_batches_are_archived_instead() -> None:
    share = SharePartition()
    assert fetch(share, A, log(0, 5, 10, 15, skipped=[5])) == [(0, 4, 1), (10, 14, 1)]
    assert runs(share) == [
        (0, 4, ACQUIRED, 1, A, None),
        (5, 9, ARCHIVED, 1, None, None),
        (10, 14, ACQUIRED, 1, A, None),
    ]
    assert share.describe()["delivery_complete"] == 5
    acknowledge(share, A, 0, 4, ACCEPT)
    write(share)
    assert share.describe()["start_offset"] == 10


def test_a_window_of_aborted_batches_moves_on() -> None:
    share = SharePartition(max_in_flight=10)
    for first in range(0, 100, 10):
        assert share.can_fetch() == first
        assert share.acquire(A, [(first, first + 9, True)], first) == []
    description = share.describe()
    assert (description["start_offset"], description["batches"], description["members"]) == (100, 0, 0)


def test_aborted_batches_cut_ranges_of_several_batches() -> None:
    share = SharePartition()
    batches = log(0, 2, 4, 6, 8, 10, skipped=[0, 4, 8])
    assert fetch(share, A, batches, batch_size=4) == [(2, 3, 1), (6, 7, 1)]
    assert share.describe()["acquired"] == 4


@pytest.mark.parametrize(
    "batches",
    [[], [(5, 4, False)], [(0, 4, False), (4, 8, False)], [(5, 9, False), (0, 4, False)]],
    ids=["none", "ends before it begins", "overlap", "out of order"],
)
def test_batches_that_cannot_be_are_not_acquired(batches: list[tuple[int, int, bool]]) -> None:
    share = SharePartition()
    assert share.acquire(A, batches, 0) == []
    assert runs(share) == []


def deliver(share: SharePartition, batches: list[tuple[int, int, bool]], times: int) -> None:
    for _ in range(times):
        for first, last, _ in fetch(share, A, batches):
            acknowledge(share, A, first, last, RELEASE)
        write(share)


def test_suspicious_batches_come_in_halves_and_at_last_one_by_one() -> None:
    share = SharePartition(delivery_limit=5)
    batches = log(0, 8)
    deliver(share, batches, 3)
    assert fetch(share, A, batches) == [(0, 3, 4)], "three deliveries of five: halves"
    assert fetch(share, B, batches) == [(4, 7, 4)]
    release(share, A, 0, 3)
    assert fetch(share, A, batches) == [(0, 0, 5)], "the last delivery: alone"
    assert fetch(share, A, batches) == [(1, 1, 5)]


def test_a_suspicious_batch_comes_alone() -> None:
    share = SharePartition(delivery_limit=5)
    batches = log(0, 4, 8)
    deliver(share, batches[:1], 3)
    assert fetch(share, A, batches) == [(0, 1, 4)]
    assert fetch(share, B, batches) == [(2, 3, 4)]
    assert fetch(share, B, batches) == [(4, 7, 1)]


def test_a_suspicious_batch_waits_until_the_records_before_it_are_acquired() -> None:
    share = SharePartition(0, [(0, 3, AVAILABLE, 1), (4, 7, AVAILABLE, 4)], delivery_limit=5)
    assert fetch(share, A, log(0, 12)) == [(0, 3, 2)]
    assert fetch(share, A, log(0, 12)) == [(4, 4, 5)]


def test_suspicious_single_records_come_in_parts() -> None:
    share = SharePartition(0, [(0, 7, AVAILABLE, 2)], delivery_limit=6)
    batches = log(0, 8)
    fetch(share, A, batches)
    acknowledge(share, A, 0, 7, *([RELEASE] * 7 + [ACCEPT]))
    write(share)
    assert fetch(share, A, batches) == [(0, 3, 4)], "half of the eight records of the batch"
    assert fetch(share, B, batches) == [(4, 6, 4)]


def test_two_deliveries_are_never_suspicious_with_the_least_limit() -> None:
    share = SharePartition(delivery_limit=2)
    batches = log(0, 4)
    deliver(share, batches, 1)
    assert fetch(share, A, batches) == [(0, 3, 2)]


def test_counts_above_the_limit_do_no_harm() -> None:
    share = SharePartition(0, [(0, 3, AVAILABLE, 32767)], delivery_limit=5)
    assert fetch(share, A, log(0, 4)) == [(0, 0, 32767)]


def test_one_fetch_reads_at_a_time() -> None:
    share = SharePartition(3)
    assert share.begin_fetch(1) == (FETCH, 3)
    assert share.begin_fetch(2)[0] == BUSY
    assert share.begin_fetch(1) == (FETCH, 3), "it has the turn"
    assert not share.end_fetch(2), "not its turn"
    assert share.end_fetch(1), "another one wants it"
    assert not share.end_fetch(1)
    assert share.begin_fetch(2) == (FETCH, 3)
    assert not share.end_fetch(2)


def test_a_full_window_is_not_read_for() -> None:
    share = SharePartition(max_in_flight=1)
    fetch(share, A, log(0, 1))
    assert share.begin_fetch(1)[0] == FULL
    share.expire(LOCK_MS)
    assert share.begin_fetch(1) == (FETCH, 0)


def test_a_closed_partition_acquires_nothing() -> None:
    share = SharePartition()
    share.close(6)
    assert share.begin_fetch(1)[0] == CLOSED
    assert share.can_fetch() is None
    assert share.acquire(A, log(0, 5), 0) == []
    assert share.error == 6
