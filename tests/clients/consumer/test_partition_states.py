"""The state of one partition, field by field, and the numbers at which it changes; over real buffers."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from clients.consumer.fetched import batch, chunk

from kafkapy._speedups.clients.consumer.record_iterator import FetchBuffer
from kafkapy.clients.consumer.subscription import (
    EARLIEST,
    LATEST,
    NO_RESET,
    AsyncConsumerRebalanceListener,
    ConsumerRebalanceListener,
    FetchState,
    LeaderAndEpoch,
    LogTruncation,
    OffsetReset,
    PartitionState,
    SubscriptionState,
    SubscriptionType,
)
from kafkapy.errors import IllegalStateError
from kafkapy.types import OffsetAndMetadata, TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
OLD, NEW, UNKNOWN = LeaderAndEpoch(1, 5), LeaderAndEpoch(2, 6), LeaderAndEpoch(-1, -1)


def subscription_of(*partitions: TopicPartition, reset: OffsetReset = EARLIEST) -> SubscriptionState:
    state = SubscriptionState(reset, FetchBuffer(lambda: None, lambda: None).partition)
    if partitions:
        state.assign_by_user(partitions)
    return state


def partition_of(reset: OffsetReset = EARLIEST) -> PartitionState:
    return subscription_of(T0, reset=reset).state_of(T0)


def failed(state: PartitionState) -> PartitionState:
    """The same one, after a fetch with an error."""
    state.retry_at, state.fetch_when_drained, state.failed = 7.0, True, True
    return state


def shown(state: PartitionState) -> tuple[Any, ...]:
    return state.state, state.buffer.position, state.leader, state.reset


# --- one partition ------------------------------------------------------------------------------------------------


def test_a_new_partition_knows_nothing() -> None:
    state = partition_of()
    assert shown(state) == (FetchState.INITIALIZING, -1, UNKNOWN, None)
    assert LeaderAndEpoch() == UNKNOWN
    assert (state.high_watermark, state.last_stable_offset, state.log_start_offset, state.fetched_at_ms) == (None,) * 4
    assert (state.preferred_read_replica, state.retry_at, state.expire_replica_at, state.wanted) == (-1, 0, 0, None)
    assert not any((state.fetch_when_drained, state.failed, state.fetchable, state.has_valid_position))
    assert not any((state.paused, state.pending_revocation, state.pending_assigned))
    assert state.subscribed
    assert repr(state) == f"PartitionState({T0}, initializing, position=-1)"


def test_a_seek_forgets_what_was_before() -> None:
    state = failed(partition_of())
    state.request_reset(LATEST)
    assert shown(state) == (FetchState.AWAIT_RESET, -1, UNKNOWN, LATEST)
    assert (state.retry_at, state.fetch_when_drained, state.failed) == (0, False, False)
    failed(state).seek(5, 3, OLD)
    assert shown(state) == (FetchState.FETCHING, 5, OLD, None)
    assert state.buffer.position_epoch == 3
    assert (state.retry_at, state.fetch_when_drained, state.failed) == (0, False, False)
    assert state.has_valid_position
    state.seek(6)
    assert (shown(state), state.buffer.position_epoch) == ((FetchState.FETCHING, 6, UNKNOWN, None), -1)


@pytest.mark.parametrize("off", ["paused", "pending_revocation", "pending_assigned", "subscribed"])
def test_each_of_these_stops_the_records(off: str) -> None:
    state = partition_of()
    state.seek(5)
    stopping = off != "subscribed"
    for value in (stopping, not stopping):
        setattr(state, off, value)
        assert getattr(state, off) is value
        assert state.fetchable is state.buffer.readable is (value is not stopping)
        assert state.has_valid_position


@pytest.mark.parametrize(
    ("epoch", "leader_epoch", "validated"), [(0, 0, True), (5, 6, True), (-1, 0, False), (0, -1, False)]
)
def test_a_position_is_validated_where_both_know_epochs(epoch: int, leader_epoch: int, validated: bool) -> None:
    leader = LeaderAndEpoch(0, leader_epoch)
    awaits = FetchState.AWAIT_VALIDATION if validated else FetchState.FETCHING
    state = partition_of()
    state.seek_unvalidated(9, epoch, leader)
    assert shown(state) == (awaits, 9, leader, None)
    state.seek(9, epoch, OLD)
    state.prefer_replica(3, 1e9)
    failed(state)
    assert state.leader_changed(leader) is validated
    assert shown(state) == (awaits, 9, leader, None)
    assert (state.retry_at, state.preferred_read_replica) == (0, -1)
    # The same leader again changes nothing.
    state.prefer_replica(3, 1e9)
    failed(state)
    assert state.leader_changed(leader) is validated
    assert (state.retry_at, state.preferred_read_replica) == (7, 3)
    state.complete_validation()
    assert state.state is FetchState.FETCHING
    assert state.retry_at == (0 if validated else 7)


def test_a_leader_that_is_not_known_changes_nothing() -> None:
    state = partition_of()
    state.seek(9, 5, OLD)
    assert not state.leader_changed(LeaderAndEpoch(-1, 9))
    assert state.leader == OLD
    for reset in (False, True):
        state = partition_of()
        if reset:
            state.request_reset(EARLIEST)
        assert not state.leader_changed(NEW)
        assert state.leader == UNKNOWN


def test_a_replica_may_be_number_zero() -> None:
    state = partition_of()
    state.prefer_replica(0, 10.0)
    assert (state.read_replica(9.5), state.expire_replica_at) == (0, 10)
    assert (state.read_replica(10.0), state.preferred_read_replica) == (-1, -1)
    state.prefer_replica(0, 10.0)
    assert (state.clear_replica(), state.preferred_read_replica) == (0, -1)


@pytest.mark.parametrize(("end", "lag"), [(10, 10), (1, 1), (0, 0), (-1, 0), (None, None)])
def test_lag_begins_at_zero(end: int | None, lag: int | None) -> None:
    for committed in (True, False):
        state = partition_of()
        state.last_stable_offset, state.high_watermark = (end, None) if committed else (None, end)
        assert state.lag(committed) is None  # of no position
        state.seek(0)
        assert state.lag(committed) == lag
        assert state.lag(not committed) is None
        state.seek(20)
        assert state.lag(committed) == (None if end is None else 0)


# --- all of them --------------------------------------------------------------------------------------------------


def test_each_change_of_the_assignment_is_another_version() -> None:
    state = subscription_of()
    versions = [state.version]
    for change in (
        lambda: state.assign_by_user([T0]),
        lambda: state.assign_by_user([T0]),  # none
        state.unsubscribe,
        lambda: state.subscribe(["t"], None),
        lambda: state.assign_from_subscribed([T1]),
    ):
        change()
        versions.append(state.version)
    assert versions == [0, 1, 1, 2, 2, 3]


def test_a_subscription_can_be_looked_at_and_ends() -> None:
    listener: Any = object()
    pattern = re.compile("t.*")
    for kind, subscribe in (
        (SubscriptionType.TOPICS, lambda each: each.subscribe(["t"], listener)),
        (SubscriptionType.PATTERN, lambda each: each.subscribe_pattern(pattern, listener)),
        (SubscriptionType.SERVER_PATTERN, lambda each: each.subscribe_server_pattern("t.*", listener)),
    ):
        state = subscription_of()
        assert (state.type, state.auto_assigned, state.topics) == (SubscriptionType.NONE, False, frozenset())
        subscribe(state)
        assert (state.type, state.listener, state.auto_assigned) == (kind, listener, True)
        assert state.pattern is (pattern if kind is SubscriptionType.PATTERN else None)
        assert state.server_pattern == ("t.*" if kind is SubscriptionType.SERVER_PATTERN else None)
        assert state.subscribe_matching(["t", "u"]) is (kind is SubscriptionType.PATTERN)
        state.group_topics = frozenset(["g"])
        state.assign_from_subscribed([T0])
        state.unsubscribe()
        assert (state.type, state.listener, state.auto_assigned) == (SubscriptionType.NONE, None, False)
        assert (state.topics, state.group_topics, state.assigned) == (frozenset(), frozenset(), set())
        assert (state.pattern, state.server_pattern) == (None, None)
        with pytest.raises(IllegalStateError):
            state.assign_from_subscribed([T0])


def test_partitions_of_other_topics_give_no_records() -> None:
    state = subscription_of()
    state.subscribe(["t", "u"], None)
    state.assign_from_subscribed([T0, U0])
    assert [each.pending_assigned for each in state.all_states] == [True, True]
    state.callback_done([T0, U0, T1])
    for each in state.all_states:
        each.seek(0)
    assert state.subscribe(["t"], None)
    assert [(each.topic_partition, each.fetchable) for each in state.all_states] == [(T0, True), (U0, False)]
    assert state.matches_subscription([T0, T1])
    assert not state.matches_subscription([T0, U0])
    assert state.subscribe(["t", "u"], None)
    assert state.matches_subscription([T0, U0])
    assert all(each.fetchable for each in state.all_states)
    pattern = subscription_of()
    pattern.subscribe_pattern(re.compile("t"), None)
    assert pattern.matches_subscription([T0, T1])
    assert not pattern.matches_subscription([T0, U0])


def test_partitions_are_found_by_state_and_time() -> None:
    state = subscription_of(T0, T1, U0)
    state.state_of(T0).request_reset(EARLIEST)
    state.state_of(T1).request_reset(EARLIEST)
    state.state_of(T1).retry_at = 5.0
    found = {now: state.in_state(FetchState.AWAIT_RESET, now) for now in (None, 4.5, 5.0, 6.0)}
    both, first = [state.state_of(T0), state.state_of(T1)], [state.state_of(T0)]
    assert found == {None: both, 4.5: first, 5.0: both, 6.0: both}
    assert state.in_state(FetchState.INITIALIZING) == [state.state_of(U0)]
    assert (state.is_assigned(T0), state.is_assigned(TopicPartition("u", 1))) == (True, False)
    assert (state.get(T0), state.get(TopicPartition("u", 1))) == (first[0], None)
    assert state.states([TopicPartition("u", 1), T1, T0]) == both[::-1]


def test_only_positions_of_partitions_that_fetch_are_consumed() -> None:
    state = subscription_of(T0, T1, U0)
    state.state_of(T0).seek(0, 0)
    state.state_of(T1).seek_unvalidated(5, 5, NEW)
    state.state_of(U0).seek(-1)
    assert state.all_consumed() == {T0: OffsetAndMetadata(0, "", 0)}


def test_the_policy_is_for_partitions_without_a_position() -> None:
    state = subscription_of(T0, T1, reset=NO_RESET)
    for each in state.all_states:
        each.seek(5)
    state.reset_initializing([T0, T1, U0])  # none is without one
    assert [each.buffer.position for each in state.all_states] == [5, 5]
    state = subscription_of(T0, T1, reset=LATEST)
    state.state_of(T1).seek(5)
    state.reset_initializing([T0, T1])
    assert [each.state for each in state.all_states] == [FetchState.AWAIT_RESET, FetchState.FETCHING]
    assert state.state_of(T0).reset is LATEST
    state.complete_reset(T0, LATEST, 0, NEW)
    assert shown(state.state_of(T0)) == (FetchState.FETCHING, 0, NEW, None)
    assert state.state_of(T0).buffer.position_epoch == -1


def test_policies_have_timestamps() -> None:
    assert [each.defined for each in (EARLIEST, LATEST, NO_RESET)] == [True, True, False]
    assert NO_RESET.timestamp(5) == -1
    again = OffsetReset.of("by_duration:PT1S")
    assert (again.name, again.special, again.duration_ms) == ("by_duration:PT1S", None, 1000)
    assert [again.timestamp(now) for now in (999, 1000, 1001, 5000)] == [0, 0, 1, 4000]
    assert [OffsetReset.of(each.name) for each in (EARLIEST, LATEST, NO_RESET)] == [EARLIEST, LATEST, NO_RESET]


# --- validation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "end", "expected"),
    [
        (0, 11, (FetchState.FETCHING, 10)),
        (0, 10, (FetchState.FETCHING, 10)),
        (0, 9, (FetchState.FETCHING, 9)),
        (0, 0, (FetchState.FETCHING, 0)),
        (0, -1, (FetchState.AWAIT_RESET, -1)),
        (-1, 11, (FetchState.AWAIT_RESET, -1)),
        (-1, 0, (FetchState.AWAIT_RESET, -1)),
    ],
)
def test_a_validation_keeps_moves_or_resets_the_position(
    epoch: int, end: int, expected: tuple[FetchState, int]
) -> None:
    state = subscription_of(T0)
    partition = state.state_of(T0)
    partition.seek_unvalidated(10, 0, NEW)
    failed(partition)
    assert state.complete_validation(T0, (10, 0, NEW), epoch, end) is None
    assert (partition.state, partition.buffer.position) == expected
    assert partition.retry_at == 0
    if end == 9:
        assert (partition.leader, partition.buffer.position_epoch) == (NEW, 0)
    if expected[0] is FetchState.AWAIT_RESET:
        assert partition.reset is EARLIEST


def test_without_a_policy_the_end_of_an_empty_log_is_told() -> None:
    for epoch, end, divergent in ((0, 0, OffsetAndMetadata(0, "", 0)), (0, -1, None), (-1, 0, None)):
        state = subscription_of(T0, reset=NO_RESET)
        state.state_of(T0).seek_unvalidated(10, 0, NEW)
        assert state.complete_validation(T0, (10, 0, NEW), epoch, end) == LogTruncation(T0, 10, divergent)


@pytest.mark.parametrize(("position_epoch", "done"), [(-1, True), (0, False)])
def test_dropped_records_leave_the_position_to_validate(position_epoch: int, done: bool) -> None:
    state = subscription_of(T0)
    partition = state.state_of(T0)
    partition.seek(10, position_epoch, OLD)
    partition.buffer.add(chunk(batch(10, 5, 3), start=10))
    assert partition.leader_changed(NEW)
    failed(partition)
    assert state.complete_validation(T0, (15, 3, NEW), 3, 12) is None
    assert (partition.buffer.chunks, partition.buffer.end_offset, partition.retry_at) == (0, 10, 0)
    assert partition.state is (FetchState.FETCHING if done else FetchState.AWAIT_VALIDATION)


def test_an_answer_that_nobody_awaits_is_ignored() -> None:
    state = subscription_of(T0, reset=NO_RESET)
    state.state_of(T0).seek(10, 5, NEW)
    assert state.complete_validation(T0, (10, 5, NEW), 5, 7) is None
    assert state.state_of(T0).buffer.position == 10


# --- listeners ----------------------------------------------------------------------------------------------------


def test_lost_partitions_are_revoked_ones_for_a_listener_that_does_not_tell_them_apart() -> None:
    told: list[Any] = []

    class Plain(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
            told.append(revoked)

        def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None: ...

    class Coroutines(AsyncConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
            told.append(revoked)

        async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None: ...

    Plain().on_partitions_lost([T0])
    asyncio.run(Coroutines().on_partitions_lost([T1]))
    assert told == [[T0], [T1]]
