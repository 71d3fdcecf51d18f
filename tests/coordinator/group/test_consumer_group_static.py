"""Static members of consumer groups: they leave for a while, come back under a new id, and are fenced (KIP-345)."""

from __future__ import annotations

from typing import Any

from coordinator.group.consumer_client import SESSION_MS, Member, assigned, settle, topic_id

from kafkapy.coordinator.group.consumer.member import MemberState
from kafkapy.errors import ErrorCode


def test_who_left_for_a_while_gets_its_partitions_back_without_an_epoch(bench: Any) -> None:
    members = [Member(bench, "a", instance_id="i"), Member(bench, "b", instance_id="j")]
    settle(*members)
    had = members[0].owned
    left = bench.beat("a", -2, instance_id="i")
    assert (left.error_code, left.member_id, left.member_epoch) == (ErrorCode.NONE, "a", -2)
    settle(members[1])
    assert members[1].numbers.isdisjoint(*had.values())

    back = bench.enter("c", instance_id="i")
    assert back.member_epoch == 2
    assert assigned(back) == had
    assert bench.consumer_group().epoch == 2
    assert set(bench.consumer_group().members) == {"b", "c"}


def test_who_does_not_come_back_loses_its_partitions_with_its_session(bench: Any) -> None:
    members = [Member(bench, "a", instance_id="i"), Member(bench, "b")]
    settle(*members)
    bench.beat("a", -2, instance_id="i")
    bench.clock.advance(SESSION_MS - 1)
    settle(members[1])
    assert len(members[1].numbers) == 3
    bench.clock.advance(1)
    settle(members[1])
    assert members[1].numbers == set(range(6))


def test_an_instance_id_is_not_given_to_another_while_its_member_is_there(bench: Any) -> None:
    Member(bench, "a", instance_id="i")
    refused = bench.enter("b", instance_id="i")
    assert refused.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert refused.error_message == (
        "Static member b with instance id i cannot join the group because the instance id is owned by a member."
    )
    bench.clock.advance(SESSION_MS)
    assert bench.enter("b", instance_id="i").error_code == ErrorCode.NONE


def test_who_was_replaced_is_fenced(bench: Any) -> None:
    Member(bench, "a", instance_id="i")
    bench.beat("a", -2, instance_id="i")
    bench.enter("b", instance_id="i")
    for epoch in (1, -1, -2):
        assert bench.beat("a", epoch, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert bench.beat("a", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_instance_id_that_nobody_has_is_unknown(bench: Any) -> None:
    Member(bench, "a")
    assert bench.beat("b", 1, instance_id="i").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.beat("b", -2, instance_id="i").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_leaves_for_good_makes_room(bench: Any) -> None:
    members = [Member(bench, "a", instance_id="i"), Member(bench, "b")]
    settle(*members)
    assert bench.beat("a", -1, instance_id="i").error_code == ErrorCode.NONE
    settle(members[1])
    assert members[1].numbers == set(range(6))
    assert bench.consumer_group().static_members == {}


def test_who_comes_back_with_other_topics_gets_those(bench: Any) -> None:
    member = Member(bench, "a", instance_id="i")
    bench.beat("a", -2, instance_id="i")
    back = Member(bench, "b", "none", instance_id="i")
    settle(back)
    assert back.owned == {}
    assert bench.consumer_group().epoch == 2
    assert member.owned == {topic_id(bench): frozenset(range(6))}


def test_a_static_member_is_known_after_a_restart(bench: Any) -> None:
    member = Member(bench, "a", instance_id="i")
    bench.beat("a", -2, instance_id="i")
    bench.restart()
    back = bench.enter("b", instance_id="i")
    assert assigned(back) == member.owned
    bench.restart()
    assert set(bench.consumer_group().members) == {"b"}
    assert bench.consumer_group().static_members == {"i": "b"}


def test_who_left_while_it_gave_up_partitions_is_waited_for_until_its_session_ends(bench: Any) -> None:
    Member(bench, "a", instance_id="i", rebalance_ms=5_000)
    Member(bench, "b")
    bench.beat("a", 1, instance_id="i")
    assert bench.consumer_group().members["a"].state is MemberState.UNREVOKED_PARTITIONS
    bench.beat("a", -2, instance_id="i")
    bench.restart()
    bench.clock.advance(SESSION_MS - 1)
    assert "a" in bench.consumer_group().members
    bench.clock.advance(1)
    assert "a" not in bench.consumer_group().members


def test_who_comes_back_under_the_same_id_has_a_session_again(bench: Any) -> None:
    Member(bench, "a", instance_id="i")
    bench.beat("a", -2, instance_id="i")
    back = bench.enter("a", instance_id="i")
    assert back.error_code == ErrorCode.NONE
    bench.clock.advance(SESSION_MS)
    assert bench.consumer_group().members == {}
