"""Joining by the classic protocol, as a leader and as a follower, and what keeps a member from it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from clients.consumer.membership.fake_core import (
    FIND,
    HEARTBEAT,
    JOIN,
    LEAVE,
    SYNC,
    Run,
    group,
    joined,
    subscriptions,
    tps,
)
from clients.fake_broker import eventually

from kafkapy.clients.consumer.membership.protocol import ConsumerGroupMetadata, Subscription
from kafkapy.errors import ErrorCode, FencedInstanceIdError, GroupAuthorizationFailedError, IllegalStateError


def test_a_member_joins_with_the_id_it_is_given_and_leads(run: Run) -> None:
    async def scenario() -> None:
        async with group("a b", **{"client.rack": "r1"}) as (core, coordinator):
            await joined(core)
            first, second = coordinator.seen(JOIN)
            assert (first.member_id, second.member_id) == ("", "m1")
            assert second.group_id == "orders"
            assert (second.session_timeout_ms, second.rebalance_timeout_ms) == (5000, 300_000)
            assert second.reason == "need to re-join with the given member-id: m1"
            assert subscriptions(second)["range"] == Subscription(("a", "b"), None, (), -1, "r1")
            assert list(subscriptions(second)) == ["range", "cooperative-sticky"]
            assert coordinator.assignments == [{"m1": "a0 a1 a2 b0 b1 b2"}]
            assert core.events == [("assigned", "a0 a1 a2 b0 b1 b2")]
            assert core.member.group_metadata() == ConsumerGroupMetadata("orders", 1, "m1", None, "<stable>")
            await eventually(lambda: len(coordinator.seen(HEARTBEAT)) > 2)
            assert coordinator.seen(HEARTBEAT)[-1].generation_id == 1

    run(scenario())


def test_a_follower_takes_what_the_leader_gives(run: Run) -> None:
    async def scenario() -> None:
        async with group() as (core, coordinator):
            coordinator.leader, coordinator.assignment = "other", "a1"
            await joined(core)
            assert coordinator.seen(SYNC)[-1].assignments == []
            assert core.subscription.assigned == tps("a1")

    run(scenario())


def test_a_leader_assigns_to_everybody_also_topics_it_does_not_read(run: Run) -> None:
    async def scenario() -> None:
        async with group("a") as (core, coordinator):
            coordinator.others["z"] = Subscription(("a", "b"))
            await joined(core)
            assert coordinator.assignments == [{"m1": "a0 a1", "z": "a2 b0 b1 b2"}]
            assert core.subscription.group_topics == {"a", "b"}
            # It watches the topics of the others: a new partition of theirs is a rebalance.
            coordinator.cluster.leaders["b"][3] = (1, 0)
            core.network.cluster.invalidate()
            await eventually(lambda: len(coordinator.assignments) == 2)
            assert coordinator.assignments[-1]["z"] == "a2 b0 b1 b2 b3"
            assert coordinator.seen(JOIN)[-1].reason == "cached metadata has changed"

    run(scenario())


def test_a_static_leader_that_comes_back_does_not_assign_anew(run: Run) -> None:
    async def scenario() -> None:
        async with group(**{"group.instance.id": "i1"}) as (core, coordinator):
            coordinator.skip_assignment, coordinator.assignment = True, "a0 a1"
            await joined(core)
            [join] = coordinator.seen(JOIN)
            assert (join.group_instance_id, join.member_id) == ("i1", "")
            assert coordinator.assignments == []
            assert core.subscription.assigned == tps("a0 a1")

    run(scenario())


def test_old_brokers_are_joined_without_an_id_first(run: Run) -> None:
    async def scenario() -> None:
        async with group() as (core, coordinator):
            coordinator.broker.versions |= {JOIN: (0, 2), SYNC: (0, 1), HEARTBEAT: (0, 1), LEAVE: (0, 1), FIND: (0, 1)}
            await joined(core)
            [_] = coordinator.seen(JOIN)
            await core.member.leave("bye")
            [left] = coordinator.seen(LEAVE)
            assert (left.member_id, left.members) == ("m1", [])

    run(scenario())


@pytest.mark.parametrize(
    ("api_key", "code"),
    [
        (api_key, code)
        for api_key in (JOIN, SYNC)
        for code in (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.UNKNOWN_MEMBER_ID,
            -99,
        )
    ],
)
def test_a_join_that_fails_for_now_is_tried_again(run: Run, api_key: int, code: int) -> None:
    async def scenario() -> None:
        async with group() as (core, coordinator):
            coordinator.refuse(JOIN, ErrorCode.MEMBER_ID_REQUIRED)
            coordinator.refuse(api_key, code, code)
            await joined(core)
            assert core.subscription.assigned == tps("a0 a1 a2")
            assert core.errors == []
            looked_up = len(coordinator.seen(FIND))
            gone = code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, -99)
            assert looked_up == (3 if gone else 1)
            new_id = code == ErrorCode.UNKNOWN_MEMBER_ID
            assert core.member.group_metadata().member_id == ("m1" if not new_id else core.member._generation.member_id)
            assert [each.member_id == "" for each in coordinator.seen(JOIN)].count(True) == (3 if new_id else 1)

    run(scenario())


@pytest.mark.parametrize("api_key", [FIND, JOIN, SYNC])
def test_an_error_that_no_retry_mends_is_for_the_user_and_the_next_poll_tries_again(run: Run, api_key: int) -> None:
    async def scenario() -> None:
        async with group() as (core, coordinator):
            coordinator.refuse(api_key, *([0] if api_key == JOIN else []), ErrorCode.GROUP_AUTHORIZATION_FAILED)
            await core.member.start()
            await eventually(lambda: core.errors)
            assert [type(error) for error in core.errors] == [GroupAuthorizationFailedError]
            sent = len(coordinator.broker.requests)
            await asyncio.sleep(0.1)
            assert len(coordinator.seen(JOIN)) <= 2
            assert len(coordinator.broker.requests) - len(coordinator.seen(HEARTBEAT)) <= sent
            core.poll()
            await eventually(lambda: core.member.ready)

    run(scenario())


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ],
)
def test_a_group_that_does_not_take_the_member_is_for_the_user(run: Run, code: ErrorCode) -> None:
    async def scenario() -> None:
        async with group() as (core, coordinator):
            coordinator.refuse(JOIN, code)
            await core.member.start()
            await eventually(lambda: core.errors)
            assert [getattr(error, "code", None) for error in core.errors] == [code]

    run(scenario())


def test_a_fenced_instance_is_no_member_any_more(run: Run) -> None:
    async def scenario() -> None:
        async with group(**{"group.instance.id": "i1"}) as (core, coordinator):
            await joined(core)
            coordinator.refuse(HEARTBEAT, ErrorCode.FENCED_INSTANCE_ID)
            await eventually(lambda: core.member.error is not None)
            assert isinstance(core.member.error, FencedInstanceIdError)
            beats = len(coordinator.seen(HEARTBEAT))
            await asyncio.sleep(0.1)
            assert len(coordinator.seen(HEARTBEAT)) == beats

    run(scenario())


def test_an_instance_fenced_while_it_joins_is_no_member(run: Run) -> None:
    async def scenario() -> None:
        async with group(**{"group.instance.id": "i1"}) as (core, coordinator):
            coordinator.refuse(SYNC, ErrorCode.FENCED_INSTANCE_ID)
            await core.member.start()
            await eventually(lambda: core.member.error is not None)
            assert isinstance(core.member.error, FencedInstanceIdError)

    run(scenario())


def test_an_assignment_that_the_leader_left_out_is_an_error(run: Run) -> None:
    async def scenario() -> None:
        async with group() as (core, coordinator):
            coordinator.leader = "other"
            await core.member.start()
            await eventually(lambda: core.errors)
            assert isinstance(core.errors[0], IllegalStateError)
            coordinator.leader = None
            core.poll()
            await eventually(lambda: core.member.ready)

    run(scenario())


def test_an_assignor_that_fails_is_for_the_user(run: Run) -> None:
    from kafkapy.clients.consumer.membership.assignors.range import RangeAssignor

    class Broken(RangeAssignor):
        broken = True

        def assign_partitions(self, topics: Any, subscriptions: Any) -> Any:
            if Broken.broken:
                raise ZeroDivisionError("no luck")
            return super().assign_partitions(topics, subscriptions)

    async def scenario() -> None:
        async with group(**{"partition.assignment.strategy": [Broken]}) as (core, _):
            await core.member.start()
            await eventually(lambda: core.errors)
            assert isinstance(core.errors[0], ZeroDivisionError)
            Broken.broken = False
            core.poll()
            await eventually(lambda: core.member.ready)

    run(scenario())
