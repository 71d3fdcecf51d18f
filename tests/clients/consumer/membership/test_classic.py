"""Membership by the classic protocol, against a coordinator that answers as scripted."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from clients.consumer.membership.fake_core import FakeCore, group, shown, subscriptions, tps
from clients.fake_broker import Cut, eventually

from kafkapy.clients.consumer.membership.protocol import ConsumerGroupMetadata, Subscription
from kafkapy.errors import (
    CommitFailedError,
    ErrorCode,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    IllegalStateError,
    RebalanceInProgressError,
)
from kafkapy.protocol.registry import ApiKeys
from kafkapy.types import OffsetAndMetadata

Run = Callable[[Any], Any]

JOIN, SYNC, HEARTBEAT = ApiKeys.JOIN_GROUP, ApiKeys.SYNC_GROUP, ApiKeys.HEARTBEAT
LEAVE, COMMIT, FIND = ApiKeys.LEAVE_GROUP, ApiKeys.OFFSET_COMMIT, ApiKeys.FIND_COORDINATOR
COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}


@pytest.fixture
def run() -> Run:
    """One kind of loop is enough here."""

    async def bounded(coroutine: Any) -> Any:
        async with asyncio.timeout(30):
            return await coroutine

    return lambda coroutine: asyncio.run(bounded(coroutine))


async def joined(core: FakeCore) -> None:
    if not core.member._tasks:
        await core.member.start()
    await eventually(lambda: core.member.ready)


# --- joining --------------------------------------------------------------------------------------------------------


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
            assert core.member.group_metadata() == ConsumerGroupMetadata("orders", 1, "m1", None)
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
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
        -99,
    ],
)
@pytest.mark.parametrize("api_key", [JOIN, SYNC])
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

    if not (api_key == SYNC and code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
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


# --- rebalances -----------------------------------------------------------------------------------------------------


def commits_all(core: FakeCore, offset: int) -> None:
    core.auto_commit = True
    core.positions = {each: OffsetAndMetadata(offset) for each in tps("a0 a1 a2 b0 b1 b2")}


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


# --- leaving --------------------------------------------------------------------------------------------------------


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


# --- commits of members ---------------------------------------------------------------------------------------------


async def commit(core: FakeCore) -> None:
    await core.commits.commit({each: OffsetAndMetadata(3) for each in tps("a0")})


def test_a_member_commits_as_who_it_is(run: Run) -> None:
    async def scenario() -> None:
        async with group(**{"group.instance.id": "i1"}) as (core, coordinator):
            with pytest.raises(CommitFailedError):
                await commit(core)
            await joined(core)
            await commit(core)
            [sent] = coordinator.seen(COMMIT)
            assert (sent.member_id, sent.generation_id_or_member_epoch, sent.group_instance_id) == ("m1", 1, "i1")

    run(scenario())


def test_the_listener_may_commit_while_partitions_are_taken(run: Run) -> None:
    async def scenario() -> None:
        async with group() as (core, coordinator):
            await joined(core)
            core.in_listener = lambda: commit(core)
            coordinator.refuse(HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS)
            await eventually(lambda: coordinator.generation == 2)
            await joined(core)
            assert [each.generation_id_or_member_epoch for each in coordinator.seen(COMMIT)] == [1, 2]

    run(scenario())


def test_a_commit_in_the_middle_of_a_rebalance_is_refused(run: Run) -> None:
    async def scenario() -> None:
        async with group() as (core, coordinator):
            await joined(core)
            held = asyncio.Event()
            answer = coordinator.broker.on[JOIN]

            async def hold(version: int, request: Any) -> Any:
                await held.wait()
                return answer(version, request)

            coordinator.broker.on[JOIN] = hold
            coordinator.refuse(HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS)
            await eventually(lambda: len(coordinator.seen(JOIN)) == 3)
            with pytest.raises(RebalanceInProgressError):
                await commit(core)
            held.set()
            await joined(core)
            await commit(core)

    run(scenario())


@pytest.mark.parametrize(
    ("code", "raised", "what"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, RebalanceInProgressError, "revoked"),
        (ErrorCode.UNKNOWN_MEMBER_ID, CommitFailedError, "lost"),
        (ErrorCode.ILLEGAL_GENERATION, CommitFailedError, "lost"),
        (ErrorCode.FENCED_INSTANCE_ID, FencedInstanceIdError, None),
    ],
)
def test_a_commit_that_is_refused_says_what_has_become_of_the_member(
    run: Run, code: ErrorCode, raised: type[Exception], what: str | None
) -> None:
    async def scenario() -> None:
        async with group() as (core, coordinator):
            await joined(core)
            coordinator.refuse(COMMIT, code)
            with pytest.raises(raised):
                await commit(core)
            if what is not None:
                await eventually(lambda: coordinator.generation == 2)
                await joined(core)
                assert core.events[1][0] == what

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


# --- metrics --------------------------------------------------------------------------------------------------------


def test_rebalances_and_requests_are_counted(run: Run) -> None:
    async def scenario() -> None:
        async with group() as (core, coordinator):
            coordinator.refuse(JOIN, 0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            await joined(core)
            await commit(core)
            await eventually(lambda: len(coordinator.seen(HEARTBEAT)) > 2)
            [(name, counted)] = core.commits.metrics.read(len(core.subscription.assigned)).items()
            assert name == "consumer-coordinator-metrics"
            assert (counted["join-total"], counted["sync-total"], counted["commit-total"]) == (3, 1, 1)
            assert (counted["rebalance-total"], counted["failed-rebalance-total"]) == (1, 1)
            assert counted["assigned-partitions"] == 3
            assert counted["heartbeat-total"] >= 2
            assert counted["last-heartbeat-seconds-ago"] >= 0
            assert 0 < counted["commit-latency-avg"] <= counted["commit-latency-max"]

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
