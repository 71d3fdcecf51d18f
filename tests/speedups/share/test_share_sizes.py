"""Many members, many batches, many single offsets: work is linear in the request, memory is bounded by the window.

A step that walked over the window for each offset would not end here.
"""

from __future__ import annotations

import random

from speedups.share.share_steps import ACCEPT, LOCK_MS, RELEASE, RENEW, acknowledge, fetch, kind, log, runs, write

from kafkapy._speedups.testing.share_partition import SharePartition

A, B = b"a", b"b"
WINDOW = 10_000
WIDEST = 1 << 17


def single_batches(count: int, first: int = 0) -> list[tuple[int, int, bool]]:
    return [(offset, offset, False) for offset in range(first, first + count)]


def test_a_window_of_single_records() -> None:
    share = SharePartition(max_in_flight=WINDOW)
    acquired = fetch(share, A, single_batches(2 * WINDOW), max_records=2 * WINDOW, batch_size=1)
    assert len(acquired) == WINDOW
    description = share.describe()
    assert description["batches"] == WINDOW
    assert description["memory"] < 400 * WINDOW
    order = list(range(WINDOW))
    random.Random(1).shuffle(order)
    for offset in order:
        acknowledge(share, A, offset, offset, ACCEPT)
    assert write(share) == [(0, WINDOW - 1, 2, 1)]
    assert share.describe()["start_offset"] == WINDOW


def test_single_records_run_out_and_come_again() -> None:
    share = SharePartition(max_in_flight=WINDOW, delivery_limit=10)
    batches = single_batches(WINDOW)
    for delivery in range(4):
        assert len(fetch(share, A, batches, max_records=WINDOW, batch_size=1, now_ms=delivery * LOCK_MS)) == WINDOW
        assert share.expire((delivery + 1) * LOCK_MS)
        assert share.can_fetch() == 0
    assert len(write(share)) == 1


def test_the_first_available_record_is_found_without_a_walk() -> None:
    share = SharePartition(max_in_flight=WINDOW, delivery_limit=10)
    batches = single_batches(WINDOW)
    fetch(share, A, batches, max_records=WINDOW, batch_size=1)
    acknowledge(share, A, WINDOW - 1, WINDOW - 1, RELEASE)
    write(share)
    for _ in range(200_000):
        assert share.can_fetch() == WINDOW - 1


def test_a_million_single_offsets_in_a_request() -> None:
    share = SharePartition(max_in_flight=10**6)
    records = fetch(share, A, log(0, 10**6), max_records=10**6)
    assert records == [(0, 10**6 - 1, 1)]
    singles = [(offset, offset, kind(ACCEPT if offset % 2 else RELEASE)) for offset in range(10**6)]
    error, ticket = share.acknowledge(A, singles)
    assert (error, ticket) == (0, 1)
    assert share.describe()["memory"] < 100 * 10**6
    assert len(write(share)) == 10**6
    assert len(fetch(share, B, log(0, 10**6), max_records=10**6)) == 10**6 // 2


def test_a_million_types_in_a_request() -> None:
    share = SharePartition(max_in_flight=WINDOW)
    width = WINDOW + WIDEST
    assert fetch(share, A, log(0, 10**6)) == [(0, 500 + WIDEST - 1, 1)]
    assert share.acknowledge(A, [(0, 10**6 - 1, kind(ACCEPT) * 10**6)]) == (42, 0)
    acknowledge(share, A, 0, 500 + WIDEST - 1, *([RENEW, ACCEPT] * (250 + WIDEST // 2)))
    assert share.describe()["memory"] < 64 * width


def test_many_cuts_of_one_batch() -> None:
    """Each acquisition cuts one record off."""
    share = SharePartition(max_in_flight=WINDOW)
    for offset in range(WINDOW):
        assert fetch(share, A, log(0, WINDOW), max_records=1, mode=1) == [(offset, offset, 1)]
    assert share.describe()["batches"] == WINDOW
    acknowledge(share, A, 0, WINDOW - 1, ACCEPT)
    assert write(share) == [(0, WINDOW - 1, 2, 1)]


def test_many_members() -> None:
    share = SharePartition(max_in_flight=WINDOW)
    members = [b"member-%d" % number for number in range(WINDOW)]
    for offset, member in enumerate(members):
        share.acquire(member, single_batches(1, offset), offset)
    assert share.describe()["members"] == WINDOW
    for member in members[: WINDOW // 2]:
        assert share.release_member(member) == 1
    for offset in range(WINDOW // 2, WINDOW):
        acknowledge(share, members[offset], offset, offset, ACCEPT)
    write(share)
    assert share.describe()["members"] == 0
    assert [run[:4] for run in runs(share)] == [(0, WINDOW // 2 - 1, 0, 1), (WINDOW // 2, WINDOW - 1, 2, 1)]


def test_members_that_come_and_go_take_no_memory() -> None:
    share = SharePartition()
    for number in range(20_000):
        member = b"%d" % number
        assert share.acquire(member, single_batches(1, number), number) == [(number, number, 1)]
        assert share.acquire(b"none" + member, single_batches(1, number), number) == []
        acknowledge(share, member, number, number, ACCEPT)
        write(share)
    assert share.describe()["memory"] < 3000
