"""Share groups: members, epochs, assignments, sessions and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from coordinator.group.share_client import (
    GROUP,
    Member,
    assigned,
    beat,
    group_of,
    key,
    settle,
    topic_id,
)

from kafkapy.coordinator.group.group import GroupType
from kafkapy.coordinator.group.offsets import CommittedOffset
from kafkapy.coordinator.group.share.group import ShareGroupState
from kafkapy.coordinator.group.share.requests import SOON_MS, ShareClient
from kafkapy.errors import ErrorCode, error_for
from kafkapy.testing.coordinator import snapshot_of
from kafkapy.types import TopicPartition

SESSION_MS = 45_000


class Heard:
    """A listener that notes what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def group_deleted(self, group_id: str) -> None:
        self.events.append(("group", group_id))

    def state_changed(self, group_id: str, topic: Any, partitions: frozenset[int]) -> None:
        self.events.append(("state", group_id, topic, partitions))

    def member_gone(self, group_id: str, member_id: str) -> None:
        self.events.append(("member", group_id, member_id))


# --- joining ----------------------------------------------------------------------------------------------------------


def test_the_first_member_gets_its_partitions_when_their_states_are_initialized(bench: Any) -> None:
    joined = beat(bench, "a", 0, subscribed_topic_names=["topic"])
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (ErrorCode.NONE, "a", 2)
    assert assigned(joined) == {}
    assert joined.heartbeat_interval_ms == SOON_MS
    assert [call for call, _ in bench.persister.calls] == ["initialize"] * 6
    assert all(each.state_epoch == 2 and each.start_offset == -1 for each in bench.persister.states.values())
    bench.clock.advance(0)
    lives = beat(bench, "a", 2)
    assert (lives.member_epoch, assigned(lives)) == (3, {topic_id(bench): frozenset(range(6))})
    assert lives.heartbeat_interval_ms == 5_000
    again = beat(bench, "a", 3)
    assert (again.member_epoch, again.assignment) == (3, None)
    assert group_of(bench).state is ShareGroupState.STABLE


def test_a_full_request_and_a_lost_answer_get_the_assignment_again(bench: Any) -> None:
    member = Member(bench, "a")
    member.beat()
    full = beat(bench, "a", 3, subscribed_topic_names=["topic"])
    assert assigned(full) == member.owned
    # The member has not got the answer with epoch 3.
    late = beat(bench, "a", 2)
    assert (late.error_code, late.member_epoch) == (ErrorCode.NONE, 3)
    joins_again = beat(bench, "a", 0, subscribed_topic_names=["topic"])
    assert (joins_again.error_code, joins_again.member_epoch) == (ErrorCode.NONE, 3)
    assert assigned(joins_again) == member.owned


def test_members_share_partitions_and_more_members_than_partitions_share_each(bench: Any) -> None:
    members = [Member(bench, name) for name in "abc"]
    settle(*members)
    assert sorted(len(each.numbers) for each in members) == [2, 2, 2]
    assert set().union(*(each.numbers for each in members)) == set(range(6))
    members += [Member(bench, name) for name in "defghi"]
    settle(*members)
    assert all(member.numbers for member in members)
    takers = [sum(number in member.numbers for member in members) for number in range(6)]
    assert takers == [2] * 6
    assert sorted({len(each.numbers) for each in members}) == [1, 2]


def test_members_with_different_topics_get_partitions_of_their_own_topics_only(bench: Any) -> None:
    bench.snapshot = snapshot_of({"topic": 2, "other": 3})
    one, two = Member(bench, "one", "topic"), Member(bench, "two", "topic", "other")
    settle(one, two)
    assert one.owned.keys() == {topic_id(bench)}
    assert two.owned[topic_id(bench, "other")] == frozenset(range(3))
    assert one.owned[topic_id(bench)] | two.owned[topic_id(bench)] == {0, 1}


def test_a_changed_subscription_moves_partitions(bench: Any) -> None:
    bench.snapshot = snapshot_of({"topic": 2, "other": 3})
    member = Member(bench, "a", "topic")
    member.beat()
    changed = member.beat(subscribed_topic_names=["other"])
    assert changed.member_epoch == 4
    assert member.owned == {}
    member.beat()
    assert member.owned == {topic_id(bench, "other"): frozenset(range(3))}
    # What was read before keeps its state.
    assert set(group_of(bench).state_partitions.initialized) == {topic_id(bench), topic_id(bench, "other")}


def test_a_subscription_may_name_a_topic_that_comes_later(bench: Any) -> None:
    member = Member(bench, "a", "later")
    assert bench.persister.calls == []
    bench.snapshot = snapshot_of({"topic": 6, "later": 2})
    settle(member)
    assert member.owned == {topic_id(bench, "later"): frozenset({0, 1})}


def test_new_partitions_are_initialized_and_assigned(bench: Any) -> None:
    member = Member(bench, "a")
    settle(member)
    bench.persister.calls.clear()
    bench.snapshot = snapshot_of({"topic": 8})
    settle(member)
    assert [each.partition for _, each in bench.persister.calls] == [6, 7]
    assert member.numbers == set(range(8))


def test_a_deleted_topic_is_revoked_and_forgotten(bench: Any) -> None:
    bench.snapshot = snapshot_of({"topic": 2, "other": 3})
    member = Member(bench, "a", "topic", "other")
    settle(member)
    gone, kept = topic_id(bench, "other"), topic_id(bench)
    bench.snapshot = snapshot_of({"topic": 2})
    bench.coordinator.topics_deleted({"other"})
    bench.clock.run()
    settle(member)
    assert member.owned == {kept: frozenset({0, 1})}
    assert gone not in group_of(bench).state_partitions.topic_names


def test_a_session_that_was_silent_ends_and_its_partitions_go_to_others(bench: Any) -> None:
    heard = Heard()
    bench.coordinator.share_listeners.add(heard)
    one, two = Member(bench, "one"), Member(bench, "two")
    settle(one, two)
    assert one.numbers | two.numbers == set(range(6))
    for _ in range(10):
        one.beat(5_000)
    assert one.numbers == set(range(6))
    assert heard.events == [("member", GROUP, "two")]
    assert beat(bench, "two", two.epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_leaves_and_the_last_one_leaves_an_empty_group(bench: Any) -> None:
    one, two = Member(bench, "one"), Member(bench, "two")
    settle(one, two)
    left = two.leave()
    assert (left.error_code, left.member_id, left.member_epoch) == (ErrorCode.NONE, "two", -1)
    settle(one)
    assert one.numbers == set(range(6))
    one.leave()
    group = group_of(bench)
    assert (group.state_name, group.is_empty, group.target) == ("Empty", True, {})
    # An empty share group stays until an administrator deletes it.
    bench.clock.advance(30 * 24 * 3_600_000)
    assert GROUP in bench.shard.groups


def test_the_last_assignment_is_kept_where_it_can_be(bench: Any) -> None:
    members = [Member(bench, name) for name in "ab"]
    settle(*members)
    before = {each.member_id: each.numbers for each in members}
    third = Member(bench, "c")
    settle(*members, third)
    assert all(each.numbers <= before[each.member_id] for each in members)
    assert len(third.numbers) == 2


def test_assignments_keep_an_interval(bench: Any) -> None:
    one = Member(bench, "one")
    one.beat()
    epoch = group_of(bench).assignment_epoch
    two = Member(bench, "two")
    assert group_of(bench).assignment_epoch == epoch < group_of(bench).epoch
    # The new member waits, with a short interval, and gets its partitions as soon as there are any.
    assert two.epoch == epoch
    waits = two.beat(SOON_MS)
    assert (waits.heartbeat_interval_ms, two.owned) == (SOON_MS, {})
    # Heartbeats meanwhile begin no epoch, though partitions were initialized.
    assert group_of(bench).epoch == epoch + 1
    two.beat(1_000)
    assert len(two.numbers) == 3


def test_a_group_that_was_empty_need_not_wait_for_an_assignment(bench: Any) -> None:
    one = Member(bench, "one")
    settle(one)
    one.leave()
    assert group_of(bench).assignment_epoch == group_of(bench).epoch
    two = Member(bench, "two")
    assert two.numbers == set(range(6))


def test_partitions_that_come_within_the_interval_begin_one_epoch(bench: Any) -> None:
    bench.snapshot = snapshot_of({"topic": 2, "other": 3})
    member = Member(bench, "a", "topic")
    settle(member)
    epoch = group_of(bench).epoch
    member.beat(0, subscribed_topic_names=["topic", "other"])
    for _ in range(20):
        member.beat(0)
    # One for the subscription, and one for the partitions whose states are made.
    assert group_of(bench).epoch == epoch + 2 > group_of(bench).assignment_epoch
    member.beat(1_000)
    assert member.owned.keys() == {topic_id(bench), topic_id(bench, "other")}


def test_the_group_says_how_long_its_intervals_are(bench: Any) -> None:
    bench.coordinator.overrides.put(
        GROUP,
        {"share.heartbeat.interval.ms": 7_000, "share.session.timeout.ms": 50_000, "share.assignment.interval.ms": 0},
    )
    one, two = Member(bench, "one"), Member(bench, "two")
    one.beat(0)
    two.beat(0)
    assert one.beat(0).heartbeat_interval_ms == 7_000
    assert len(two.numbers) == 3
    bench.clock.advance(49_999)
    assert group_of(bench).members.keys() == {"one", "two"}
    bench.clock.advance(1)
    assert group_of(bench).members == {}


def test_a_member_that_changes_its_address_is_written_and_moves_nothing(bench: Any) -> None:
    member = Member(bench, "a")
    member.beat()
    beat(bench, "a", 3, client=ShareClient("other", "/10.0.0.1"), rack_id="r")
    found = group_of(bench).members["a"]
    assert (found.client_id, found.client_host, found.rack_id, found.member_epoch) == ("other", "/10.0.0.1", "r", 3)


def test_settled_epochs_are_announced(bench: Any) -> None:
    member = Member(bench, "a")
    settle(member)
    assert [(each.group_id, each.generation_id, each.members) for each in bench.events] == [
        (GROUP, 2, ("a",)),
        (GROUP, 3, ("a",)),
    ]


# --- initialization ---------------------------------------------------------------------------------------------------


def test_partitions_whose_states_fail_are_tried_again(bench: Any) -> None:
    bench.persister.failures[key(bench, 3)] = error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    member = Member(bench, "a")
    member.beat(0)
    assert member.numbers == {0, 1, 2, 4, 5}
    assert member.beat().heartbeat_interval_ms == 5_000, "it is not tried more often than members live"
    bench.persister.failures.clear()
    settle(member)
    assert member.numbers == set(range(6))


def test_states_on_their_way_are_asked_for_once_until_the_retry_interval_has_passed(make_bench: Any) -> None:
    bench = make_bench(share_initialize_retry_interval_ms=5_000)
    bench.persister.hold = True
    member = Member(bench, "a")
    member.beat(4_000)
    assert len(bench.persister.calls) == 6
    member.beat(1_000)
    assert len(bench.persister.calls) == 12
    bench.persister.release()
    settle(member)
    assert member.numbers == set(range(6))
    assert group_of(bench).state_partitions.initializing == {}


def test_a_broker_that_was_killed_initializes_again_what_it_began(bench: Any) -> None:
    bench.persister.hold = True
    member = Member(bench, "a")
    assert group_of(bench).state_partitions.initializing.keys() == {topic_id(bench)}
    bench.restart()
    bench.persister.hold = False
    bench.persister.calls.clear()
    settle(member)
    assert len(bench.persister.calls) == 6
    assert member.numbers == set(range(6))


def test_states_that_come_after_the_group_was_deleted_are_deleted(bench: Any) -> None:
    bench.persister.hold = True
    member = Member(bench, "a")
    member.leave()
    bench.coordinator.write(GROUP, lambda shard, _: shard.delete_groups([GROUP]))
    bench.clock.run()
    bench.persister.release()
    bench.clock.advance(0)
    assert bench.persister.states == {}
    assert GROUP not in bench.shard.groups


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"group": ""}, "GroupId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"subscribed_topic_names": None}, "SubscribedTopicNames must be set in first request."),
        ({"subscribed_topic_names": []}, "SubscribedTopicNames must be set in first request."),
        ({"epoch": -2}, "MemberEpoch is invalid."),
    ],
)
def test_requests_that_contradict_themselves(bench: Any, fields: dict[str, Any], message: str) -> None:
    asked: dict[str, Any] = {"member_id": "a", "epoch": 0, "subscribed_topic_names": ["topic"], **fields}
    refused = beat(bench, asked.pop("member_id"), asked.pop("epoch"), **asked)
    assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_REQUEST, message)


def test_epochs_that_are_not_the_members_are_fenced(bench: Any) -> None:
    member = Member(bench, "a")
    settle(member)
    for epoch, text in ((7, "greater member epoch (7)"), (1, "smaller member epoch (1)")):
        fenced = beat(bench, "a", epoch, subscribed_topic_names=["topic"])
        assert fenced.error_code == ErrorCode.FENCED_MEMBER_EPOCH
        assert text in (fenced.error_message or "")
    assert member.beat().error_code == ErrorCode.NONE


def test_unknown_groups_and_members(bench: Any) -> None:
    missing = beat(bench, "a", 3)
    assert (missing.error_code, missing.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Share group {GROUP} not found.",
    )
    assert beat(bench, "a", -1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    Member(bench, "a")
    for epoch in (1, -1):
        unknown = beat(bench, "b", epoch)
        assert (unknown.error_code, unknown.error_message) == (
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member b is not a member of group {GROUP}.",
        )


def test_a_full_group_takes_no_other_member(make_bench: Any) -> None:
    bench = make_bench(share_max_size=2)
    one, _two = Member(bench, "one"), Member(bench, "two")
    full = beat(bench, "three", 0, subscribed_topic_names=["topic"])
    assert full.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert one.beat().error_code == ErrorCode.NONE


def test_a_group_has_one_protocol(bench: Any) -> None:
    Member(bench, "a")
    consumer = bench.beat("c", 0, group=GROUP, owned={}, subscribed_topic_names=["topic"], rebalance_timeout_ms=30_000)
    assert consumer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert consumer.error_message == f"Group {GROUP} is not a consumer group."
    assert bench.join(group=GROUP).result().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.sync("m", 1, group=GROUP).result().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.heartbeat("m", 1, group=GROUP) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.leave("m", group=GROUP) == [ErrorCode.UNKNOWN_MEMBER_ID]
    bench.enter("c")
    refused = beat(bench, "a", 0, group="group", subscribed_topic_names=["topic"])
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert refused.error_message == "Group group is not a share group."


def test_a_share_group_has_no_committed_offsets(bench: Any) -> None:
    member = Member(bench, "a")
    assert bench.commit({("topic", 0): 5}, group=GROUP) == ErrorCode.GROUP_ID_NOT_FOUND
    assert bench.commit({("topic", 0): 5}, group=GROUP, member_id="a", generation_id=1) == ErrorCode.GROUP_ID_NOT_FOUND
    assert {each.offset for each in bench.fetch(("topic", 0), group=GROUP).values()} == {-1}
    member.leave()
    assert bench.commit({("topic", 0): 5}, group=GROUP) == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_below_the_id_of_a_share_group_are_neither_shown_nor_deleted(bench: Any) -> None:
    Member(bench, "a").leave()
    partition = TopicPartition("topic", 0)
    bench.shard.store.put(GROUP, partition, CommittedOffset(5, -1, "", 0))
    assert bench.fetch(partition, group=GROUP)[partition].offset == -1
    assert bench.fetch(group=GROUP) == {}
    later = bench.coordinator.write(GROUP, lambda shard, _: shard.offsets.delete(GROUP, [partition]))
    bench.clock.run()
    assert later.error.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_share_groups_are_listed_and_counted(bench: Any) -> None:
    Member(bench, "a")
    (listed,) = bench.shard.list_groups(set(), {"share"})
    assert (listed.group_id, listed.protocol_type, listed.group_state, listed.group_type) == (
        GROUP,
        "share",
        "Stable",
        "share",
    )
    assert bench.shard.list_groups({"empty"}, {"share"}) == []
    assert bench.coordinator.count_states() == {(GroupType.SHARE, "Stable"): 1}
    assert bench.coordinator.counters.share_rebalances == 1
    assert bench.shard.describe_classic(GROUP) is None
    assert bench.describe_consumer(GROUP).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_is_described_with_its_members(bench: Any) -> None:
    member = Member(bench, "a", rack_id="r")
    settle(member)
    group = bench.coordinator.read(GROUP, lambda shard, _: shard.share.describe(GROUP, bench.snapshot)).result()
    assert (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == (
        "Stable",
        3,
        3,
        "simple",
    )
    (found,) = group.members
    assert (found.member_id, found.rack_id, found.member_epoch, found.client_id, found.client_host) == (
        "a",
        "r",
        3,
        "client",
        "/127.0.0.1",
    )
    assert found.subscribed_topic_names == ["topic"]
    assert [(each.topic_name, each.partitions) for each in found.assignment.topic_partitions] == [
        ("topic", list(range(6)))
    ]
