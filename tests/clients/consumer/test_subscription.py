"""What is read, and how each partition comes to a position: Kafka's SubscriptionState, over real buffers."""

from __future__ import annotations

import re

import pytest
from clients.consumer.fetched import batch, chunk

from kafkapy._speedups.clients.consumer.record_iterator import FetchBuffer
from kafkapy.clients.consumer.subscription import (
    EARLIEST,
    LATEST,
    NO_RESET,
    FetchState,
    LeaderAndEpoch,
    NotAssignedError,
    OffsetReset,
    PartitionState,
    SubscriptionState,
    SubscriptionType,
)
from kafkapy.errors import IllegalStateError, NoOffsetForPartitionError
from kafkapy.types import OffsetAndMetadata, TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
OLD, NEW = LeaderAndEpoch(1, 5), LeaderAndEpoch(2, 6)


def subscription_of(reset: OffsetReset = EARLIEST) -> SubscriptionState:
    return SubscriptionState(reset, FetchBuffer(lambda: None, lambda: None).partition)


def assigned(*partitions: TopicPartition, reset: OffsetReset = EARLIEST) -> SubscriptionState:
    state = subscription_of(reset)
    state.assign_by_user(partitions or [T0])
    return state


def buffered(state: PartitionState, count: int, epoch: int) -> None:
    at = state.buffer.end_offset
    state.buffer.add(chunk(batch(at, count, epoch), start=at))


class TestWhatIsRead:
    def test_topics_pattern_and_partitions_exclude_each_other(self) -> None:
        for first in range(3):
            for second in range(3):
                state = subscription_of()
                ways = [
                    lambda s: s.subscribe(["t"], None),
                    lambda s: s.subscribe_pattern(re.compile("t"), None),
                    lambda s: s.assign_by_user([T0]),
                ]
                ways[first](state)
                if first == second:
                    ways[second](state)
                else:
                    with pytest.raises(IllegalStateError, match="mutually exclusive"):
                        ways[second](state)
                state.unsubscribe()
                assert state.type is SubscriptionType.NONE
                ways[second](state)

    def test_a_subscription_replaces_the_one_before(self) -> None:
        state = subscription_of()
        assert state.subscribe(["a", "b"], None)
        assert not state.subscribe(["b", "a"], None)
        assert state.subscribe(["b", "c"], None)
        assert state.subscription == {"b", "c"}

    def test_a_pattern_chooses_among_the_topics_there_are(self) -> None:
        state = subscription_of()
        state.subscribe_pattern(re.compile("orders"), None)
        assert state.subscribe_matching(["orders", "orders.eu", "old-orders", "x"])
        assert state.subscription == {"orders", "orders.eu"}
        assert not state.subscribe_matching(["orders.eu", "orders"])
        assert state.subscribe_matching(["orders"])

    def test_assigned_by_hand_is_no_subscription(self) -> None:
        state = assigned(T0, U0)
        assert state.subscription == set()
        assert state.metadata_topics == {"t", "u"}
        with pytest.raises(IllegalStateError):
            state.assign_from_subscribed([T0])

    def test_metadata_is_needed_of_the_groups_topics_too(self) -> None:
        state = subscription_of()
        state.subscribe(["a"], None)
        state.group_topics = frozenset(["b"])
        assert state.metadata_topics == {"a", "b"}

    def test_partitions_that_stay_keep_their_state(self) -> None:
        state = assigned(T0, T1)
        state.state_of(T0).seek(7)
        state.state_of(T1).seek(8)
        gone = state.state_of(T1)
        assert state.assign_by_user([T0, U0])
        assert state.state_of(T0).buffer.position == 7
        assert state.state_of(U0).state is FetchState.INITIALIZING
        assert gone.buffer.position == -1
        with pytest.raises(NotAssignedError):
            state.state_of(T1)
        assert not state.assign_by_user([U0, T0])

    def test_what_the_group_gives_waits_for_the_listener(self) -> None:
        state = subscription_of()
        state.subscribe(["t"], None)
        assert state.assign_from_subscribed([T0]) == {T0}
        state.callback_done([T0])
        state.state_of(T0).seek(0)
        assert state.assign_from_subscribed([T0, T1]) == {T1}
        state.state_of(T1).seek(0)
        assert [each.fetchable for each in state.all_states] == [True, False]
        state.callback_done([T1])
        assert [each.fetchable for each in state.all_states] == [True, True]

    def test_what_is_about_to_be_revoked_gives_nothing(self) -> None:
        state = assigned(T0)
        partition = state.state_of(T0)
        partition.seek(0)
        assert partition.buffer.readable
        state.mark_pending_revocation([T0, U0])
        assert not partition.fetchable
        assert not partition.buffer.readable

    def test_an_unassigned_partition_is_a_value_error_too(self) -> None:
        with pytest.raises(ValueError, match="u-0"):
            assigned(T0).state_of(U0)

    def test_who_has_had_its_turn_comes_last(self) -> None:
        state = assigned(T0, T1, U0)
        state.move_to_end(T0)
        state.move_to_end(TopicPartition("gone", 0))
        assert [each.topic_partition for each in state.all_states] == [T1, U0, T0]


class TestPositions:
    def test_only_a_partition_that_fetches_is_readable(self) -> None:
        partition = assigned(T0).state_of(T0)
        assert not partition.buffer.readable
        partition.seek(3)
        assert partition.buffer.readable
        partition.paused = True
        assert not partition.buffer.readable
        partition.paused = False
        partition.request_reset(LATEST)
        assert not partition.buffer.readable
        assert partition.buffer.position == -1

    def test_consumed_positions_carry_the_epoch_of_the_last_record(self) -> None:
        state = assigned(T0, T1)
        partition = state.state_of(T0)
        partition.seek(10)
        assert state.all_consumed() == {T0: OffsetAndMetadata(10, "", -1)}
        buffered(partition, 2, 9)
        partition.buffer.readable = True
        assert state.all_consumed()[T0].offset == 10
        assert not state.has_all_positions

    def test_lag_is_up_to_what_may_be_read(self) -> None:
        partition = assigned(T0).state_of(T0)
        assert partition.lag(False) is None
        partition.seek(10)
        assert partition.lag(False) is None
        partition.high_watermark, partition.last_stable_offset = 30, 20
        assert (partition.lag(False), partition.lag(True)) == (20, 10)

    def test_a_preferred_replica_is_forgotten_in_time(self) -> None:
        partition = assigned(T0).state_of(T0)
        assert partition.read_replica(0.0) == -1
        partition.prefer_replica(3, 10.0)
        partition.prefer_replica(3, 20.0)  # the same one again does not prolong it
        assert partition.read_replica(9.9) == 3
        assert partition.read_replica(10.0) == -1
        partition.prefer_replica(4, 30.0)
        assert partition.clear_replica() == 4
        assert partition.clear_replica() == -1


class TestResets:
    def test_without_a_policy_a_missing_offset_is_an_error(self) -> None:
        state = assigned(T0, T1, reset=NO_RESET)
        state.state_of(T1).seek(0)
        with pytest.raises(NoOffsetForPartitionError, match="t-0"):
            state.reset_initializing([T0, T1])
        assert state.state_of(T0).state is FetchState.INITIALIZING

    def test_a_reset_takes_the_offset_it_asked_for(self) -> None:
        state = assigned(T0)
        state.reset_initializing([T0])
        partition = state.state_of(T0)
        assert partition.state is FetchState.AWAIT_RESET
        state.complete_reset(T0, EARLIEST, 42, OLD)
        assert partition.state is FetchState.FETCHING
        assert (partition.buffer.position, partition.leader) == (42, OLD)

    def test_an_answer_to_another_question_is_ignored(self) -> None:
        state = assigned(T0)
        partition = state.state_of(T0)
        state.complete_reset(T0, EARLIEST, 1, OLD)  # was not asked
        assert partition.state is FetchState.INITIALIZING
        partition.request_reset(LATEST)
        state.complete_reset(T0, EARLIEST, 1, OLD)  # meanwhile seek_to_end()
        assert partition.state is FetchState.AWAIT_RESET
        partition.seek(7)
        state.complete_reset(T0, LATEST, 1, OLD)  # meanwhile seek()
        assert partition.buffer.position == 7
        state.complete_reset(U0, LATEST, 1, OLD)  # not assigned (any more)

    def test_by_duration_asks_for_that_long_ago(self) -> None:
        reset = OffsetReset.of("by_duration:PT1M")
        assert reset.defined
        assert reset.timestamp(100_000) == 40_000
        assert reset.timestamp(10) == 0
        assert (EARLIEST.timestamp(5), LATEST.timestamp(5)) == (-2, -1)
        assert not OffsetReset.of("none").defined


class TestValidation:
    def position(self, reset: OffsetReset = EARLIEST) -> tuple[SubscriptionState, PartitionState]:
        state = assigned(T0, reset=reset)
        partition = state.state_of(T0)
        partition.seek_unvalidated(10, 5, OLD)
        state.complete_validation(T0, (10, 5, OLD), 5, 100)
        return state, partition

    def test_a_committed_offset_with_an_epoch_is_validated(self) -> None:
        state = assigned(T0)
        partition = state.state_of(T0)
        partition.seek_unvalidated(10, 4, OLD)
        assert partition.state is FetchState.AWAIT_VALIDATION
        assert not partition.buffer.readable
        assert state.complete_validation(T0, (10, 4, OLD), 4, 10) is None
        assert partition.state is FetchState.FETCHING

    def test_without_epochs_there_is_nothing_to_validate(self) -> None:
        partition = assigned(T0).state_of(T0)
        partition.seek_unvalidated(10, -1, OLD)
        assert partition.state is FetchState.FETCHING
        partition.seek_unvalidated(10, 4, LeaderAndEpoch(1, -1))
        assert partition.state is FetchState.FETCHING

    def test_a_new_leader_has_the_position_validated(self) -> None:
        _, partition = self.position()
        assert not partition.leader_changed(OLD)
        assert not partition.leader_changed(LeaderAndEpoch())  # an election goes on: who leads comes later
        partition.prefer_replica(9, 1e9)
        assert partition.leader_changed(NEW)
        assert partition.state is FetchState.AWAIT_VALIDATION
        assert partition.preferred_read_replica == -1

    def test_a_reset_under_way_needs_no_validation(self) -> None:
        _, partition = self.position()
        partition.request_reset(LATEST)
        assert not partition.leader_changed(NEW)
        assert partition.state is FetchState.AWAIT_RESET

    def test_a_truncated_log_moves_the_position_back(self) -> None:
        state, partition = self.position()
        partition.leader_changed(NEW)
        assert state.complete_validation(T0, (10, 5, NEW), 4, 7) is None
        assert (partition.state, partition.buffer.position, partition.buffer.position_epoch) == (
            FetchState.FETCHING,
            7,
            4,
        )

    def test_an_unknown_epoch_resets_by_the_policy(self) -> None:
        state, partition = self.position()
        partition.leader_changed(NEW)
        assert state.complete_validation(T0, (10, 5, NEW), -1, -1) is None
        assert (partition.state, partition.reset) == (FetchState.AWAIT_RESET, EARLIEST)

    @pytest.mark.parametrize(
        ("epoch", "end", "divergent"), [(4, 7, OffsetAndMetadata(7, "", 4)), (-1, -1, None), (3, -1, None)]
    )
    def test_without_a_policy_truncation_is_told(
        self, epoch: int, end: int, divergent: OffsetAndMetadata | None
    ) -> None:
        state, partition = self.position(NO_RESET)
        partition.leader_changed(NEW)
        truncation = state.complete_validation(T0, (10, 5, NEW), epoch, end)
        assert truncation is not None
        assert (truncation.topic_partition, truncation.offset, truncation.divergent) == (T0, 10, divergent)
        assert partition.state is FetchState.AWAIT_VALIDATION

    def test_an_answer_about_another_position_is_ignored(self) -> None:
        state, partition = self.position()
        partition.leader_changed(NEW)
        for asked in ((9, 5, NEW), (10, 4, NEW), (10, 5, OLD)):
            assert state.complete_validation(T0, asked, 4, 7) is None
            assert partition.state is FetchState.AWAIT_VALIDATION
        assert state.complete_validation(U0, (10, 5, NEW), 4, 7) is None

    def test_what_was_read_ahead_is_validated_with_the_position(self) -> None:
        state, partition = self.position()
        buffered(partition, 5, 5)
        partition.leader_changed(NEW)
        assert state.complete_validation(T0, (15, 5, NEW), 5, 15) is None
        assert partition.state is FetchState.FETCHING
        assert partition.buffer.chunks == 1

    def test_what_was_read_ahead_and_truncated_is_dropped_and_the_position_asked_about(self) -> None:
        state, partition = self.position()
        buffered(partition, 5, 5)
        partition.leader_changed(NEW)
        assert state.complete_validation(T0, (15, 5, NEW), 5, 12) is None
        assert partition.state is FetchState.AWAIT_VALIDATION
        assert (partition.buffer.chunks, partition.buffer.end_offset, partition.buffer.end_epoch) == (0, 10, 5)
        assert state.complete_validation(T0, (10, 5, NEW), 5, 12) is None
        assert (partition.state, partition.buffer.position) == (FetchState.FETCHING, 10)
