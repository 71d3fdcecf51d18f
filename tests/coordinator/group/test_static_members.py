"""Static membership: group.instance.id, fencing, and restarts without a rebalance (KIP-345, KIP-814)."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.coordinator.group.classic.group import ClassicGroupState
from kafkapy.errors import ErrorCode

Bench = Any


def stable(bench: Bench, *instances: str, **how: Any) -> tuple[dict[str, str], int]:
    """A stable group of static members: id by instance, the first one leads; and the generation."""
    joins = {each: bench.join(instance=each, **how) for each in instances}
    for _ in range(len(instances) + 1):
        bench.clock.advance(bench.delay_ms)
    answers = {each: later.result() for each, later in joins.items()}
    generation = answers[instances[0]].generation_id
    ids = {each: answer.member_id for each, answer in answers.items()}
    for each in reversed(instances):
        assignments = {ids[name]: name.encode() for name in instances} if each == instances[0] else None
        last = bench.sync(ids[each], generation, assignments, instance=each)
    assert last.result().error_code == 0
    return ids, generation


def test_a_static_member_joins_in_one_step_and_is_named_after_its_instance(bench: Bench) -> None:
    ids, _ = stable(bench, "one")
    assert ids["one"].startswith("one-")


@pytest.mark.parametrize("version", [5, 9])
def test_a_follower_that_restarts_keeps_its_place_without_a_rebalance(bench: Bench, version: int) -> None:
    ids, generation = stable(bench, "one", "two")
    back = bench.join(instance="two", version=version).result()
    assert back.error_code == 0
    assert back.generation_id == generation
    assert back.member_id != ids["two"]
    assert (back.leader, back.members, back.skip_assignment) == (ids["one"], [], False)
    assert bench.classic().state is ClassicGroupState.STABLE
    assert bench.sync(back.member_id, generation, instance="two").result().assignment == b"two"


def test_a_leader_that_restarts_is_told_to_skip_the_assignment(bench: Bench) -> None:
    _ids, generation = stable(bench, "one", "two")
    back = bench.join(instance="one").result()
    assert (back.leader, back.skip_assignment, len(back.members)) == (back.member_id, True, 2)
    assert bench.classic().state is ClassicGroupState.STABLE
    assert bench.sync(back.member_id, generation, instance="one").result().assignment == b"one"


def test_a_leader_of_old_is_not_told_that_it_leads(bench: Bench) -> None:
    ids, _ = stable(bench, "one", "two")
    back = bench.join(instance="one", version=8).result()
    assert (back.leader, back.skip_assignment, back.members) == (ids["one"], False, [])


def test_the_id_that_was_replaced_is_fenced(bench: Bench) -> None:
    ids, generation = stable(bench, "one", "two")
    bench.join(instance="two")
    old = ids["two"]
    assert bench.heartbeat(old, generation, instance="two") == ErrorCode.FENCED_INSTANCE_ID
    assert bench.sync(old, generation, instance="two").result().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert bench.join(old, instance="two").result().error_code == ErrorCode.FENCED_INSTANCE_ID
    fenced = bench.commit({("topic", 0): 1}, member_id=old, generation_id=generation, group_instance_id="two")
    assert fenced == ErrorCode.FENCED_INSTANCE_ID
    assert bench.heartbeat(old, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.heartbeat(ids["one"], generation, instance="three") == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_replacement_survives_a_restart_of_the_broker(bench: Bench) -> None:
    ids, generation = stable(bench, "one", "two")
    back = bench.join(instance="two").result()
    bench.restart()
    assert bench.heartbeat(back.member_id, generation, instance="two") == ErrorCode.NONE
    assert bench.heartbeat(ids["two"], generation, instance="two") == ErrorCode.FENCED_INSTANCE_ID
    assert bench.sync(back.member_id, generation, instance="two").result().assignment == b"two"


def test_a_waiting_join_of_the_old_id_is_fenced(bench: Bench) -> None:
    ids, _ = stable(bench, "one", "two")
    waiting = bench.join(ids["one"], instance="one")
    assert not waiting.done
    bench.join(instance="one")
    assert waiting.result().error_code == ErrorCode.FENCED_INSTANCE_ID


def test_another_protocol_of_the_restarted_member_starts_a_rebalance(bench: Bench) -> None:
    stable(bench, "one", protocols={"a": b"", "b": b""})
    later = bench.join(instance="one", protocols={"b": b""})
    assert later.result().generation_id == 2
    assert later.result().protocol_name == "b"


def test_a_restart_during_the_assignment_starts_a_rebalance(bench: Bench) -> None:
    joins = [bench.join(instance=each) for each in ("one", "two")]
    for _ in range(3):
        bench.clock.advance(bench.delay_ms)
    generation = joins[0].result().generation_id
    waiting = bench.sync(joins[1].result().member_id, generation, instance="two")
    back = bench.join(instance="two")
    assert waiting.result().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert not back.done
    bench.join(joins[0].result().member_id, instance="one")
    assert back.result().generation_id == generation + 1


def test_an_absent_static_member_keeps_its_place_until_its_session_ends(bench: Bench) -> None:
    ids, generation = stable(bench, "one", "two", session_ms=60_000)
    _newcomer, joined = bench.join_new(session_ms=60_000)
    first = bench.join(ids["one"], instance="one", session_ms=60_000)
    bench.clock.advance(bench.rebalance_ms + 1)
    assert first.result().generation_id == generation + 1
    assert ids["two"] in {each.member_id for each in first.result().members}
    assert joined.result().error_code == 0


def test_when_only_absent_static_members_are_left_their_sessions_decide(bench: Bench) -> None:
    ids, _generation = stable(bench, "one", "two", session_ms=100_000)
    bench.join_new(session_ms=6_000)
    bench.leave(*[each for each in bench.classic().members if each not in ids.values()])
    bench.clock.advance(bench.rebalance_ms * 2)
    assert set(bench.classic().members) == set(ids.values())
    assert bench.classic().state is ClassicGroupState.PREPARING_REBALANCE
    bench.clock.advance(100_001)
    assert bench.classic().members == {}
    assert bench.classic().state is ClassicGroupState.EMPTY


def test_an_administrator_removes_a_member_by_its_instance(bench: Bench) -> None:
    ids, generation = stable(bench, "one", "two")
    assert bench.leave(instances=("two", "three")) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert bench.heartbeat(ids["one"], generation, instance="one") == ErrorCode.REBALANCE_IN_PROGRESS
    assert set(bench.classic().static_members) == {"one"}


def test_a_leader_that_is_absent_gives_the_lead_to_one_that_has_joined(bench: Bench) -> None:
    ids, generation = stable(bench, "one", "two", session_ms=60_000)
    newcomer, joined = bench.join_new(session_ms=60_000)
    second = bench.join(ids["two"], instance="two", session_ms=60_000)
    bench.clock.advance(bench.rebalance_ms + 1)
    answers = {ids["two"]: second.result(), newcomer: joined.result()}
    assert {answer.generation_id for answer in answers.values()} == {generation + 1}
    (leader,) = {answer.leader for answer in answers.values()}
    assert leader in answers, "who is absent cannot assign anything"
    members = {name: {each.member_id for each in answer.members} for name, answer in answers.items()}
    assert members.pop(leader) == {*ids.values(), newcomer}
    assert list(members.values()) == [set()]


def test_a_member_that_restarts_before_its_sync_still_owes_it(bench: Bench) -> None:
    joins = [bench.join(instance=each) for each in ("one", "two")]
    for _ in range(3):
        bench.clock.advance(bench.delay_ms)
    first, second = (each.result() for each in joins)
    bench.sync(first.member_id, first.generation_id, {first.member_id: b"1", second.member_id: b"2"}, instance="one")
    assert bench.classic().state is ClassicGroupState.STABLE
    back = bench.join(instance="two").result()
    assert (back.error_code, back.generation_id) == (0, first.generation_id)
    assert bench.classic().pending_sync == {back.member_id}
    assert bench.sync(back.member_id, back.generation_id, instance="two").result().assignment == b"2"
    assert bench.classic().pending_sync == set()
