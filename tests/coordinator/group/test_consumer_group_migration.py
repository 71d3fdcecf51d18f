"""Groups with members go from the classic to the consumer protocol and back, and members of both share one group."""

from __future__ import annotations

from typing import Any

import pytest
from coordinator.group.consumer_client import Member, settle, topic_id

from kafkapy.coordinator.group.classic.group import STABLE, ClassicGroupState
from kafkapy.coordinator.group.config import MigrationPolicy
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafkapy.testing.coordinator import snapshot_of

ALL = set(range(6))


def encoded(*numbers: int) -> bytes:
    listed = [ConsumerProtocolAssignment.TopicPartitions(topic="topic", partitions=list(numbers))]
    return ConsumerProtocolAssignment(assigned_partitions=listed).encode_versioned(1)


def decoded(assignment: bytes) -> set[int]:
    found = ConsumerProtocolAssignment.decode_versioned(assignment)[1]
    return {number for each in found.assigned_partitions for number in each.partitions}


class ClassicMember:
    """A client of the classic protocol: it joins and syncs whenever it is told to."""

    def __init__(self, bench: Any, member_id: str = "", generation: int = -1, instance: str | None = None) -> None:
        self.bench, self.member_id, self.generation, self.instance = bench, member_id, generation, instance
        self.numbers: set[int] = set()
        self.epochs = 0

    def join(self) -> None:
        owned = [ConsumerProtocolSubscription.TopicPartitions(topic="topic", partitions=sorted(self.numbers))]
        metadata = ConsumerProtocolSubscription(topics=["topic"], owned_partitions=owned).encode_versioned(1)
        protocols = {"cooperative-sticky": metadata}
        later = self.bench.join(self.member_id, protocols=protocols, instance=self.instance)
        if later.done and later.result().error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = later.result().member_id
            later = self.bench.join(self.member_id, protocols=protocols)
        joined = later.result()
        assert joined.error_code == ErrorCode.NONE, ErrorCode(joined.error_code)
        self.member_id, self.generation = joined.member_id, joined.generation_id
        assert joined.leader == ""
        synced = self.bench.sync(self.member_id, self.generation, instance=self.instance).result()
        if synced.error_code == ErrorCode.NONE:
            self.numbers = decoded(synced.assignment)

    def beat(self) -> ErrorCode:
        error: ErrorCode = self.bench.heartbeat(self.member_id, self.generation, instance=self.instance)
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
        else:
            assert error is ErrorCode.NONE
        return error


def classic_group(bench: Any) -> tuple[ClassicMember, ClassicMember]:
    """Two members of a stable classic group with three partitions each."""
    protocols = {"cooperative-sticky": ConsumerProtocolSubscription(topics=["topic"]).encode_versioned(1)}
    joins = [bench.join_new(protocols=protocols) for _ in range(2)]
    bench.clock.advance(10_000)
    generation = joins[0][1].result().generation_id
    leader = joins[0][1].result().leader
    ids = sorted((each for each, _ in joins), key=lambda each: each != leader)
    bench.sync(leader, generation, {ids[0]: encoded(0, 1, 2), ids[1]: encoded(3, 4, 5)})
    members = [ClassicMember(bench, each, generation) for each in ids]
    members[0].numbers, members[1].numbers = {0, 1, 2}, {3, 4, 5}
    assert bench.classic().state is STABLE
    return members[0], members[1]


def converge(*members: Any, rounds: int = 8) -> None:
    for _ in range(rounds):
        for member in members:
            member.beat()
    seen: set[int] = set()
    for member in members:
        assert seen.isdisjoint(member.numbers)
        seen |= member.numbers
    assert seen == ALL


def test_a_classic_group_is_converted_when_a_member_of_the_new_protocol_joins(bench: Any) -> None:
    first, second = classic_group(bench)
    member = Member(bench, "new")
    assert bench.consumer_group().epoch == first.generation + 1
    converge(first, second, member)
    assert [len(each.numbers) for each in (first, second, member)] == [2, 2, 2]
    assert bench.describe_consumer().group_state == "Stable"
    assert sorted(each.member_type for each in bench.describe_consumer().members) == [0, 0, 1]


def test_who_waits_in_a_rebalance_of_a_converted_group_is_told_to_join_again(bench: Any) -> None:
    first, second = classic_group(bench)
    waiting = bench.join(first.member_id, protocols={"cooperative-sticky": b"\0\1\0\0\0\0\xff\xff\xff\xff\0\0\0\0"})
    assert not waiting.done
    Member(bench, "new")
    assert waiting.result().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert second.beat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_no_timeout_of_the_classic_group_is_left(bench: Any) -> None:
    first, second = classic_group(bench)
    member = Member(bench, "new")
    for _ in range(20):
        bench.clock.advance(3_000)
        converge(first, second, member, rounds=4)
    assert len(bench.consumer_group().members) == 3


def test_a_classic_member_of_a_consumer_group_is_given_up_after_its_own_session(bench: Any) -> None:
    first, second = classic_group(bench)
    member = Member(bench, "new")
    converge(first, second, member)
    bench.clock.advance(bench.session_ms - 1)
    first.beat()
    member.beat()
    bench.clock.advance(1)
    assert second.member_id not in bench.consumer_group().members
    converge(first, member)


def test_a_classic_member_that_does_not_join_again_is_given_up_after_its_rebalance_timeout(bench: Any) -> None:
    first, second = classic_group(bench)
    Member(bench, "new")
    for _ in range(bench.rebalance_ms // 1_000):
        assert bench.heartbeat(first.member_id, first.generation) is ErrorCode.REBALANCE_IN_PROGRESS
        bench.heartbeat(second.member_id, second.generation)
        bench.clock.advance(1_000)
    assert set(bench.consumer_group().members) == {"new"}


def test_a_classic_member_that_does_not_sync_is_given_up(bench: Any) -> None:
    member = Member(bench, "new")
    _, joined = bench.join_new()
    for _ in range(bench.rebalance_ms // 5_000):
        bench.heartbeat(joined.result().member_id, joined.result().generation_id)
        member.beat()
        assert len(bench.consumer_group().members) == 2
        bench.clock.advance(5_000)
    assert set(bench.consumer_group().members) == {"new"}


def test_classic_members_join_a_consumer_group(bench: Any) -> None:
    member = Member(bench, "new")
    classic = ClassicMember(bench)
    classic.join()
    converge(member, classic)
    assert len(classic.numbers) == 3
    assert bench.commit({("topic", 0): 1}, version=8, member_id=classic.member_id, generation_id=classic.generation)
    wrong = bench.commit({("topic", 0): 1}, version=8, member_id=classic.member_id, generation_id=77)
    assert wrong is ErrorCode.ILLEGAL_GENERATION


def test_the_group_is_classic_again_when_only_classic_members_are_left(bench: Any) -> None:
    first, second = classic_group(bench)
    member = Member(bench, "new")
    converge(first, second, member)
    bench.beat("new", -1)
    group = bench.classic()
    assert group.state is ClassicGroupState.PREPARING_REBALANCE
    # They have to join again, and get a leader.
    assert bench.heartbeat(first.member_id, group.generation_id) is ErrorCode.REBALANCE_IN_PROGRESS
    protocols = {"cooperative-sticky": ConsumerProtocolSubscription(topics=["topic"]).encode_versioned(1)}
    joins = [bench.join(each.member_id, protocols=protocols) for each in (first, second)]
    assert {each.result().error_code for each in joins} == {ErrorCode.NONE}
    assert joins[0].result().leader in (first.member_id, second.member_id)


def test_a_group_becomes_classic_when_the_last_consumer_members_session_ends(bench: Any) -> None:
    member = Member(bench, "new")
    classic = ClassicMember(bench)
    classic.join()
    converge(member, classic)
    for _ in range(10):
        bench.clock.advance(4_600)
        if bench.shard.find_classic("group") is None:
            classic.beat()
    assert set(bench.classic().members) == {classic.member_id}
    bench.restart()
    assert set(bench.classic().members) == {classic.member_id}


def test_a_converted_group_keeps_every_protocol_of_its_members(bench: Any, subscription: Any) -> None:
    Member(bench, "new")
    both = {"range": subscription("topic"), "cooperative-sticky": subscription("topic")}
    member_id, _ = bench.join_new(protocols=both)
    bench.beat("new", -1)
    # Only "cooperative-sticky" is common to both: it is not what the member likes best.
    _, joined = bench.join_new(protocols={"cooperative-sticky": subscription("topic")})
    bench.join(member_id, protocols=both)
    bench.clock.advance(1)
    assert joined.result().protocol_name == "cooperative-sticky"


def test_the_last_assignment_stands_in_the_classic_group(bench: Any) -> None:
    member = Member(bench, "new")
    classic = ClassicMember(bench)
    classic.join()
    converge(member, classic)
    bench.beat("new", -1)
    bench.restart()
    assert decoded(bench.classic().members[classic.member_id].assignment) == classic.numbers
    assert bench.classic().generation_id == 2


def test_an_empty_group_changes_its_protocol_with_its_next_member(bench: Any) -> None:
    Member(bench, "a")
    bench.beat("a", -1)
    members, _ = bench.stable_group(1)
    assert set(bench.classic().members) == set(members)
    bench.restart()
    assert set(bench.classic().members) == set(members)
    bench.leave(*members)
    bench.clock.run()
    assert bench.enter("b").error_code == ErrorCode.NONE
    bench.restart()
    assert set(bench.consumer_group().members) == {"b"}


@pytest.mark.parametrize(
    ("policy", "up", "down"),
    [
        (MigrationPolicy.DISABLED, False, False),
        (MigrationPolicy.UPGRADE, True, False),
        (MigrationPolicy.DOWNGRADE, False, True),
        (MigrationPolicy.BIDIRECTIONAL, True, True),
    ],
)
def test_what_the_policy_allows(make_bench: Any, policy: MigrationPolicy, up: bool, down: bool) -> None:
    bench = make_bench(migration_policy=policy)
    classic_group(bench)
    refused = bench.enter("new")
    assert (refused.error_code == ErrorCode.NONE) is up
    if not up:
        assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert refused.error_message == (
            "Cannot upgrade classic group group to consumer group because online upgrade is disabled."
        )
        assert bench.classic().state is STABLE

    bench = make_bench(migration_policy=policy)
    Member(bench, "new")
    classic = ClassicMember(bench)
    classic.join()
    bench.beat("new", -1)
    assert (bench.shard.find_classic("group") is not None) is down


def test_groups_that_are_not_of_consumers_are_not_converted(bench: Any) -> None:
    bench.join_new(protocol_type="connect")
    bench.clock.advance(10_000)
    refused = bench.enter("new")
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "does not use the consumer embedded protocol" in (refused.error_message or "")


def test_a_group_whose_members_say_nothing_that_can_be_read_is_not_converted(bench: Any) -> None:
    bench.join_new(protocols={"range": b"\0\1\0\0\0"})
    bench.clock.advance(10_000)
    refused = bench.enter("new")
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "malformed" in (refused.error_message or "")
    assert bench.classic().members


def test_a_classic_member_that_says_nothing_readable_does_not_join(bench: Any) -> None:
    Member(bench, "new")
    _, joined = bench.join_new(protocols={"range": b"\0"})
    assert joined.result().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.join("", protocol_type="connect").result().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_classic_static_member_replaces_the_last_consumer_member(bench: Any) -> None:
    member = Member(bench, "new", instance_id="i")
    back = bench.join("", instance="i").result()
    assert back.error_code == ErrorCode.NONE
    group = bench.classic()
    assert set(group.members) == {back.member_id}
    assert group.state is STABLE
    assert bench.sync(back.member_id, group.generation_id, instance="i").result().error_code == ErrorCode.NONE
    assert decoded(group.members[back.member_id].assignment) == member.numbers
    bench.restart()
    assert set(bench.classic().members) == {back.member_id}


def test_a_consumer_static_member_replaces_a_classic_one(bench: Any) -> None:
    later = bench.join("", instance="i")
    bench.clock.advance(10_000)
    old = later.result().member_id
    bench.sync(old, 1, {old: encoded(*ALL)}, instance="i")
    member = Member(bench, "new", instance_id="i")
    settle(member)
    assert set(bench.consumer_group().members) == {"new"}
    assert member.numbers == ALL
    assert bench.heartbeat(old, 1, instance="i") is ErrorCode.FENCED_INSTANCE_ID


def test_members_of_the_wrong_protocol_are_unknown(bench: Any) -> None:
    member = Member(bench, "new")
    assert bench.heartbeat("new", member.epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.sync("new", member.epoch).result().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.heartbeat("x", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_classic_members_leave_a_consumer_group(bench: Any) -> None:
    member = Member(bench, "new")
    classic = ClassicMember(bench)
    classic.join()
    converge(member, classic)
    assert bench.leave(classic.member_id, "nobody") == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    settle(member)
    assert member.numbers == ALL


def test_both_kinds_of_members_go_on_after_a_restart(bench: Any) -> None:
    first, second = classic_group(bench)
    member = Member(bench, "new")
    bench.restart()
    converge(first, second, member)
    bench.restart()
    converge(first, second, member, rounds=1)
    assert bench.consumer_group().classic_count == 2


def test_a_member_that_is_refused_leaves_the_classic_group_as_it_was(make_bench: Any) -> None:
    bench = make_bench(consumer_max_size=2)
    first, second = classic_group(bench)
    assert bench.enter("new").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert bench.heartbeat(first.member_id, first.generation) is ErrorCode.NONE
    bench.clock.advance(bench.session_ms - 1)
    bench.heartbeat(first.member_id, first.generation)
    bench.clock.advance(1)
    assert set(bench.classic().members) == {first.member_id}
    assert second.member_id not in bench.classic().members


def test_a_conversion_that_cannot_be_written_leaves_the_group_as_it_was(bench: Any) -> None:
    first, second = classic_group(bench)
    bench.writer.max_bytes = 700
    assert bench.enter("new").error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert bench.heartbeat(first.member_id, first.generation) is ErrorCode.NONE
    bench.writer.max_bytes = 1_048_588
    member = Member(bench, "new")
    converge(first, second, member)
    bench.writer.max_bytes = 700
    assert bench.beat("new", -1).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "new" in bench.consumer_group().members
    # Its session ends nevertheless: the group stays what it is.
    for _ in range(11):
        bench.clock.advance(4_500)
        if "new" in bench.consumer_group().members:
            converge(first, second, member, rounds=0)
            first.beat()
            second.beat()
    assert set(bench.consumer_group().members) == {first.member_id, second.member_id}


def test_a_group_that_goes_back_and_forth_forgets_the_timeouts_of_before(bench: Any) -> None:
    member = Member(bench, "new")
    classic = ClassicMember(bench)
    classic.join()
    converge(member, classic)
    for turn in range(4):
        bench.clock.advance(4_000)
        bench.beat(member.member_id, -1)
        protocols = {"cooperative-sticky": ConsumerProtocolSubscription(topics=["topic"]).encode_versioned(1)}
        joined = bench.join(classic.member_id, protocols=protocols).result()
        classic.generation = joined.generation_id
        classic.numbers = ALL
        bench.sync(classic.member_id, joined.generation_id, {classic.member_id: encoded(*ALL)})
        bench.clock.advance(4_000)
        member = Member(bench, f"new-{turn}")
        converge(member, classic)
        assert len(bench.consumer_group().members) == 2
    timers = bench.coordinator.runtime.timer
    assert len(timers) == 3, "the sessions of the two members, and the expiry of offsets"


def test_offsets_outlive_a_change_of_protocol_that_was_cut_off(bench: Any) -> None:
    Member(bench, "a")
    bench.commit({("topic", 0): 3}, version=9, member_id="a", generation_id=1)
    bench.beat("a", -1)
    _, joined = bench.join_new()
    assert not joined.done, "the classic group has not been written yet"
    bench.restart()
    assert bench.fetch()[("topic", 0)].offset == 3
    assert bench.enter("b").error_code == ErrorCode.NONE
    assert bench.fetch()[("topic", 0)].offset == 3


def test_what_a_classic_member_has_is_not_given_away_when_the_group_goes_back_and_forth(bench: Any) -> None:
    member = Member(bench, "new")
    classic = ClassicMember(bench)
    classic.join()
    converge(member, classic)
    had = set(classic.numbers)
    # The last consumer member goes before the classic one has heard that it is to get everything, and one comes.
    bench.beat("new", -1)
    other = Member(bench, "other")
    assert other.numbers.isdisjoint(had)
    settle(other)
    assert other.numbers.isdisjoint(had), "the classic member has not been heard of since"
    converge(other, classic)


def test_a_classic_member_in_a_consumer_members_place_has_no_expression(bench: Any) -> None:
    bench.snapshot = snapshot_of({"topic": 6, "other": 3})
    member = Member(bench, "new")
    bench.enter("pattern", instance_id="i", subscribed_topic_names=[], subscribed_topic_regex="o.*")
    bench.clock.advance(1)
    assert bench.consumer_group().resolved.keys() == {"o.*"}
    classic = ClassicMember(bench, instance="i")
    classic.join()
    converge(member, classic)
    group = bench.consumer_group()
    assert group.members[classic.member_id].topic_regex == ""
    assert not group.resolved
    assert group.subscriptions().topics == {"topic"}
    assert group.target[classic.member_id].keys() == {topic_id(bench)}
    assert member.numbers | classic.numbers == ALL


def test_members_of_a_converted_group_get_what_a_rebalance_under_way_would_have_given_them(bench: Any) -> None:
    first, second = classic_group(bench)
    protocols = {"cooperative-sticky": ConsumerProtocolSubscription(topics=["topic"]).encode_versioned(1)}
    member_id, joined = bench.join_new(protocols=protocols)
    # Who comes subscribes to nothing.
    bench.beat("new", 0, owned={}, subscribed_topic_names=[], rebalance_timeout_ms=bench.rebalance_ms)
    assert joined.result().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    third = ClassicMember(bench, member_id)
    third.join()
    converge(first, second, third)
    assert [len(each.numbers) for each in (first, second, third)] == [2, 2, 2]


def test_a_converted_group_sees_what_has_become_of_its_topics(bench: Any) -> None:
    first, second = classic_group(bench)
    bench.snapshot = snapshot_of({"topic": 8})
    bench.beat("new", 0, owned={}, subscribed_topic_names=[], rebalance_timeout_ms=bench.rebalance_ms)
    for _ in range(4):
        first.beat()
        second.beat()
    assert first.numbers | second.numbers == set(range(8))
    assert first.numbers.isdisjoint(second.numbers)
