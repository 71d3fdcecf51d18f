"""The steps of a classic member in a generation: its assignment, its heartbeats, its end."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any

import pytest
from clients.consumer.membership.fake_core import COOPERATIVE, Run, tps
from clients.consumer.membership.test_classic_steps import GONE, MINE, NOBODY, OTHER, STAYS, Bench, slept

from kafkapy.clients.consumer.membership.classic import ClassicMembership
from kafkapy.clients.consumer.membership.generation import NO_GENERATION, Generation, MemberState
from kafkapy.clients.consumer.membership.protocol import Assignment, ConsumerGroupMetadata, encode_assignment
from kafkapy.errors import (
    ErrorCode,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    IllegalStateError,
    error_for,
)
from kafkapy.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkapy.protocol.messages.leave_group import LeaveGroupResponse

__all__ = ["slept"]


# --- assignments --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoded", [b"", b"\0", b"\0\0"])
def test_an_assignment_has_at_least_a_version(run: Run, encoded: bytes) -> None:
    async def scenario() -> None:
        bench = Bench()
        with pytest.raises(Exception) as raised:
            await bench.member._complete(encoded)
        assert (raised.type is IllegalStateError) is (len(encoded) < 2)

    run(scenario())


@pytest.mark.parametrize("cooperative", [False, True])
@pytest.mark.parametrize("leads", [False, True])
def test_an_assignment_is_adopted(run: Run, cooperative: bool, leads: bool) -> None:
    async def scenario() -> None:
        bench = Bench(**(COOPERATIVE if cooperative else {}))
        member = bench.member
        member._generation = MINE._replace(assignor="cooperative-sticky" if cooperative else "range")
        member._is_leader = leads
        member._watched = frozenset("ab")
        member._joined_topics = frozenset("a")
        bench.own("a0 a1")
        await member._complete(encode_assignment(Assignment(tuple(sorted(tps("a1 a2"))))))
        told = [("assigned", "a2")]
        assert bench.core.events == ([("revoked", "a0"), *told] if cooperative else told)
        assert bench.core.subscription.assigned == tps("a1 a2")
        # A cooperative member that has given something up joins again, so that another member gets it.
        assert (member._rejoin_needed, member.ready) == (cooperative, not cooperative)
        assert (bench.polls, bench.wakes) == (1, 1)
        assert member._watched == (frozenset("ab") if leads else frozenset())
        assert member._joined_topics == frozenset("a")
        assert bench.core.subscription.topics == {"a"}
        assert member.group_metadata() == ConsumerGroupMetadata("orders", 4, "m1", None, "<stable>")

    run(scenario())


def test_topics_that_only_the_leader_knew_belong_to_the_pattern(run: Run) -> None:
    async def scenario() -> None:
        for joined in (frozenset("a"), None):
            bench = Bench()
            subscription = bench.core.subscription
            subscription.unsubscribe()
            subscription.subscribe_pattern(re.compile(".*"), None)
            subscription.subscribe_matching({"a"})
            bench.member._joined_topics = joined
            await bench.member._complete(encode_assignment(Assignment(tuple(sorted(tps("a0 b0"))))))
            assert subscription.topics == ({"a", "b"} if joined else {"a"})
            assert bench.member._joined_topics == (frozenset("ab") if joined else None)

    run(scenario())


# --- heartbeats ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left_s", "timeout_ms"), [(100.0, 30_000), (20.0, 20_000), (0.0015, 1), (0.0004, 45_000), (-1.0, 45_000)]
)
def test_a_heartbeat_waits_no_longer_than_its_session(
    run: Run, left_s: float, timeout_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkapy.clients.consumer.membership.heartbeat.time", SimpleNamespace(monotonic=lambda: 1000.0))

    async def scenario() -> None:
        bench = Bench(**{"request.timeout.ms": 60_000 if timeout_ms == 45_000 else 30_000, "group.instance.id": "i"})
        timer = bench.member._heartbeat
        timer._session_ends_at = 1000.0 + left_s
        timer._due_at = 0.0
        bench.coordinator.answers = [HeartbeatResponse()]
        await bench.member._beat()
        sent = HeartbeatRequest(group_id="orders", generation_id=4, member_id="m1", group_instance_id="i")
        assert bench.coordinator.asked == [(sent, timeout_ms)]
        assert (timer._sent_at, timer.due_in_s, timer.session_left_s) == (1000.0, 3.0, 45.0)
        assert bench.left() == STAYS

    run(scenario())


@pytest.mark.parametrize(
    ("state", "again", "rejoins"),
    [
        (MemberState.STABLE, MINE, True),
        (MemberState.STABLE, OTHER, False),
        (MemberState.COMPLETING_REBALANCE, MINE, False),
        (MemberState.PREPARING_REBALANCE, MINE, False),
    ],
)
def test_a_heartbeat_tells_of_a_rebalance(run: Run, state: MemberState, again: Generation, rejoins: bool) -> None:
    async def scenario() -> None:
        for needed in (False, True):
            bench = Bench(state)
            member = bench.member
            member._rejoin_needed = needed

            def meanwhile(member: ClassicMembership = member) -> None:
                member._generation = again

            bench.coordinator.meanwhile = meanwhile
            bench.coordinator.answers = [HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)]
            member._heartbeat._session_ends_at = 0.0
            await member._beat()
            assert (member._rejoin_needed, member.ready) == (rejoins or needed, not rejoins or needed)
            assert member._rejoin_reason == ("group is already rebalancing" if rejoins and not needed else "")
            assert member._heartbeat.session_left_s > 0  # the coordinator knows the member
            assert bench.coordinator.heard == []

    run(scenario())


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("code", [*GONE, ErrorCode.FENCED_INSTANCE_ID])
def test_a_heartbeat_tells_that_the_member_is_none(run: Run, code: ErrorCode, changed: bool) -> None:
    async def scenario() -> None:
        bench = Bench()
        member = bench.member

        def meanwhile() -> None:
            member._generation = OTHER

        if changed:
            bench.coordinator.meanwhile = meanwhile
        bench.coordinator.answers = [HeartbeatResponse(error_code=code)]
        await member._beat()
        assert bench.coordinator.heard == [code]
        if changed:
            assert (bench.left(), member.error) == ((MemberState.STABLE, OTHER, False, True), None)
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            assert type(member.error) is FencedInstanceIdError
        else:
            left = NO_GENERATION if code is ErrorCode.UNKNOWN_MEMBER_ID else NOBODY
            assert (bench.left(), member.error) == ((MemberState.UNJOINED, left, True, False), None)

    run(scenario())


@pytest.mark.parametrize(
    ("answer", "reported"),
    [
        (error_for(ErrorCode.NETWORK_EXCEPTION), False),
        (GroupAuthorizationFailedError("x"), True),
        (HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR), False),
        (HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED), True),
    ],
)
def test_a_heartbeat_that_fails_is_for_the_user_if_no_retry_helps(run: Run, answer: Any, reported: bool) -> None:
    async def scenario() -> None:
        bench = Bench()
        member = bench.member
        bench.coordinator.answers = [answer]
        member._polled.set()
        beat = asyncio.ensure_future(member._beat())
        for _ in range(5):
            await asyncio.sleep(0)
        assert [type(error) for error in bench.core.errors] == ([GroupAuthorizationFailedError] if reported else [])
        # The next poll raises it; until then nothing is sent.
        assert beat.done() is not reported
        member.poll_called()
        await beat
        assert member._heartbeat._failures == (0 if isinstance(answer, GroupAuthorizationFailedError) else 1)
        assert bench.left() == STAYS

    run(scenario())


# --- polls and the end --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", list(MemberState))
def test_a_member_whose_user_does_not_poll_leaves(run: Run, state: MemberState, slept: list[float]) -> None:
    async def scenario() -> None:
        bench = Bench(state)
        bench.coordinator.answers = [LeaveGroupResponse()]
        left_s = iter([5.0, 0.0])
        bench.member._polls = SimpleNamespace(left_s=0.0)  # type: ignore[assignment]

        class Polls:
            @property
            def left_s(self) -> float:
                return next(left_s, -1.0)

        bench.member._polls = Polls()  # type: ignore[assignment]
        watch = asyncio.ensure_future(bench.member._watch_polls())
        for _ in range(5):
            await asyncio.sleep(0)
        assert slept == [5.0]
        in_group = state in (MemberState.STABLE, MemberState.COMPLETING_REBALANCE)
        assert len(bench.coordinator.asked) == int(in_group)
        assert not watch.done()  # it waits for the next join
        assert (bench.member._generation == NO_GENERATION) is in_group
        watch.cancel()
        await asyncio.wait({watch})

    run(scenario())


@pytest.mark.parametrize(
    ("known", "state", "member_id", "instance", "tells"),
    [
        (True, MemberState.STABLE, "m1", None, True),
        (True, MemberState.PREPARING_REBALANCE, "m1", None, True),
        (False, MemberState.STABLE, "m1", None, False),
        (True, MemberState.UNJOINED, "m1", None, False),
        (True, MemberState.STABLE, "", None, False),
        (True, MemberState.STABLE, "m1", "i", False),
    ],
)
def test_who_tells_the_coordinator_that_it_leaves(
    run: Run, known: bool, state: MemberState, member_id: str, instance: str | None, tells: bool
) -> None:
    async def scenario() -> None:
        for answer in (LeaveGroupResponse(), LeaveGroupResponse(error_code=25), error_for(ErrorCode.NETWORK_EXCEPTION)):
            bench = Bench(state, **({"group.instance.id": instance} if instance else {}))
            bench.coordinator.known = known
            bench.member._generation = MINE._replace(member_id=member_id)
            bench.coordinator.answers = [answer]
            await bench.member._leave_group("bye")
            assert bench.left() == (MemberState.UNJOINED, NO_GENERATION, True, False)
            assert bench.member._rejoin_reason == "consumer pro-actively leaving the group"
            assert len(bench.coordinator.asked) == int(tells)
            if tells:
                (request, _) = bench.coordinator.asked[0]
                assert (request.kind if hasattr(request, "kind") else request).API_KEY == 13

    run(scenario())


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("state", [MemberState.STABLE, MemberState.PREPARING_REBALANCE])
@pytest.mark.parametrize("owned", ["", "a0 a1"])
def test_the_listener_is_told_what_a_member_leaves(run: Run, outside: bool, state: MemberState, owned: str) -> None:
    async def scenario() -> None:
        bench = Bench(state)
        member = bench.member
        bench.own(owned)
        member._joined_topics, member._watched = frozenset("a"), frozenset("a")
        if outside:
            member._generation = NOBODY
        bench.coordinator.answers = [LeaveGroupResponse()]
        await member.leave("bye")
        assert bench.core.events == []  # it has no tasks: nothing has begun
        member._begin([asyncio.Event().wait()])
        await member.leave("bye")
        kind = "lost" if outside or state is not MemberState.STABLE else "revoked"
        assert bench.core.events == ([(kind, owned)] if owned else [])
        assert bench.core.subscription.assigned == set()
        assert (member._joined_topics, member._watched, member.ready) == (None, frozenset(), False)
        assert len(bench.coordinator.asked) == 1

    run(scenario())
