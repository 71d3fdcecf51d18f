"""Members of consumer groups (KIP-848) join, get partitions, give them up, and leave."""

from __future__ import annotations

from typing import Any

import pytest
from coordinator.group.consumer_client import SESSION_MS, Member, assigned, owned_once, settle, topic_id

from kafkapy.coordinator.group.consumer.rebalance import CLOSE_JOINS_MS, JOIN_WAIT_MS
from kafkapy.errors import ErrorCode
from kafkapy.testing.coordinator import snapshot_of
from kafkapy.types import uuid_from_string


def test_the_first_member_gets_everything_at_once(bench: Any) -> None:
    response = bench.enter("a")
    assert response.member_id == "a"
    assert response.member_epoch == 1
    assert response.heartbeat_interval_ms == 5_000
    assert assigned(response) == {topic_id(bench): frozenset(range(6))}
    assert bench.consumer_group().state_name == "Stable"


def test_a_member_without_an_id_is_given_one_in_version_0_only(bench: Any) -> None:
    response = bench.enter("", version=0)
    assert response.error_code == ErrorCode.NONE
    assert uuid_from_string(response.member_id or "")
    refused = bench.enter("", version=1)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert refused.error_message == "MemberId can't be empty."


def test_a_heartbeat_that_changes_nothing_writes_nothing_and_says_no_assignment(bench: Any) -> None:
    member = Member(bench, "a")
    appends = bench.writer.appends
    response = bench.beat("a", 1)
    assert response.assignment is None
    assert response.member_epoch == 1
    assert bench.writer.appends == appends
    assert member.numbers == set(range(6))


def test_a_second_member_waits_until_the_first_has_given_up_partitions(bench: Any) -> None:
    first = Member(bench, "a")
    bench.clock.advance(CLOSE_JOINS_MS)
    second = Member(bench, "b")
    # It is in the new epoch at once, but what is to be its own is still with the first.
    assert second.epoch == 2
    assert second.owned == {}
    assert bench.consumer_group().state_name == "Reconciling"

    asked = bench.beat("a", 1)
    kept = assigned(asked)
    assert asked.member_epoch == 1, "it stays in its epoch until it has given up what it has to"
    assert kept is not None
    assert len(kept[topic_id(bench)]) == 3
    # It has not given them up yet: nobody gets them.
    still = bench.beat("a", 1, owned=first.owned)
    assert still.member_epoch == 1
    assert bench.beat("b", 2).assignment is None

    gave_up = bench.beat("a", 1, owned=kept)
    assert gave_up.member_epoch == 2
    got = bench.beat("b", 2)
    assert assigned(got) == {topic_id(bench): frozenset(range(6)) - kept[topic_id(bench)]}
    assert bench.consumer_group().state_name == "Stable"


def test_three_members_settle_on_two_partitions_each(bench: Any) -> None:
    members = [Member(bench, "a"), Member(bench, "b"), Member(bench, "c")]
    settle(*members)
    assert owned_once(*members) == {topic_id(bench): frozenset(range(6))}
    assert [len(each.numbers) for each in members] == [2, 2, 2]
    assert {each.epoch for each in members} == {3}


def test_what_a_member_leaves_goes_to_the_others(bench: Any) -> None:
    members = [Member(bench, "a"), Member(bench, "b"), Member(bench, "c")]
    settle(*members)
    left = bench.beat("b", -1)
    assert (left.error_code, left.member_id, left.member_epoch) == (ErrorCode.NONE, "b", -1)
    settle(members[0], members[2])
    assert owned_once(members[0], members[2]) == {topic_id(bench): frozenset(range(6))}
    assert bench.beat("b", 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_that_everybody_has_left_is_empty_and_goes_on_counting(bench: Any) -> None:
    bench.enter("a")
    bench.beat("a", -1)
    assert bench.consumer_group().state_name == "Empty"
    assert bench.enter("b").member_epoch == 3


def test_a_member_that_is_silent_is_fenced_after_its_session(bench: Any) -> None:
    members = [Member(bench, "a"), Member(bench, "b")]
    settle(*members)
    bench.clock.advance(SESSION_MS - 1)
    members[0].beat()
    bench.clock.advance(1)
    assert set(bench.consumer_group().members) == {"a"}
    settle(members[0])
    assert members[0].numbers == set(range(6))
    assert bench.beat("b", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_give_up_partitions_is_fenced_after_its_rebalance_timeout(bench: Any) -> None:
    first = Member(bench, "a", rebalance_ms=20_000)
    second = Member(bench, "b")
    bench.beat("a", 1)
    bench.clock.advance(19_999)
    bench.beat("a", 1, owned=first.owned)
    assert set(bench.consumer_group().members) == {"a", "b"}
    bench.clock.advance(1)
    assert set(bench.consumer_group().members) == {"b"}
    settle(second)
    assert second.numbers == set(range(6))


def test_a_member_that_gave_up_partitions_in_time_stays(bench: Any) -> None:
    members = [Member(bench, "a", rebalance_ms=20_000), Member(bench, "b", rebalance_ms=20_000)]
    settle(*members)
    bench.clock.advance(30_000)
    settle(*members)
    assert set(bench.consumer_group().members) == {"a", "b"}


def test_epochs_that_the_coordinator_does_not_know_are_fenced(bench: Any) -> None:
    Member(bench, "a")
    later = bench.beat("a", 7)
    assert later.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert later.error_message == (
        "The consumer group member has a greater member epoch (7) than the one known by the group coordinator (1). "
        "The member must abandon all its partitions and rejoin."
    )
    members = [Member(bench, "b"), Member(bench, "c")]
    settle(*members)
    assert bench.beat("b", 1, owned={}).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_the_previous_epoch_is_taken_from_a_member_that_has_no_more_than_it_was_assigned(bench: Any) -> None:
    Member(bench, "a")
    # Its answer with epoch 1 was lost, so it joins again, with nothing.
    again = bench.enter("a")
    assert again.member_epoch == 1
    assert assigned(again) == {topic_id(bench): frozenset(range(6))}
    # The same of one that says it has what it was not given is not.
    foreign = {topic_id(bench): frozenset({17})}
    assert bench.beat("a", 0, owned=foreign).error_code == ErrorCode.INVALID_REQUEST


def test_a_member_joins_again_whatever_its_epoch_is(bench: Any) -> None:
    members = [Member(bench, name) for name in "abc"]
    settle(*members)
    epoch = members[0].epoch
    assert epoch > 1
    again = bench.enter("a")
    assert (again.error_code, again.member_epoch) == (ErrorCode.NONE, epoch)
    assert assigned(again) == members[0].owned


def test_other_topics_make_a_new_epoch_and_what_is_not_read_any_more_is_given_up(bench: Any) -> None:
    bench.snapshot = snapshot_of({"topic": 2, "other": 3})
    member = Member(bench, "a")
    response = bench.beat("a", 1, subscribed_topic_names=["other"])
    assert assigned(response) == {}
    assert response.member_epoch == 1
    member.take(response)
    settle(member)
    assert member.owned == {topic_id(bench, "other"): frozenset(range(3))}
    assert member.epoch == 2


def test_partitions_that_are_added_are_assigned(bench: Any) -> None:
    member = Member(bench, "a")
    bench.snapshot = snapshot_of({"topic": 8})
    settle(member)
    assert member.numbers == set(range(8))
    assert member.epoch == 2


def test_a_topic_that_is_created_after_the_members_came_is_assigned(bench: Any) -> None:
    member = Member(bench, "a", "later")
    assert member.owned == {}
    bench.snapshot = snapshot_of({"topic": 6, "later": 2})
    settle(member)
    assert member.owned == {topic_id(bench, "later"): frozenset({0, 1})}


def test_a_topic_that_is_deleted_is_taken_away(bench: Any) -> None:
    bench.snapshot = snapshot_of({"topic": 2, "other": 3})
    member = Member(bench, "a", "topic", "other")
    bench.snapshot = snapshot_of({"topic": 2})
    settle(member)
    assert member.owned == {topic_id(bench): frozenset({0, 1})}


def test_topics_that_nobody_reads_may_change_without_an_epoch(bench: Any) -> None:
    member = Member(bench, "a")
    bench.snapshot = snapshot_of({"topic": 6, "other": 9})
    settle(member)
    assert member.epoch == 1


def test_racks_that_change_make_a_new_epoch(bench: Any) -> None:
    bench.snapshot = snapshot_of({"topic": 6}, {0: "x", 1: "y"})
    member = Member(bench, "a")
    bench.snapshot = snapshot_of({"topic": 6}, {0: "x", 1: "z"})
    settle(member)
    assert member.epoch == 2
    # Racks whose names, in a row, are the same text.
    bench.snapshot = snapshot_of({"topic": 2}, {0: "a11b", 1: "c"})
    settle(member)
    bench.snapshot = snapshot_of({"topic": 2}, {0: "a", 1: "b11c"})
    settle(member)
    assert member.epoch == 4


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"member_id": "a", "epoch": 1, "group": ""}, "GroupId can't be empty."),
        ({"member_id": "a", "epoch": 1, "group": "  "}, "GroupId can't be empty."),
        ({"member_id": "", "epoch": 1}, "MemberId can't be empty."),
        ({"member_id": "", "epoch": -1}, "MemberId can't be empty."),
        ({"member_id": "a", "epoch": 1, "instance_id": ""}, "InstanceId can't be empty."),
        ({"member_id": "a", "epoch": 1, "rack_id": ""}, "RackId can't be empty."),
        ({"member_id": "a", "epoch": 0, "owned": {}}, "RebalanceTimeoutMs must be provided in first request."),
        (
            {"member_id": "a", "epoch": 0, "rebalance_timeout_ms": 5},
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            {"member_id": "a", "epoch": 0, "rebalance_timeout_ms": 5, "owned": {}},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_id": "a", "epoch": -2}, "InstanceId can't be null."),
        ({"member_id": "a", "epoch": -3}, "MemberEpoch is invalid."),
    ],
)
def test_requests_that_contradict_themselves(bench: Any, fields: dict[str, Any], message: str) -> None:
    response = bench.beat(fields.pop("member_id"), fields.pop("epoch"), version=0, **fields)
    assert (response.error_code, response.error_message) == (ErrorCode.INVALID_REQUEST, message)
    assert bench.shard.groups == {}


def test_unknown_groups_members_and_assignors(bench: Any) -> None:
    assert bench.beat("a", 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert bench.beat("a", -1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    bench.enter("a")
    assert bench.beat("b", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.beat("b", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    refused = bench.enter("b", server_assignor="mine")
    assert refused.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert refused.error_message == "ServerAssignor mine is not supported. Supported assignors: uniform, range."


def test_the_assignor_that_most_members_ask_for_is_used(bench: Any) -> None:
    bench.enter("a", server_assignor="range")
    assert bench.describe_consumer().assignor_name == "range"
    bench.enter("b", server_assignor="uniform")
    bench.enter("c", server_assignor="uniform")
    assert bench.describe_consumer().assignor_name == "uniform"


def test_a_full_group_takes_nobody_else(make_bench: Any) -> None:
    bench = make_bench(consumer_max_size=1)
    bench.enter("a")
    refused = bench.enter("b")
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert bench.beat("a", 1).error_code == ErrorCode.NONE


def test_a_full_request_is_answered_with_the_whole_assignment(bench: Any) -> None:
    member = Member(bench, "a")
    response = bench.beat("a", 1, owned=member.owned, rebalance_timeout_ms=5, subscribed_topic_names=["topic"])
    assert assigned(response) == member.owned


def test_a_group_is_described_with_what_members_have_and_are_to_have(bench: Any) -> None:
    Member(bench, "a")
    Member(bench, "b", rack_id="r")
    bench.clock.advance(JOIN_WAIT_MS)
    described = bench.describe_consumer()
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Reconciling", 2, 2)
    first, second = described.members
    assert (first.member_id, first.member_epoch, first.member_type) == ("a", 1, 1)
    assert [each.partitions for each in first.assignment.topic_partitions] == [list(range(6))]
    assert [len(each.partitions) for each in first.target_assignment.topic_partitions] == [3]
    assert second.rack_id == "r"
    assert second.assignment.topic_partitions == []
    assert second.subscribed_topic_names == ["topic"]
    assert bench.describe_consumer("none").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_consumer_groups_are_listed_by_type_and_state(bench: Any) -> None:
    bench.enter("a")
    (listed,) = bench.shard.list_groups({"stable"}, {"consumer"})
    assert (listed.group_id, listed.group_type, listed.group_state, listed.protocol_type) == (
        "group",
        "consumer",
        "Stable",
        "consumer",
    )
    assert bench.shard.list_groups({"empty"}, set()) == []
    assert bench.shard.list_groups(set(), {"classic"}) == []
    assert bench.shard.describe_classic("group") is None


def test_a_group_that_has_settled_is_told_once_for_each_epoch(bench: Any) -> None:
    members = [Member(bench, "a"), Member(bench, "b")]
    settle(*members)
    bench.beat("b", -1)
    settle(members[0])
    bench.beat("a", -1)
    assert [(each.generation_id, each.members) for each in bench.events] == [
        (1, ("a",)),
        (2, ("a", "b")),
        (3, ("a",)),
        (4, ()),
    ]
    bench.restart()
    assert len(bench.events) == 4


def test_epochs_and_offsets_are_counted(bench: Any) -> None:
    Member(bench, "a")
    bench.commit({("topic", 0): 1, ("other", 0): 1}, version=9, member_id="a", generation_id=1)
    bench.coordinator.write(
        "group", lambda shard, _: shard.offsets.delete("group", list(shard.store.of_group("group")))
    )
    bench.beat("a", -1)
    counters = bench.coordinator.counters
    assert counters.consumer_rebalances == 2
    assert (counters.offset_commits, counters.offset_deletions) == (2, 1)
    bench.stable_group(2)
    assert counters.completed_rebalances == 1


def test_members_who_join_a_large_group_at_once_get_one_assignment(bench: Any) -> None:
    bench.snapshot = snapshot_of({"topic": 200})
    members = [Member(bench, f"{number:03}") for number in range(200)]
    group = bench.consumer_group()
    assert (group.epoch, group.assignment_epoch) == (200, 1)
    assert bench.describe_consumer().group_state == "Assigning"
    # It is computed without another request.
    bench.clock.advance(JOIN_WAIT_MS)
    assert group.assignment_epoch == 200
    settle(*members, rounds=3)
    assert owned_once(*members) == {topic_id(bench): frozenset(range(200))}
    assert {len(each.numbers) for each in members} == {1}
    assert {each.epoch for each in members} == {200}


def test_a_few_joins_of_a_large_group_wait_for_others_and_many_do_not(bench: Any) -> None:
    bench.snapshot = snapshot_of({"topic": 1000})
    for number in range(200):
        bench.enter(f"{number:03}")
    bench.clock.advance(JOIN_WAIT_MS)
    group = bench.consumer_group()
    for number in range(200, 249):
        bench.enter(f"{number:03}")
    bench.clock.advance(30)
    assert bench.beat("100", 1).member_epoch == 200
    assert (group.epoch, group.assignment_epoch) == (249, 200)
    # One in four has come since: a member's heartbeat waits no longer.
    for number in range(249, 268):
        bench.enter(f"{number:03}")
    assert bench.beat("100", 200).member_epoch == 268
    assert (group.epoch, group.assignment_epoch) == (268, 268)


def test_a_close_join_waits_no_longer_than_the_next_heartbeat_of_another_member(bench: Any) -> None:
    first = Member(bench, "a")
    others = [Member(bench, name) for name in "bcdef"]
    group = bench.consumer_group()
    assert (group.epoch, group.assignment_epoch) == (6, 1)
    assert [each.epoch for each in others] == [1] * 5
    first.beat()
    assert group.assignment_epoch == 6
    assert len(first.numbers) == 1
    settle(first, *others, rounds=2)
    assert owned_once(first, *others) == {topic_id(bench): frozenset(range(6))}


def test_joins_put_the_assignment_off_for_a_second_at_most(bench: Any) -> None:
    Member(bench, "first")
    group = bench.consumer_group()
    for number in range(10):
        bench.clock.advance(JOIN_WAIT_MS - 1)
        bench.enter(f"{number:02}")
    assert (group.epoch, group.assignment_epoch) == (11, 1)
    bench.clock.advance(JOIN_WAIT_MS)
    assert group.assignment_epoch == 11
    for number in range(10, 40):
        bench.clock.advance(JOIN_WAIT_MS - 1)
        bench.enter(f"{number:02}")
        late_ms = bench.clock.monotonic_ms() - group.assigned_ms
        assert late_ms <= CLOSE_JOINS_MS + JOIN_WAIT_MS
    assert group.assignment_epoch > 11


def test_a_close_join_that_gets_partitions_does_not_wait(bench: Any) -> None:
    bench.snapshot = snapshot_of({"topic": 2, "other": 2})
    Member(bench, "a", "topic")
    second = Member(bench, "b", "other")
    assert second.epoch == 2
    assert len(second.numbers) == 2
    bench.beat("b", -1)
    third = Member(bench, "c", "topic", "other")
    assert third.epoch == 4
    assert topic_id(bench, "other") in third.owned


@pytest.mark.parametrize("of_the_broker", [True, False])
def test_assignments_keep_the_interval_that_was_set(bench: Any, of_the_broker: bool) -> None:
    overrides = bench.coordinator.overrides
    if of_the_broker:
        overrides.update(bench.config._replace(consumer_assignment_interval_ms=1_000))
    else:
        overrides.put("group", {"consumer.assignment.interval.ms": 1_000})
    first, second = Member(bench, "a"), Member(bench, "b")
    group = bench.consumer_group()
    assert (group.epoch, group.assignment_epoch, second.numbers) == (2, 1, set())
    bench.clock.advance(999)
    assert group.assignment_epoch == 1
    bench.clock.advance(1)
    assert group.assignment_epoch == 2
    settle(first, second, rounds=3)
    assert owned_once(first, second).keys() == {topic_id(bench)}
    assert first.numbers and second.numbers


def test_an_interval_of_zero_gives_each_member_of_a_large_group_its_assignment(bench: Any) -> None:
    bench.coordinator.overrides.put("group", {"consumer.assignment.interval.ms": 0})
    for number in range(110):
        Member(bench, f"{number:03}")
        assert bench.consumer_group().assignment_epoch == number + 1


def test_a_large_group_that_was_restarted_before_its_assignment_gets_it(bench: Any) -> None:
    bench.snapshot = snapshot_of({"topic": 200})
    members = [Member(bench, f"{number:03}") for number in range(150)]
    assert bench.consumer_group().assignment_epoch < 150
    bench.restart()
    settle(*members, rounds=3)
    assert bench.consumer_group().assignment_epoch == 150
    assert owned_once(*members) == {topic_id(bench): frozenset(range(200))}


def test_an_assignment_that_was_put_off_is_of_the_members_who_are_left(bench: Any) -> None:
    bench.snapshot = snapshot_of({"topic": 200})
    members = [Member(bench, f"{number:03}") for number in range(120)]
    for member in members[60:]:
        bench.beat(member.member_id, -1)
    bench.clock.advance(100)
    settle(*members[:60], rounds=3)
    assert owned_once(*members[:60]) == {topic_id(bench): frozenset(range(200))}
    for member in members[:60]:
        bench.beat(member.member_id, -1)
    bench.clock.advance(1_000)
    assert bench.describe_consumer().group_state == "Empty"
