"""Joining a classic group: generations, leaders, protocols, timeouts."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.coordinator.group.classic.group import ClassicGroupState
from kafkapy.errors import ErrorCode

Bench = Any


def test_a_new_member_is_given_an_id_and_told_to_come_back(bench: Bench) -> None:
    answer = bench.join(client="app").result()
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("app-") and len(answer.member_id) == len("app-") + 36
    assert answer.generation_id == -1
    joined = bench.join(answer.member_id)
    assert not joined.done
    bench.clock.advance(bench.delay_ms)
    assert joined.result().error_code == 0
    assert joined.result().generation_id == 1
    assert joined.result().leader == joined.result().member_id == answer.member_id
    assert [each.member_id for each in joined.result().members] == [answer.member_id]


def test_old_clients_join_in_one_step(bench: Bench) -> None:
    joined = bench.join(version=3)
    bench.clock.advance(bench.delay_ms)
    assert joined.result().error_code == 0


def test_an_id_that_nobody_came_back_with_is_given_up(bench: Bench) -> None:
    member = bench.join().result().member_id
    bench.clock.advance(bench.session_ms + 1)
    assert bench.join(member).result().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_unknown_member_of_an_unknown_group_is_refused(bench: Bench) -> None:
    assert bench.join("nobody").result().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.shard.groups == {}


def test_the_first_rebalance_waits_for_more_members_as_long_as_they_come(bench: Bench) -> None:
    _, first = bench.join_new()
    bench.clock.advance(bench.delay_ms - 100)
    _, second = bench.join_new()
    bench.clock.advance(200)
    assert not first.done
    bench.clock.advance(bench.delay_ms)
    assert first.result().generation_id == second.result().generation_id == 1
    assert len(first.result().members) == 2 and second.result().members == []
    assert second.result().leader == first.result().member_id


def test_the_first_rebalance_does_not_wait_longer_than_the_rebalance_timeout(bench: Bench) -> None:
    _, first = bench.join_new(rebalance_ms=5000)
    for _ in range(10):
        bench.join_new(rebalance_ms=5000)
        bench.clock.advance(1000)
        if first.done:
            break
    assert first.done
    assert bench.clock.monotonic_ms() <= 9000


def test_a_member_that_joins_a_stable_group_makes_everybody_join_again(bench: Bench) -> None:
    members, generation = bench.stable_group(2)
    _newcomer, joined = bench.join_new()
    assert bench.classic().state is ClassicGroupState.PREPARING_REBALANCE
    again = []
    for member in members:
        assert bench.heartbeat(member, generation) == ErrorCode.REBALANCE_IN_PROGRESS
        assert not joined.done
        again.append(bench.join(member))
    for answer in [joined, *again]:
        assert answer.result().generation_id == generation + 1
        assert answer.result().leader == members[0]
    assert len(again[0].result().members) == 3


def test_members_that_do_not_join_again_in_time_are_removed(bench: Bench) -> None:
    members, generation = bench.stable_group(2, session_ms=60_000)
    newcomer, joined = bench.join_new(session_ms=60_000)
    bench.clock.advance(bench.rebalance_ms + 1)
    assert joined.result().generation_id == generation + 1
    assert joined.result().leader == newcomer
    assert list(bench.classic().members) == [newcomer]
    assert bench.heartbeat(members[0], generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_joins_again_starts_a_rebalance_a_follower_does_not(bench: Bench) -> None:
    members, generation = bench.stable_group(2)
    follower = bench.join(members[1]).result()
    assert (follower.error_code, follower.generation_id, follower.members) == (0, generation, [])
    assert follower.leader == members[0]
    leader = bench.join(members[0])
    assert not leader.done
    assert bench.classic().state is ClassicGroupState.PREPARING_REBALANCE


def test_a_follower_with_new_metadata_starts_a_rebalance(bench: Bench, subscription: Any) -> None:
    members, generation = bench.stable_group(2)
    later = bench.join(members[1], protocols={"range": subscription("topic", "other")})
    assert not later.done
    bench.join(members[0])
    assert later.result().generation_id == generation + 1
    assert bench.classic().subscribed_topics == {"topic", "other"}


def test_a_lost_join_answer_is_repeated(bench: Bench) -> None:
    member, _joined = bench.join_new()
    bench.clock.advance(bench.delay_ms)
    again = bench.join(member).result()
    assert (again.generation_id, again.leader, len(again.members)) == (1, member, 1)


def test_the_earlier_of_two_waiting_joins_is_answered(bench: Bench) -> None:
    member, first = bench.join_new()
    second = bench.join(member)
    assert first.result().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    bench.clock.advance(bench.delay_ms)
    assert second.result().error_code == 0
    assert bench.classic().awaiting_join_count == 0


def test_a_new_member_that_never_hears_an_answer_is_given_up_after_five_minutes(make_bench: Any) -> None:
    bench = make_bench(initial_rebalance_delay_ms=10 * 60 * 1000)
    _, joined = bench.join_new(rebalance_ms=60 * 60 * 1000)
    bench.clock.advance(5 * 60 * 1000 + 1)
    assert joined.result().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.classic().members == {}


# --- protocols ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how",
    [
        {"protocol_type": "connect"},
        {"protocols": {"unknown": b""}},
        {"protocols": {}},
        {"protocol_type": ""},
    ],
)
def test_a_member_must_share_a_protocol_with_all_others(bench: Bench, how: dict[str, Any]) -> None:
    bench.stable_group(1)
    answer = bench.join(**how).result()
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.classic().state is ClassicGroupState.STABLE


@pytest.mark.parametrize("how", [{"protocols": {}}, {"protocol_type": ""}])
def test_the_first_member_must_have_a_protocol(bench: Bench, how: dict[str, Any]) -> None:
    assert bench.join(**how).result().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.shard.groups == {}


def test_the_protocol_that_most_members_prefer_is_chosen(bench: Bench) -> None:
    wishes = [{"a": b"1", "b": b"2"}, {"b": b"3", "a": b"4"}, {"b": b"5", "c": b"6", "a": b"7"}]
    joins = [bench.join_new(protocols=wish) for wish in wishes]
    for _ in range(3):
        bench.clock.advance(bench.delay_ms)
    answers = [later.result() for _, later in joins]
    assert {answer.protocol_name for answer in answers} == {"b"}
    assert [member.metadata for member in answers[0].members] == [b"2", b"3", b"5"]


def test_a_protocol_that_not_all_support_is_never_chosen(bench: Bench) -> None:
    wishes = [{"b": b"", "a": b""}, {"b": b"", "a": b""}, {"a": b""}]
    joins = [bench.join_new(protocols=wish) for wish in wishes]
    for _ in range(3):
        bench.clock.advance(bench.delay_ms)
    assert joins[0][1].result().protocol_name == "a"


def test_an_empty_group_can_change_its_protocol_type(bench: Bench) -> None:
    members, _ = bench.stable_group(1)
    bench.leave(*members)
    _, joined = bench.join_new(protocol_type="connect", protocols={"default": b""})
    bench.clock.advance(bench.delay_ms)
    assert joined.result().protocol_type == "connect"
    assert joined.result().generation_id == 3


# --- size -----------------------------------------------------------------------------------------------------------


def test_a_full_group_takes_nobody_else(make_bench: Any) -> None:
    bench = make_bench(max_size=2)
    members, generation = bench.stable_group(2)
    assert bench.join().result().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert bench.heartbeat(members[0], generation) == ErrorCode.NONE


def test_a_group_that_is_too_large_after_loading_rebalances_and_drops_the_last(make_bench: Any) -> None:
    bench = make_bench()
    members, _ = bench.stable_group(3)
    bench.restart(max_size=2)
    bench.clock.advance(1)
    assert bench.classic().state is ClassicGroupState.PREPARING_REBALANCE
    first, second = bench.join(members[0]), bench.join(members[1])
    assert bench.join(members[2]).result().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert first.result().error_code == second.result().error_code == 0
    assert list(bench.classic().members) == members[:2]
