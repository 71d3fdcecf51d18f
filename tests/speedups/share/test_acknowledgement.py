"""Acknowledgements, renewals, sessions that end, time-outs, writes that end or fail, the log's start, dead letters."""

from __future__ import annotations

import pytest
from speedups.share.share_steps import (
    ACCEPT,
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    GAP,
    INVALID_RECORD_STATE,
    INVALID_REQUEST,
    LOCK_MS,
    NONE,
    REJECT,
    RELEASE,
    RENEW,
    acknowledge,
    fetch,
    kind,
    log,
    runs,
    write,
)

from kafkapy._speedups.testing.share_partition import SharePartition

A, B = b"a", b"b"
LARGEST = 2**63 - 1


def held(last: int = 9, **how: int) -> SharePartition:
    """A share partition whose records up to the last one are acquired by A."""
    share = SharePartition(**how)  # type: ignore[arg-type]
    fetch(share, A, log(0, last + 1))
    return share


@pytest.mark.parametrize(
    ("acknowledge_type", "state"),
    [(GAP, ARCHIVED), (ACCEPT, ACKNOWLEDGED), (RELEASE, AVAILABLE), (REJECT, ARCHIVED)],
)
def test_a_transition_is_pending_until_its_write_has_ended(acknowledge_type: int, state: int) -> None:
    share = held()
    fetch(share, B, log(10, 15))
    ticket = acknowledge(share, A, 5, 9, acknowledge_type)
    assert runs(share)[:2] == [(0, 4, ACQUIRED, 1, A, None), (5, 9, ACQUIRED, 1, A, state)]
    final = state in (ACKNOWLEDGED, ARCHIVED)
    taken = share.take_write()
    assert taken is not None
    assert taken.number == ticket == 1
    assert (taken.start_offset, taken.delivery_complete) == (0, 5 if final else 0)
    assert taken.batches == [(5, 9, state, 1)]
    assert share.take_write() is None
    assert share.finish_write(taken, True) is (state == AVAILABLE)
    assert runs(share)[:2] == [(0, 4, ACQUIRED, 1, A, None), (5, 9, state, 1, None, None)]
    assert share.describe()["delivery_complete"] == (5 if final else 0)


def test_the_start_offset_moves_over_final_records() -> None:
    share = held(9)
    fetch(share, B, log(10, 15))
    acknowledge(share, A, 2, 4, ACCEPT)
    write(share)
    assert share.describe()["start_offset"] == 0
    acknowledge(share, A, 0, 1, REJECT)
    assert share.describe()["start_offset"] == 0, "the write has not ended"
    taken = share.take_write()
    assert taken is not None
    assert share.finish_write(taken, True), "there is room"
    assert share.describe()["start_offset"] == 5
    acknowledge(share, B, 10, 14, ACCEPT)
    write(share)
    assert share.describe()["start_offset"] == 5
    acknowledge(share, A, 5, 9, GAP)
    write(share)
    description = share.describe()
    assert (description["start_offset"], description["next_offset"], description["batches"]) == (15, 15, 0)
    assert (description["delivery_complete"], description["acquired"], description["members"]) == (0, 0, 0)
    assert share.next_deadline() is None


def test_one_type_for_each_offset() -> None:
    share = held(5)
    acknowledge(share, A, 1, 5, RELEASE, ACCEPT, REJECT, GAP, RELEASE)
    assert write(share) == [
        (1, 1, AVAILABLE, 1),
        (2, 2, ACKNOWLEDGED, 1),
        (3, 4, ARCHIVED, 1),
        (5, 5, AVAILABLE, 1),
    ]
    assert runs(share)[0] == (0, 0, ACQUIRED, 1, A, None)
    assert share.can_fetch() == 1


def test_alike_types_keep_a_batch_in_one_piece() -> None:
    share = held()
    acknowledge(share, A, 0, 9, *[RELEASE] * 10)
    write(share)
    assert share.records() == [(0, 9, AVAILABLE, 1, None, None)]


def test_ranges_of_several_batches() -> None:
    share = SharePartition()
    fetch(share, A, log(0, 5, 10, 15), batch_size=5)
    error, ticket = share.acknowledge(A, [(2, 6, kind(ACCEPT)), (7, 7, kind(RELEASE)), (8, 14, kind(REJECT))])
    assert (error, ticket) == (NONE, 1)
    assert write(share) == [(2, 6, ACKNOWLEDGED, 1), (7, 7, AVAILABLE, 1), (8, 14, ARCHIVED, 1)]


def test_acknowledgements_of_many_requests_travel_in_one_write() -> None:
    share = held(3)
    fetch(share, B, log(4, 8))
    assert acknowledge(share, B, 4, 7, ACCEPT) == 1
    assert acknowledge(share, A, 0, 1, ACCEPT) == 1
    first = share.take_write()
    assert first is not None
    assert first.batches == [(0, 1, ACKNOWLEDGED, 1), (4, 7, ACKNOWLEDGED, 1)]
    assert acknowledge(share, A, 2, 3, ACCEPT) == 2
    second = share.take_write()
    assert second is not None
    assert (second.number, second.batches) == (2, [(2, 3, ACKNOWLEDGED, 1)])
    share.finish_write(first, True)
    assert share.describe()["start_offset"] == 2
    share.finish_write(second, True)
    assert share.describe()["start_offset"] == 8


def test_a_failed_write_takes_its_transitions_back() -> None:
    share = held(9)
    acknowledge(share, A, 0, 9, *([ACCEPT] * 5 + [RELEASE] * 5))
    assert share.describe()["delivery_complete"] == 5
    write(share, stored=False)
    assert runs(share) == [(0, 9, ACQUIRED, 1, A, None)]
    assert share.describe()["delivery_complete"] == 0
    assert share.next_deadline() == LOCK_MS
    acknowledge(share, A, 0, 9, ACCEPT)
    write(share)
    assert share.describe()["start_offset"] == 10


@pytest.mark.parametrize(("limit", "state"), [(5, AVAILABLE), (1, ARCHIVED)])
def test_a_lock_that_runs_out_before_a_write_fails(limit: int, state: int) -> None:
    share = held(9, delivery_limit=limit)
    acknowledge(share, A, 0, 9, ACCEPT)
    assert share.next_deadline() is None, "pending records have no time-out"
    taken = share.take_write()
    assert taken is not None
    assert not share.expire(LOCK_MS)
    assert share.finish_write(taken, False, LOCK_MS)
    assert write(share) == [(0, 9, state, 1)]
    assert runs(share) == ([] if state == ARCHIVED else [(0, 9, AVAILABLE, 1, None, None)])


def test_released_records_at_their_limit_are_archived() -> None:
    share = held(3, delivery_limit=1)
    acknowledge(share, A, 0, 3, RELEASE)
    assert write(share) == [(0, 3, ARCHIVED, 1)]
    assert share.describe()["start_offset"] == 4


@pytest.mark.parametrize(
    ("member", "first", "last", "types", "error"),
    [
        (B, 0, 9, [ACCEPT], INVALID_RECORD_STATE),  # the member of the next batch
        (b"c", 0, 9, [ACCEPT], INVALID_RECORD_STATE),  # a member that owns nothing
        (A, 0, 10, [ACCEPT], INVALID_RECORD_STATE),  # one record too many
        (A, 0, 15, [ACCEPT], INVALID_REQUEST),  # behind the window
        (A, 15, 15, [ACCEPT], INVALID_REQUEST),
        (A, 0, LARGEST, [ACCEPT], INVALID_REQUEST),
        (A, -5, -1, [ACCEPT], NONE),  # below the start offset
        (A, -(2**63), LARGEST, [ACCEPT], INVALID_REQUEST),
        (A, 5, 4, [ACCEPT], INVALID_REQUEST),
        (A, 0, 9, [], INVALID_REQUEST),
        (A, 0, 9, [ACCEPT] * 9, INVALID_REQUEST),
        (A, 0, 9, [ACCEPT] * 11, INVALID_REQUEST),
        (A, -(2**63), LARGEST, [ACCEPT] * 2, INVALID_REQUEST),
        (A, 0, 9, [5], INVALID_REQUEST),
        (A, 0, 9, [255], INVALID_REQUEST),
        (A, 0, 1, [ACCEPT, 5], INVALID_REQUEST),
    ],
)
def test_refused_acknowledgements(member: bytes, first: int, last: int, types: list[int], error: int) -> None:
    share = held(9)
    fetch(share, B, log(10, 15))
    before = share.records(), share.describe(), share.next_deadline()
    assert share.acknowledge(member, [(first, last, bytes(types))], 77) == (error, 0)
    assert (share.records(), share.describe(), share.next_deadline()) == before
    assert share.take_write() is None


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ((12, 13, kind(ACCEPT)), INVALID_RECORD_STATE),
        ((20, 21, kind(ACCEPT)), INVALID_REQUEST),
        ((3, 3, kind(ACCEPT)), INVALID_RECORD_STATE),  # the range before it has its first offset
        ((2, 3, kind(ACCEPT)), INVALID_REQUEST),  # overlaps the range before it
        ((9, 9, b"\x09"), INVALID_REQUEST),
    ],
)
def test_a_request_is_acknowledged_whole_or_not_at_all(bad: tuple[int, int, bytes], error: int) -> None:
    share = held(9)
    fetch(share, B, log(10, 15))
    before = share.records(), share.next_deadline()
    batches = [(0, 1, kind(RENEW)), (2, 3, bytes([ACCEPT, RELEASE])), bad]
    assert share.acknowledge(A, batches, 1000) == (error, 0)
    assert (share.records(), share.next_deadline()) == before
    assert share.take_write() is None


def test_nothing_is_acknowledged_twice() -> None:
    share = held()
    acknowledge(share, A, 0, 4, ACCEPT)
    assert share.acknowledge(A, [(0, 4, kind(ACCEPT))]) == (INVALID_RECORD_STATE, 0), "while it is pending"
    assert share.acknowledge(A, [(4, 5, kind(ACCEPT))]) == (INVALID_RECORD_STATE, 0)
    write(share)
    assert share.acknowledge(A, [(0, 4, kind(ACCEPT))]) == (NONE, 0), "below the start offset"
    acknowledge(share, A, 6, 9, REJECT)
    write(share)
    assert share.acknowledge(A, [(6, 9, kind(ACCEPT))]) == (INVALID_RECORD_STATE, 0)
    assert share.acknowledge(A, [(0, 5, kind(ACCEPT))]) == (NONE, 2 + 1), "what is below counts not"


def test_nothing_is_acknowledged_after_the_lock_ran_out() -> None:
    share = held()
    assert share.expire(LOCK_MS)
    assert share.acknowledge(A, [(0, 9, kind(ACCEPT))]) == (INVALID_RECORD_STATE, 0)
    fetch(share, B, log(0, 10))
    assert share.acknowledge(A, [(0, 9, kind(ACCEPT))]) == (INVALID_RECORD_STATE, 0)
    acknowledge(share, B, 0, 9, ACCEPT)


def test_an_empty_window_has_nothing_to_acknowledge() -> None:
    share = SharePartition(5)
    assert share.acknowledge(A, [(5, 9, kind(ACCEPT))]) == (INVALID_RECORD_STATE, 0)
    assert share.acknowledge(A, [(0, 4, kind(ACCEPT))]) == (NONE, 0)
    assert share.acknowledge(A, []) == (NONE, 0)


def test_offsets_that_do_not_exist_are_acknowledged_with_their_neighbours() -> None:
    share = SharePartition()
    share.acquire(A, log(0, 5), 0)
    share.acquire(A, log(10, 15), 5)
    assert share.acknowledge(A, [(6, 8, kind(ACCEPT))]) == (INVALID_REQUEST, 0)
    assert share.acknowledge(A, [(3, 7, kind(ACCEPT))]) == (INVALID_REQUEST, 0)
    acknowledge(share, A, 3, 11, ACCEPT)
    assert write(share) == [(3, 4, ACKNOWLEDGED, 1), (10, 11, ACKNOWLEDGED, 1)]


# ---- time ----


def test_a_lock_runs_out() -> None:
    share = held()
    assert not share.expire(LOCK_MS - 1)
    assert share.expire(LOCK_MS)
    assert write(share) == [(0, 9, AVAILABLE, 1)]
    assert runs(share) == [(0, 9, AVAILABLE, 1, None, None)]
    assert share.next_deadline() is None
    assert share.describe()["members"] == 0


def test_the_last_delivery_that_runs_out_is_archived() -> None:
    share = SharePartition(delivery_limit=2)
    for delivery in range(2):
        fetch(share, A, log(0, 4), now_ms=delivery * LOCK_MS)
        assert share.expire((delivery + 1) * LOCK_MS)
    assert write(share) == [(0, 3, ARCHIVED, 2)], "of two changes in a write, the later one"
    assert share.describe()["start_offset"] == 4


def test_time_outs_hold_although_their_write_fails() -> None:
    share = held()
    share.expire(LOCK_MS)
    taken = share.take_write()
    assert taken is not None
    fetch(share, B, log(0, 10))
    acknowledge(share, B, 0, 9, ACCEPT)
    share.finish_write(taken, False)
    assert runs(share) == [(0, 9, ACQUIRED, 2, B, ACKNOWLEDGED)], "the other write is still under way"


def test_a_time_out_that_was_written_ends_no_later_transition() -> None:
    share = held()
    share.expire(LOCK_MS)
    taken = share.take_write()
    assert taken is not None
    fetch(share, B, log(0, 10))
    acknowledge(share, B, 0, 9, ACCEPT)
    share.finish_write(taken, True)
    assert runs(share) == [(0, 9, ACQUIRED, 2, B, ACKNOWLEDGED)]


def test_locks_run_out_one_by_one() -> None:
    share = SharePartition()
    for number in range(4):
        share.acquire(A, log(number, number + 1), number, now_ms=number)
    assert share.next_deadline() == LOCK_MS
    assert share.expire(LOCK_MS + 1)
    assert [state for _, _, state, *_ in share.records()] == [AVAILABLE, AVAILABLE, ACQUIRED, ACQUIRED]
    assert share.next_deadline() == LOCK_MS + 2


def test_locks_of_one_batch_run_out_one_by_one() -> None:
    share = held(3)
    acknowledge(share, A, 0, 0, RELEASE)
    write(share)
    share.acquire(B, log(0, 4), 0, now_ms=500)
    acknowledge(share, A, 2, 2, RENEW, now_ms=1000)
    assert share.expire(LOCK_MS)
    assert runs(share) == [
        (0, 0, ACQUIRED, 2, B, None),
        (1, 1, AVAILABLE, 1, None, None),
        (2, 2, ACQUIRED, 1, A, None),
        (3, 3, AVAILABLE, 1, None, None),
    ]
    assert share.next_deadline() == LOCK_MS + 500
    assert share.expire(LOCK_MS + 500)
    assert share.next_deadline() == LOCK_MS + 1000


def test_a_renewal_holds_at_once() -> None:
    share = held()
    assert acknowledge(share, A, 0, 9, RENEW, now_ms=1000) == 0
    assert share.next_deadline() == LOCK_MS + 1000
    assert not share.expire(LOCK_MS)
    assert acknowledge(share, A, 0, 9, *[RENEW] * 9, ACCEPT, now_ms=2000) == 1
    assert write(share) == [(9, 9, ACKNOWLEDGED, 1)]
    share.expire(LOCK_MS + 1000)
    assert share.next_deadline() == LOCK_MS + 2000


def test_another_time_out_holds_for_later_locks() -> None:
    share = held()
    share.configure(lock_ms=1000, max_in_flight=2000, delivery_limit=5)
    share.acquire(B, log(10, 12), 10)
    assert share.next_deadline() == 1000
    share.expire(1000)
    assert share.next_deadline() == LOCK_MS


# ---- sessions ----


def test_a_session_that_ends_gives_its_records_back() -> None:
    share = held(4)
    fetch(share, B, log(5, 10))
    acknowledge(share, A, 0, 0, ACCEPT)
    acknowledge(share, B, 9, 9, RELEASE)
    write(share)
    assert share.release_member(A) == 2
    assert runs(share)[0] == (1, 4, ACQUIRED, 1, A, AVAILABLE)
    assert write(share) == [(1, 4, AVAILABLE, 1)]
    assert runs(share)[:2] == [(1, 4, AVAILABLE, 1, None, None), (5, 8, ACQUIRED, 1, B, None)]
    assert fetch(share, B, log(0, 5)) == [(1, 4, 2)]
    assert share.describe()["members"] == 1


@pytest.mark.parametrize(("dead_letters", "state"), [(False, ARCHIVED), (True, ARCHIVING)])
def test_a_session_that_ends_at_the_delivery_limit_puts_its_records_aside(dead_letters: bool, state: int) -> None:
    share = SharePartition(delivery_limit=1, dead_letters=dead_letters)
    fetch(share, A, log(0, 5))
    assert share.release_member(A) == 1
    assert write(share) == [(0, 4, state, 1)]
    assert fetch(share, B, log(0, 5)) == []


def test_a_session_that_ends_loses_nothing_when_the_write_fails() -> None:
    share = held(4)
    share.release_member(A)
    write(share, stored=False)
    assert runs(share) == [(0, 4, ACQUIRED, 1, A, None)]
    assert share.expire(LOCK_MS)
    assert runs(share) == [(0, 4, AVAILABLE, 1, None, None)]


def test_a_session_without_records_gives_nothing_back() -> None:
    share = held(4)
    assert share.release_member(B) == 0
    acknowledge(share, A, 0, 4, ACCEPT)
    assert share.release_member(A) == 0, "they are pending"
    write(share)
    assert share.release_member(A) == 0


# ---- the log's start ----


def test_records_below_the_logs_start_are_archived() -> None:
    share = SharePartition()
    fetch(share, A, log(0, 5, 10, 15), batch_size=5)
    acknowledge(share, A, 0, 9, *([RELEASE] * 5 + [RELEASE, ACCEPT, RENEW, RENEW, REJECT]))
    write(share)
    assert share.log_start(7)
    assert runs(share) == [
        (7, 8, ACQUIRED, 1, A, None),
        (9, 9, ARCHIVED, 1, None, None),
        (10, 14, ACQUIRED, 1, A, None),
    ]
    description = share.describe()
    assert (description["start_offset"], description["delivery_complete"], description["acquired"]) == (7, 1, 7)
    assert share.can_fetch() == 15
    acknowledge(share, A, 0, 8, ACCEPT)
    assert write(share) == [(7, 8, ACKNOWLEDGED, 1)], "what is below counts not"
    assert share.describe()["start_offset"] == 10


def test_the_logs_start_within_a_batch() -> None:
    share = held(9)
    assert share.log_start(4)
    assert share.records() == [(4, 9, ACQUIRED, 1, A, None)]
    assert not share.log_start(4)
    assert not share.log_start(0)
    assert share.expire(LOCK_MS)
    assert share.can_fetch() == 4


def test_the_logs_start_behind_the_window() -> None:
    share = held(9)
    acknowledge(share, A, 0, 4, ACCEPT)
    assert share.log_start(20)
    description = share.describe()
    assert (description["start_offset"], description["next_offset"], description["records"]) == (20, 20, 0)
    assert (description["delivery_complete"], description["acquired"], description["pending"]) == (0, 0, 0)
    assert (description["members"], share.next_deadline(), share.can_fetch()) == (0, None, 20)
    assert write(share) == [(0, 4, ACKNOWLEDGED, 1)]


def test_the_logs_start_between_batches() -> None:
    share = SharePartition()
    share.acquire(A, log(0, 5), 0)
    share.acquire(A, log(10, 15), 5)
    assert share.log_start(7)
    assert share.describe()["start_offset"] == 10


def test_a_pending_transition_below_the_logs_start_is_forgotten() -> None:
    share = held(9)
    fetch(share, B, log(10, 15))
    acknowledge(share, A, 0, 9, RELEASE)
    taken = share.take_write()
    assert taken is not None
    share.log_start(5)
    assert share.describe()["pending"] == 5
    share.finish_write(taken, False)
    assert runs(share) == [(5, 9, ACQUIRED, 1, A, None), (10, 14, ACQUIRED, 1, B, None)]


# ---- dead letters ----


def test_rejected_and_exhausted_records_wait_for_their_dead_letters() -> None:
    share = SharePartition(delivery_limit=1, dead_letters=True)
    fetch(share, A, log(0, 5, 10, 15), batch_size=5)
    acknowledge(share, A, 0, 4, REJECT, GAP, RELEASE, ACCEPT, RENEW)
    acknowledge(share, A, 5, 9, REJECT)
    assert write(share) == [
        (0, 0, ARCHIVING, 1),
        (1, 1, ARCHIVED, 1),
        (2, 2, ARCHIVING, 1),
        (3, 3, ACKNOWLEDGED, 1),
        (5, 9, ARCHIVING, 1),
    ]
    assert share.expire(LOCK_MS)
    assert write(share) == [(4, 4, ARCHIVING, 1), (10, 14, ARCHIVING, 1)]
    assert share.archiving() == [(0, 0, 1), (2, 2, 1), (4, 14, 1)]
    description = share.describe()
    assert (description["start_offset"], description["delivery_complete"]) == (0, 2)
    assert share.can_fetch() == 15
    assert share.dead_lettered(0, 6)
    assert write(share) == [(0, 0, ARCHIVED, 1), (2, 2, ARCHIVED, 1), (4, 6, ARCHIVED, 1)]
    assert share.describe()["start_offset"] == 7
    assert not share.dead_lettered(0, 6)
    assert not share.dead_lettered(9, 9)
    assert share.archiving() == [(7, 8, 1), (10, 14, 1)]
    assert share.dead_lettered(0, LARGEST)
    assert share.describe()["start_offset"] == 15


def test_a_new_leader_knows_what_waits_for_its_dead_letter() -> None:
    share = SharePartition(0, [(0, 4, ARCHIVING, 5), (5, 9, ACKNOWLEDGED, 1)])
    assert share.archiving() == [(0, 4, 5)]
    assert share.can_fetch() == 10


# ---- the end ----


def test_a_closed_partition_says_why() -> None:
    share = held()
    acknowledge(share, A, 0, 4, ACCEPT)
    taken = share.take_write()
    assert taken is not None
    acknowledge(share, A, 5, 5, ACCEPT)
    share.close(6)
    assert share.acknowledge(A, [(6, 6, kind(ACCEPT))]) == (6, 0)
    assert share.release_member(A) == 0
    assert not share.expire(LOCK_MS)
    assert not share.log_start(5)
    assert not share.dead_lettered(0, 9)
    assert share.archiving() == []
    assert share.take_write() is None
    assert share.next_deadline() is None
    share.finish_write(taken, False)
