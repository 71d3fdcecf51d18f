"""SyncGroup, Heartbeat, LeaveGroup and what a restart keeps of a classic group."""

from __future__ import annotations

from typing import Any

from kafkapy import errors
from kafkapy.coordinator.group.classic.group import ClassicGroupState
from kafkapy.errors import ErrorCode

Bench = Any


def joined(bench: Bench, count: int) -> tuple[list[str], int]:
    """Members that have joined a generation, the leader first, and not synced."""
    joins = [bench.join_new() for _ in range(count)]
    while not joins[0][1].done:
        bench.clock.advance(bench.delay_ms)
    answers = [later.result() for _, later in joins]
    leader = answers[0].leader
    return sorted((member for member, _ in joins), key=lambda each: each != leader), answers[0].generation_id


def test_followers_wait_for_the_leaders_assignment(bench: Bench) -> None:
    members, generation = joined(bench, 3)
    early = bench.sync(members[1], generation)
    assert not early.done
    leader = bench.sync(members[0], generation, {members[0]: b"l", members[1]: b"f"})
    assert leader.result().assignment == b"l"
    assert early.result().assignment == b"f"
    assert (early.result().protocol_type, early.result().protocol_name) == ("consumer", "range")
    late = bench.sync(members[2], generation)
    assert late.result().assignment == b""
    assert bench.classic().state is ClassicGroupState.STABLE
    assert [(event.generation_id, len(event.members)) for event in bench.events] == [(1, 3)]


def test_the_group_is_stable_only_when_the_assignment_is_committed(bench: Bench) -> None:
    members, generation = joined(bench, 2)
    bench.writer.replicate = False
    leader = bench.sync(members[0], generation, {each: each.encode() for each in members})
    follower = bench.sync(members[1], generation)
    assert not leader.done and not follower.done
    assert bench.classic().state is ClassicGroupState.COMPLETING_REBALANCE
    bench.writer.commit()
    assert leader.result().assignment == members[0].encode()
    assert follower.result().assignment == members[1].encode()


def test_an_assignment_that_is_not_committed_in_time_starts_a_rebalance(bench: Bench) -> None:
    members, generation = joined(bench, 2)
    bench.writer.replicate = False
    follower = bench.sync(members[1], generation)
    leader = bench.sync(members[0], generation, {each: each.encode() for each in members})
    bench.clock.advance(5001)
    assert isinstance(leader.error, errors.CoordinatorNotAvailableError)
    assert follower.result().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.classic().state is ClassicGroupState.PREPARING_REBALANCE
    assert [member.assignment for member in bench.classic().members.values()] == [b"", b""]


def test_an_assignment_too_large_for_the_log_starts_a_rebalance(bench: Bench) -> None:
    members, generation = joined(bench, 2)
    follower = bench.sync(members[1], generation)
    bench.sync(members[0], generation, {members[0]: bytes(2_000_000)})
    assert follower.result().error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert bench.classic().state is ClassicGroupState.PREPARING_REBALANCE


def test_a_join_during_the_assignment_ends_the_generation(bench: Bench) -> None:
    members, generation = joined(bench, 2)
    waiting = bench.sync(members[1], generation)
    bench.join_new()
    assert waiting.result().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.sync(members[0], generation).result().error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_syncs_of_strangers_and_of_other_generations_are_refused(bench: Bench) -> None:
    members, generation = bench.stable_group(1)
    assert bench.sync("nobody", generation).result().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.sync(members[0], generation + 1).result().error_code == ErrorCode.ILLEGAL_GENERATION
    assert bench.sync(members[0], generation, group="none").result().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    for wrong in ({"protocol_name": "other"}, {"protocol_type": "connect"}):
        answer = bench.sync(members[0], generation, **wrong).result()
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    right = bench.sync(members[0], generation, protocol_type="consumer", protocol_name="range").result()
    assert right.assignment == members[0].encode()


def test_members_that_do_not_sync_in_time_are_removed(bench: Bench) -> None:
    members, generation = joined(bench, 3)
    bench.sync(members[0], generation, dict.fromkeys(members, b"x"))
    bench.sync(members[1], generation)
    for _ in range(bench.rebalance_ms // 5000):
        bench.clock.advance(5000)
        for member in members:
            bench.heartbeat(member, generation)
    assert bench.classic().state is ClassicGroupState.PREPARING_REBALANCE
    assert list(bench.classic().members) == members[:2]


def test_a_leader_that_never_assigns_is_replaced(bench: Bench) -> None:
    members, generation = joined(bench, 2)
    waiting = bench.sync(members[1], generation)
    bench.clock.advance(bench.session_ms + 1)
    assert waiting.result().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    again = bench.join(members[1])
    assert again.result().leader == members[1]
    assert again.result().generation_id == generation + 1


# --- heartbeat ------------------------------------------------------------------------------------------------------


def test_heartbeats_keep_a_session_alive(bench: Bench) -> None:
    members, generation = bench.stable_group(2)
    for _ in range(5):
        bench.clock.advance(bench.session_ms - 1)
        for member in members:
            assert bench.heartbeat(member, generation) == ErrorCode.NONE
    bench.clock.advance(bench.session_ms + 1)
    assert bench.classic().members == {}


def test_a_silent_member_is_removed_and_the_others_rebalance(bench: Bench) -> None:
    members, generation = bench.stable_group(3)
    bench.clock.advance(bench.session_ms - 1)
    for member in members[:2]:
        bench.heartbeat(member, generation)
    bench.clock.advance(2)
    assert bench.heartbeat(members[0], generation) == ErrorCode.REBALANCE_IN_PROGRESS
    first, second = bench.join(members[0]), bench.join(members[1])
    assert first.result().generation_id == second.result().generation_id == generation + 1


def test_heartbeats_of_strangers_and_of_other_generations_are_refused(bench: Bench) -> None:
    members, generation = bench.stable_group(1)
    assert bench.heartbeat("nobody", generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.heartbeat(members[0], generation - 1) == ErrorCode.ILLEGAL_GENERATION
    assert bench.heartbeat(members[0], generation, group="none") == ErrorCode.UNKNOWN_MEMBER_ID


def test_offset_commits_count_as_heartbeats(bench: Bench) -> None:
    members, generation = bench.stable_group(1)
    for _ in range(3):
        bench.clock.advance(bench.session_ms - 1)
        bench.commit({("topic", 0): 1}, member_id=members[0], generation_id=generation)
    assert bench.heartbeat(members[0], generation) == ErrorCode.NONE


# --- leave ----------------------------------------------------------------------------------------------------------


def test_the_last_member_leaves_an_empty_group_of_a_new_generation(bench: Bench) -> None:
    members, generation = bench.stable_group(2)
    assert bench.leave(*members) == [ErrorCode.NONE, ErrorCode.NONE]
    assert [(each.generation_id, len(each.members)) for each in bench.events] == [(generation, 2), (generation + 1, 0)]
    group = bench.classic()
    assert (group.state, group.generation_id, group.protocol_name) == (
        ClassicGroupState.EMPTY,
        generation + 1,
        None,
    )
    bench.restart()
    assert (bench.classic().state, bench.classic().generation_id) == (ClassicGroupState.EMPTY, generation + 1)
    assert bench.classic().protocol_type == "consumer"


def test_a_member_that_leaves_makes_the_others_rebalance(bench: Bench) -> None:
    members, generation = bench.stable_group(2)
    assert bench.leave(members[0]) == [ErrorCode.NONE]
    assert bench.heartbeat(members[1], generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.join(members[1]).result().leader == members[1]


def test_each_leaving_member_gets_its_own_answer(bench: Bench) -> None:
    members, _ = bench.stable_group(2)
    pending = bench.join().result().member_id
    assert bench.leave(members[0], "nobody", pending) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    assert bench.leave("x", group="none") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert bench.join(pending).result().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_missing_member_that_leaves_completes_the_rebalance(bench: Bench) -> None:
    members, _ = bench.stable_group(2)
    again = bench.join(members[0])
    assert not again.done
    bench.leave(members[1])
    assert again.result().error_code == 0


# --- restart --------------------------------------------------------------------------------------------------------


def test_a_stable_group_is_stable_after_a_restart(bench: Bench) -> None:
    members, generation = bench.stable_group(3)
    before = bench.shard.describe_classic(bench.group)
    bench.restart()
    assert bench.shard.describe_classic(bench.group) == before
    for member in members:
        assert bench.heartbeat(member, generation) == ErrorCode.NONE
        assert bench.sync(member, generation).result().assignment == member.encode()
    assert bench.join(members[1]).result().generation_id == generation
    bench.clock.advance(bench.session_ms + 1)
    assert bench.classic().members == {}


def test_an_unfinished_generation_falls_back_to_the_last_one_written(bench: Bench) -> None:
    members, generation = bench.stable_group(1)
    bench.join_new()
    bench.join(members[0])
    assert bench.classic().generation_id == generation + 1
    bench.restart()
    assert bench.classic().generation_id == generation
    assert bench.heartbeat(members[0], generation) == ErrorCode.NONE


def test_losing_the_partition_answers_everybody_who_waits(bench: Bench) -> None:
    members, generation = joined(bench, 2)
    _, other = bench.join_new(group="other")
    waiting = bench.sync(members[1], generation)
    bench.coordinator.runtime.stop()
    assert waiting.result().error_code == ErrorCode.NOT_COORDINATOR
    assert other.result().error_code == ErrorCode.NOT_COORDINATOR


def test_a_thousand_members_settle(bench: Bench) -> None:
    bench.stable_group(1000)
    assert len(bench.classic().members) == 1000
    assert bench.classic().state is ClassicGroupState.STABLE
    assert bench.clock.alarms == 1
