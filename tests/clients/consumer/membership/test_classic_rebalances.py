"""Rebalances of the classic protocol: what is given up, kept and lost, and the heartbeats that say so."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from clients.consumer.membership.fake_core import (
    COMMIT,
    COOPERATIVE,
    FIND,
    HEARTBEAT,
    JOIN,
    Run,
    commits_all,
    group,
    joined,
    shown,
    subscriptions,
    tps,
)
from clients.fake_broker import Cut, eventually

from kafkapy.clients.consumer.membership.protocol import Subscription
from kafkapy.errors import ErrorCode
from kafkapy.protocol.registry import ApiKeys


def test_an_eager_member_commits_and_gives_up_everything_before_it_joins(run: Run) -> None:
    async def scenario() -> None:
        async with group() as (core, coordinator):
            await joined(core)
            commits_all(core, 5)
            core.absent = True
            coordinator.refuse(HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS)
            await eventually(lambda: not core.member.ready)
            await asyncio.sleep(0.1)
            assert len(coordinator.seen(JOIN)) == 2, "nothing happens to the user outside of poll()"
            assert len(coordinator.seen(HEARTBEAT)) > 2, "but heartbeats go on"
            core.poll()
            await joined(core)
            assert core.events[1:] == [("revoked", "a0 a1 a2"), ("assigned", "a0 a1 a2")]
            assert coordinator.committed == {("a", 0): 5, ("a", 1): 5, ("a", 2): 5}
            assert coordinator.order(COMMIT, JOIN) == [JOIN, JOIN, COMMIT, JOIN]
            last = coordinator.seen(JOIN)[-1]
            assert (last.member_id, last.reason) == ("m1", "group is already rebalancing")
            said = subscriptions(last)["range"]
            assert (said.owned_partitions, said.generation_id) == ((), 1)
            [commit] = coordinator.seen(COMMIT)
            assert (commit.member_id, commit.generation_id_or_member_epoch) == ("m1", 1)

    run(scenario())


def test_a_cooperative_member_keeps_its_partitions_and_gives_up_what_is_taken(run: Run) -> None:
    async def scenario() -> None:
        async with group(**COOPERATIVE) as (core, coordinator):
            coordinator.leader, coordinator.assignment = "other", "a0 a1"
            await joined(core)
            commits_all(core, 7)
            coordinator.assignment = "a1 a2"
            coordinator.refuse(HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS)
            await eventually(lambda: coordinator.generation == 3)
            await joined(core)
            assert core.events == [("assigned", "a0 a1"), ("revoked", "a0"), ("assigned", "a2"), ("assigned", "")]
            _, _, again, after = coordinator.seen(JOIN)
            assert set(subscriptions(again)["cooperative-sticky"].owned_partitions) == tps("a0 a1")
            assert after.reason == "need to revoke partitions and re-join"
            said = subscriptions(after)["cooperative-sticky"]
            assert (set(said.owned_partitions), said.generation_id) == (tps("a1 a2"), 2)
            assert said.user_data == b"\0\0\0\2"
            # What is given up was committed by the member of the new generation at the latest.
            assert coordinator.committed[("a", 0)] == 7

    run(scenario())


def test_a_cooperative_member_gives_up_topics_it_is_not_subscribed_to_any_more(run: Run) -> None:
    async def scenario() -> None:
        async with group("a b", **COOPERATIVE) as (core, coordinator):
            await joined(core)
            core.subscription.subscribe(["b"], None)
            core.member.subscription_changed()
            await eventually(lambda: coordinator.generation == 2)
            await joined(core)
            assert core.events[1:] == [("revoked", "a0 a1 a2"), ("assigned", "")]
            last = coordinator.seen(JOIN)[-1]
            assert last.reason == "subscription has changed"
            assert set(subscriptions(last)["cooperative-sticky"].owned_partitions) == tps("b0 b1 b2")

    run(scenario())


def test_members_are_eager_as_long_as_one_of_their_assignors_is(run: Run) -> None:
    async def scenario() -> None:
        strategy = "cooperative-sticky,range"
        async with group(**{"partition.assignment.strategy": strategy}) as (core, coordinator):
            await joined(core)
            coordinator.refuse(HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS)
            await eventually(lambda: coordinator.generation == 2)
            await joined(core)
            assert core.events[1:] == [("revoked", "a0 a1 a2"), ("assigned", "a0 a1 a2")]

    run(scenario())


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
@pytest.mark.parametrize("keys", [{}, COOPERATIVE])
def test_a_member_that_was_removed_loses_its_partitions_and_joins_anew(
    run: Run, code: ErrorCode, keys: dict[str, str]
) -> None:
    async def scenario() -> None:
        async with group(**keys) as (core, coordinator):
            await joined(core)
            commits_all(core, 5)
            coordinator.refuse(HEARTBEAT, code)
            await eventually(lambda: coordinator.generation == 2)
            await joined(core)
            assert core.events[1:] == [("lost", "a0 a1 a2"), ("assigned", "a0 a1 a2")]
            assert coordinator.committed == {}, "others have the partitions"
            rejoined = coordinator.seen(JOIN)[2]
            # A member id is good for longer than a generation.
            assert rejoined.member_id == ("" if code is ErrorCode.UNKNOWN_MEMBER_ID else "m1")
            assert subscriptions(rejoined)["cooperative-sticky"].generation_id == -1
            assert subscriptions(rejoined)["cooperative-sticky"].owned_partitions == ()

    run(scenario())


def test_an_assignment_for_another_subscription_is_not_taken(run: Run) -> None:
    async def scenario() -> None:
        async with group("b") as (core, coordinator):
            coordinator.leader, coordinator.assignment = "other", "a0"
            await core.member.start()
            await eventually(lambda: coordinator.generation > 2)
            assert {kind for kind, _ in core.events} == {"revoked"}
            coordinator.assignment = "b0"
            await joined(core)
            assert core.events[-1] == ("assigned", "b0")
            assert coordinator.seen(JOIN)[2].reason == "received assignment does not match the current subscription"

    run(scenario())


def test_a_topic_of_the_pattern_that_only_the_leader_knows_is_taken(run: Run) -> None:
    async def scenario() -> None:
        async with group() as (core, coordinator):
            core.subscription.unsubscribe()
            core.subscription.subscribe_pattern(re.compile("[ab]"), None)
            core.subscription.subscribe_matching(["a"])
            coordinator.leader, coordinator.assignment = "other", "a0 b0"
            await joined(core)
            assert core.subscription.topics == {"a", "b"}
            await asyncio.sleep(0.1)
            assert coordinator.generation == 1, "and is no reason to join again"

    run(scenario())


def test_metadata_that_cannot_be_had_for_now_is_no_error(run: Run) -> None:
    async def scenario() -> None:
        async with group() as (core, coordinator):
            core.subscription.unsubscribe()
            core.subscription.subscribe_pattern(re.compile("a"), None)
            core.subscription.subscribe_matching(["a"])
            own = coordinator.broker._own_answer
            cuts = 3

            def cut(version: int, request: Any) -> Any:
                nonlocal cuts
                if cuts:
                    cuts -= 1
                    raise Cut
                return own(version, request)

            coordinator.broker.on[ApiKeys.METADATA] = cut
            await joined(core)
            assert cuts == 0
            assert core.errors == []

    run(scenario())


def test_heartbeats_that_fail_are_sent_again_to_whom_is_the_coordinator(run: Run) -> None:
    async def scenario() -> None:
        async with group() as (core, coordinator):
            await joined(core)
            looked_up = len(coordinator.seen(FIND))
            coordinator.refuse(HEARTBEAT, ErrorCode.NOT_COORDINATOR, -99, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            await eventually(lambda: len(coordinator.seen(FIND)) == looked_up + 3)
            beats = len(coordinator.seen(HEARTBEAT))
            await eventually(lambda: len(coordinator.seen(HEARTBEAT)) > beats)
            assert core.member.ready
            assert coordinator.generation == 1

    run(scenario())


def test_a_leader_of_a_cooperative_group_may_not_give_away_what_is_owned(run: Run) -> None:
    from kafkapy.clients.consumer.membership.assignors.api import RebalanceProtocol
    from kafkapy.clients.consumer.membership.assignors.range import RangeAssignor

    class Careless(RangeAssignor):
        name = "careless"

        def supported_protocols(self) -> Any:
            return (RebalanceProtocol.COOPERATIVE,)

    async def scenario() -> None:
        async with group(**{"partition.assignment.strategy": [Careless()]}) as (core, coordinator):
            await joined(core)
            coordinator.others["m0"] = Subscription(("a",))
            coordinator.refuse(HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS)
            await eventually(lambda: core.errors)
            assert "still own: a-0, a-1" in str(core.errors[0])
            assert shown(core.subscription.assigned) == "a0 a1 a2"

    run(scenario())


def test_a_member_without_heartbeats_is_none(run: Run) -> None:
    """What the code does not expect ends the membership in the eyes of the user, too."""

    async def scenario() -> None:
        async with group() as (core, _):
            await joined(core)
            core.member._heartbeat = None
            await eventually(lambda: core.member.error is not None)
            assert isinstance(core.member.error, AttributeError)

    run(scenario())
