"""How members of the classic protocol leave, of their own accord or as their user does not poll."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from clients.consumer.membership.fake_core import HEARTBEAT, JOIN, LEAVE, Run, commits_all, group, joined, tps
from clients.fake_broker import eventually

from kafkapy.errors import ErrorCode
from kafkapy.protocol.registry import ApiKeys


def test_a_member_that_leaves_commits_tells_the_listener_and_says_so(run: Run) -> None:
    async def scenario() -> None:
        async with group() as (core, coordinator):
            await joined(core)
            commits_all(core, 9)
            await core.member.leave("the consumer is being closed")
            assert core.events[1:] == [("revoked", "a0 a1 a2")]
            assert coordinator.committed == {("a", 0): 9, ("a", 1): 9, ("a", 2): 9}
            [left] = coordinator.seen(LEAVE)
            [member] = left.members
            assert (member.member_id, member.reason) == ("m1", "the consumer is being closed")
            assert core.subscription.assigned == set()
            # It may come back.
            await joined(core)
            assert coordinator.seen(JOIN)[2].member_id == ""
            assert core.subscription.assigned == tps("a0 a1 a2")

    run(scenario())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_who_has_not_joined_has_nothing_to_leave(run: Run, protocol: str) -> None:
    async def scenario() -> None:
        async with group(**{"group.protocol": protocol}) as (core, coordinator):
            await core.member.leave("bye")
            await core.member.start()
            await core.member.start()
            await eventually(lambda: core.member.ready)
            await core.member.leave("bye")
            await core.member.leave("bye")
            left = len(coordinator.seen(LEAVE))
            goodbyes = [each for each in coordinator.seen(ApiKeys.CONSUMER_GROUP_HEARTBEAT) if each.member_epoch < 0]
            assert left + len(goodbyes) == 1

    run(scenario())


def test_a_static_member_leaves_without_a_word(run: Run) -> None:
    async def scenario() -> None:
        async with group(**{"group.instance.id": "i1"}) as (core, coordinator):
            await joined(core)
            await core.member.leave("the consumer is being closed")
            assert coordinator.seen(LEAVE) == []
            assert core.events[1:] == [("revoked", "a0 a1 a2")]

    run(scenario())


def test_a_member_whose_user_does_not_poll_leaves_and_comes_back(run: Run) -> None:
    async def scenario() -> None:
        async with group(**{"max.poll.interval.ms": 500}) as (core, coordinator):
            await joined(core)
            commits_all(core, 5)
            core.absent = True
            await eventually(lambda: coordinator.seen(LEAVE))
            [member] = coordinator.seen(LEAVE)[0].members
            assert member.reason == "consumer poll timeout has expired."
            beats = len(coordinator.seen(HEARTBEAT))
            await asyncio.sleep(0.1)
            assert len(coordinator.seen(HEARTBEAT)) == beats
            assert core.events[1:] == []
            core.poll()
            await joined(core)
            assert core.events[1:] == [("lost", "a0 a1 a2"), ("assigned", "a0 a1 a2")]
            assert coordinator.committed == {}

    run(scenario())


def test_a_member_whose_user_went_away_while_it_joined_leaves(run: Run) -> None:
    async def scenario() -> None:
        async with group(**{"max.poll.interval.ms": 500}) as (core, coordinator):
            await joined(core)
            held = asyncio.Event()
            answer = coordinator.broker.on[JOIN]

            async def hold(version: int, request: Any) -> Any:
                await held.wait()
                return answer(version, request)

            coordinator.broker.on[JOIN] = hold
            core.poll()
            coordinator.refuse(HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS)
            await eventually(lambda: len(coordinator.seen(JOIN)) == 3)
            core.absent = True
            await asyncio.sleep(0.7)
            assert coordinator.seen(LEAVE) == []
            held.set()
            await eventually(lambda: coordinator.seen(LEAVE))
            assert core.events[1:] == [("revoked", "a0 a1 a2")]

    run(scenario())
