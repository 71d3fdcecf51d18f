"""Membership by the consumer protocol (KIP-848), against a coordinator that answers as scripted."""

from __future__ import annotations

import asyncio

import pytest
from clients.consumer.membership.fake_core import COMMIT, FIND, FakeCore, FakeGroup, Run, group, shown, tps
from clients.fake_broker import eventually

from kafkapy.errors import (
    CommitFailedError,
    ErrorCode,
    FencedInstanceIdError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)
from kafkapy.protocol.registry import ApiKeys
from kafkapy.types import OffsetAndMetadata

BEAT = ApiKeys.CONSUMER_GROUP_HEARTBEAT
CONSUMER = {"group.protocol": "consumer"}


async def assigned(core: FakeCore, coordinator: FakeGroup, target: str) -> None:
    """The coordinator assigns these, and the member takes it over."""
    coordinator.target = target
    if not core.member._tasks:
        await core.member.start()
    await eventually(lambda: coordinator.target is None and core.subscription.assigned == tps(target))
    await eventually(lambda: core.member.ready)


def owned(coordinator: FakeGroup) -> list[str]:
    """What the member has said to have, each time it did."""
    names = {topic_id: topic for topic, topic_id in coordinator.cluster.topic_ids.items()}
    return [
        " ".join(f"{names[each.topic_id]}{number}" for each in request.topic_partitions for number in each.partitions)
        for request in coordinator.seen(BEAT)
        if request.topic_partitions is not None
    ]


def test_a_member_says_everything_when_it_joins_and_then_only_what_changes(run: Run) -> None:
    async def scenario() -> None:
        keys = {"client.rack": "r1", "group.remote.assignor": "range", "max.poll.interval.ms": 70_000}
        async with group("b a", **CONSUMER, **keys) as (core, coordinator):
            await assigned(core, coordinator, "a0 a1")
            await eventually(lambda: len(coordinator.seen(BEAT)) > 4)
            join, told, *quiet = coordinator.seen(BEAT)
            assert (join.group_id, join.member_epoch, join.instance_id) == ("orders", 0, None)
            assert len(join.member_id) == 22
            assert (join.rack_id, join.server_assignor, join.rebalance_timeout_ms) == ("r1", "range", 70_000)
            assert (join.subscribed_topic_names, join.subscribed_topic_regex) == (["a", "b"], None)
            assert join.topic_partitions == []
            assert (told.member_id, told.member_epoch) == (join.member_id, 1)
            assert owned(coordinator) == ["", "a0 a1"]
            for request in [told, *quiet]:
                assert request.subscribed_topic_names is request.server_assignor is request.rack_id is None
                assert request.rebalance_timeout_ms == -1
            assert core.events == [("assigned", "a0 a1")]
            metadata = core.member.group_metadata()
            assert (metadata.generation_id, metadata.member_id) == (1, join.member_id)

    run(scenario())


def test_a_member_has_the_id_that_the_coordinator_gives(run: Run) -> None:
    """Where it gives none, the member keeps what it has."""

    async def scenario() -> None:
        async with group(**CONSUMER) as (core, coordinator):
            coordinator.given_ids = ["m9", None]
            await assigned(core, coordinator, "a0 a1")
            await eventually(lambda: len(coordinator.seen(BEAT)) > 3)
            join, *others = coordinator.seen(BEAT)
            assert len(join.member_id) == 22
            assert {each.member_id for each in others} == {"m9"}
            assert core.member.group_metadata().member_id == "m9"

    run(scenario())


@pytest.mark.parametrize("interval_ms", [0, -1, -(2**31)])
def test_a_broker_that_asks_for_heartbeats_without_a_pause_gets_them_as_before(run: Run, interval_ms: int) -> None:
    async def scenario() -> None:
        async with group(**CONSUMER) as (core, coordinator):
            coordinator.heartbeat_interval_ms = interval_ms
            await assigned(core, coordinator, "a0")
            await asyncio.sleep(0.1)
            # The join, and what was assigned. The next one is due after the interval that held before.
            assert len(coordinator.seen(BEAT)) == 2

    run(scenario())


def test_a_member_commits_and_gives_up_before_it_takes_and_tells(run: Run) -> None:
    async def scenario() -> None:
        async with group(**CONSUMER) as (core, coordinator):
            await assigned(core, coordinator, "a0 a1")
            core.auto_commit = True
            core.positions = {each: OffsetAndMetadata(4) for each in tps("a0 a1")}
            core.absent = True
            coordinator.target = "a1 a2"
            await eventually(lambda: coordinator.target is None)
            beats = len(coordinator.seen(BEAT))
            await eventually(lambda: len(coordinator.seen(BEAT)) > beats + 3)
            assert owned(coordinator) == ["", "a0 a1"], "nothing happens to the user outside of poll()"
            assert not core.member.ready
            core.poll()
            await eventually(lambda: core.member.ready)
            assert core.events[1:] == [("revoked", "a0"), ("assigned", "a2")]
            await eventually(lambda: owned(coordinator) == ["", "a0 a1", "a1 a2"])
            assert coordinator.committed == {("a", 0): 4, ("a", 1): 4}
            [commit] = coordinator.seen(COMMIT)
            assert commit.generation_id_or_member_epoch == 2

    run(scenario())


def test_a_commit_before_a_rebalance_waits_for_the_new_epoch(run: Run) -> None:
    async def scenario() -> None:
        async with group(**CONSUMER) as (core, coordinator):
            await assigned(core, coordinator, "a0 a1")
            core.auto_commit = True
            core.positions = {each: OffsetAndMetadata(4) for each in tps("a0 a1")}
            coordinator.refuse(COMMIT, ErrorCode.STALE_MEMBER_EPOCH)
            await assigned(core, coordinator, "a1")
            assert coordinator.committed == {("a", 0): 4, ("a", 1): 4}
            # A commit of the user's is the user's to repeat.
            coordinator.refuse(COMMIT, ErrorCode.STALE_MEMBER_EPOCH)
            with pytest.raises(CommitFailedError):
                await core.commits.commit({each: OffsetAndMetadata(5) for each in tps("a1")})
            coordinator.refuse(COMMIT, ErrorCode.UNKNOWN_MEMBER_ID)
            with pytest.raises(CommitFailedError):
                await core.commits.commit({each: OffsetAndMetadata(5) for each in tps("a1")})

    run(scenario())


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_fenced_member_loses_everything_and_joins_with_its_old_id(run: Run, code: ErrorCode) -> None:
    async def scenario() -> None:
        async with group(**CONSUMER) as (core, coordinator):
            await assigned(core, coordinator, "a0 a1")
            coordinator.target = "a2"
            coordinator.refuse(BEAT, code)
            await eventually(lambda: core.subscription.assigned == tps("a2"))
            assert core.events[1:] == [("lost", "a0 a1"), ("assigned", "a2")]
            joins = [request for request in coordinator.seen(BEAT) if request.member_epoch == 0]
            assert len(joins) == 2
            assert joins[0] == joins[1]

    run(scenario())


def test_a_fenced_member_waits_with_the_join_until_the_user_knows(run: Run) -> None:
    async def scenario() -> None:
        async with group(**CONSUMER) as (core, coordinator):
            await assigned(core, coordinator, "a0")
            core.absent = True
            coordinator.refuse(BEAT, ErrorCode.FENCED_MEMBER_EPOCH)
            await eventually(lambda: not core.member.ready)
            beats = len(coordinator.seen(BEAT))
            await asyncio.sleep(0.1)
            assert len(coordinator.seen(BEAT)) == beats
            core.poll()
            await eventually(lambda: core.member.ready)

    run(scenario())


@pytest.mark.parametrize(
    "code",
    [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -99],
)
def test_a_heartbeat_that_fails_for_now_is_sent_again_with_everything(run: Run, code: int) -> None:
    async def scenario() -> None:
        async with group(**CONSUMER) as (core, coordinator):
            coordinator.refuse(BEAT, code)
            await assigned(core, coordinator, "a0")
            await eventually(lambda: [each.member_epoch for each in coordinator.seen(BEAT)[:3]] == [0, 0, 1])
            coordinator.refuse(BEAT, code)
            again = await eventually(
                lambda: [
                    request
                    for request in coordinator.seen(BEAT)
                    if request.member_epoch == 1 and request.subscribed_topic_names is not None
                ]
            )
            assert (again[0].subscribed_topic_names, again[0].rebalance_timeout_ms) == (["a"], 300_000)
            await eventually(lambda: coordinator.seen(BEAT)[-1].subscribed_topic_names is None)
            assert core.member.ready
            assert core.events == [("assigned", "a0")]
            gone = code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert len(coordinator.seen(FIND)) == (3 if gone else 1)

    run(scenario())


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
    ],
)
def test_errors_that_no_retry_mends_end_the_membership(run: Run, code: ErrorCode) -> None:
    async def scenario() -> None:
        async with group(**CONSUMER) as (core, coordinator):
            await assigned(core, coordinator, "a0")
            coordinator.refuse(BEAT, code)
            await eventually(lambda: core.member.error is not None)
            assert core.member.error.code is code
            await eventually(lambda: not core.subscription.assigned)
            assert core.events[1:] == [("lost", "a0")]

    run(scenario())


def test_a_missing_right_to_a_topic_does_not_end_the_membership(run: Run) -> None:
    async def scenario() -> None:
        async with group(**CONSUMER) as (core, coordinator):
            coordinator.refuse(BEAT, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            await assigned(core, coordinator, "a0")
            assert [type(error) for error in core.errors] == [TopicAuthorizationFailedError]

    run(scenario())


def test_a_broker_without_the_protocol_is_for_the_user(run: Run) -> None:
    async def scenario() -> None:
        async with group(**CONSUMER) as (core, coordinator):
            del coordinator.broker.versions[BEAT]
            await core.member.start()
            await eventually(lambda: core.member.error is not None)
            assert isinstance(core.member.error, UnsupportedVersionError)
            assert "group.protocol=consumer" in str(core.member.error)

    run(scenario())


def test_a_changed_subscription_is_told_at_once(run: Run) -> None:
    async def scenario() -> None:
        async with group(**CONSUMER) as (core, coordinator):
            await assigned(core, coordinator, "a0")
            core.subscription.subscribe(["a", "c"], None)
            core.member.subscription_changed()
            await eventually(lambda: coordinator.seen(BEAT)[-1].member_epoch == 1)
            await eventually(
                lambda: (
                    [each.subscribed_topic_names for each in coordinator.seen(BEAT) if each.subscribed_topic_names]
                    == [["a"], ["a", "c"]]
                )
            )

    run(scenario())


def test_an_expression_is_the_brokers_to_resolve(run: Run) -> None:
    async def scenario() -> None:
        async with group("", **CONSUMER) as (core, coordinator):
            core.subscription.server_pattern = "a|b"
            core.network.cluster.want_all(True)
            await assigned(core, coordinator, "a0 b2")
            await eventually(lambda: len(coordinator.seen(BEAT)) > 1)
            join, told, *_ = coordinator.seen(BEAT)
            assert (join.subscribed_topic_names, join.subscribed_topic_regex) == ([], "a|b")
            assert told.subscribed_topic_regex is None
            core.subscription.server_pattern = None
            core.member.subscription_changed()
            await eventually(lambda: any(each.subscribed_topic_regex == "" for each in coordinator.seen(BEAT)))

    run(scenario())


def test_a_broker_that_does_not_resolve_expressions_is_for_the_user(run: Run) -> None:
    async def scenario() -> None:
        async with group("", **CONSUMER) as (core, coordinator):
            coordinator.broker.versions[BEAT] = (0, 0)
            core.subscription.server_pattern = "a|b"
            await core.member.start()
            await eventually(lambda: core.member.error is not None)
            assert isinstance(core.member.error, UnsupportedVersionError)

    run(scenario())


def test_partitions_of_a_topic_without_a_name_wait_for_metadata(run: Run) -> None:
    async def scenario() -> None:
        async with group("a", **CONSUMER) as (core, coordinator):
            coordinator.target = "a0 c1"
            await core.member.start()
            await eventually(lambda: core.subscription.assigned == tps("a0"))
            await asyncio.sleep(0.1)
            assert shown(core.subscription.assigned) == "a0"
            assert not core.member.ready
            assert owned(coordinator)[1:] == ["a0"], "what is known is taken over, and told once"
            core.network.cluster.want(["c"])
            await eventually(lambda: core.member.ready)
            assert core.events == [("assigned", "a0"), ("assigned", "c1")]
            await eventually(lambda: owned(coordinator)[-1] == "a0 c1")

    run(scenario())


@pytest.mark.parametrize(("keys", "epoch"), [({}, -1), ({"group.instance.id": "i1"}, -2)])
def test_a_member_that_leaves_says_for_how_long(run: Run, keys: dict[str, str], epoch: int) -> None:
    async def scenario() -> None:
        async with group(**CONSUMER, **keys) as (core, coordinator):
            await assigned(core, coordinator, "a0")
            core.auto_commit = True
            core.positions = {each: OffsetAndMetadata(4) for each in tps("a0")}
            await core.member.leave("the consumer is being closed")
            last = coordinator.seen(BEAT)[-1]
            assert (last.member_epoch, last.instance_id) == (epoch, keys.get("group.instance.id"))
            assert coordinator.order(COMMIT, BEAT)[-2:] == [COMMIT, BEAT]
            assert core.events[1:] == [("revoked", "a0")]
            assert core.subscription.assigned == set()
            await assigned(core, coordinator, "a1")
            assert {request.member_id for request in coordinator.seen(BEAT)} == {last.member_id}

    run(scenario())


def test_a_member_whose_user_does_not_poll_leaves_and_comes_back(run: Run) -> None:
    async def scenario() -> None:
        async with group(**CONSUMER, **{"max.poll.interval.ms": 500}) as (core, coordinator):
            await assigned(core, coordinator, "a0")
            core.absent = True
            await eventually(lambda: coordinator.seen(BEAT)[-1].member_epoch == -1)
            beats = len(coordinator.seen(BEAT))
            await asyncio.sleep(0.1)
            assert len(coordinator.seen(BEAT)) == beats
            coordinator.target = "a1"
            core.poll()
            await eventually(lambda: core.subscription.assigned == tps("a1"))
            assert core.events[1:] == [("lost", "a0"), ("assigned", "a1")]

    run(scenario())


def test_a_fenced_instance_is_no_member_any_more(run: Run) -> None:
    async def scenario() -> None:
        async with group(**CONSUMER, **{"group.instance.id": "i1"}) as (core, coordinator):
            await assigned(core, coordinator, "a0")
            coordinator.refuse(BEAT, ErrorCode.FENCED_INSTANCE_ID)
            await eventually(lambda: core.member.error is not None)
            assert isinstance(core.member.error, FencedInstanceIdError)
            await core.member.leave("bye")
            assert coordinator.seen(BEAT)[-1].member_epoch == 1, "there is nothing to leave"

    run(scenario())


def test_a_new_target_that_comes_in_the_middle_is_taken_over_next(run: Run) -> None:
    async def scenario() -> None:
        async with group(**CONSUMER) as (core, coordinator):
            await assigned(core, coordinator, "a0 a1")
            held = asyncio.Event()
            core.in_listener = held.wait
            coordinator.target = "a1"
            await eventually(lambda: core.events[-1] == ("revoked", "a0"))
            coordinator.target = "a1 a2"
            await eventually(lambda: coordinator.target is None)
            held.set()
            await eventually(lambda: core.subscription.assigned == tps("a1 a2") and core.member.ready)
            await eventually(lambda: owned(coordinator) == ["", "a0 a1", "a1", "a1 a2"])

    run(scenario())


def test_what_was_begun_before_a_member_was_fenced_is_not_gone_on_with(run: Run) -> None:
    async def scenario() -> None:
        async with group("a b", **CONSUMER) as (core, coordinator):
            await assigned(core, coordinator, "a0 a1")
            held = asyncio.Event()
            core.in_listener = held.wait
            coordinator.target = "a1 a2"
            await eventually(lambda: core.events[-1] == ("revoked", "a0"))
            coordinator.target = "b0"
            coordinator.refuse(BEAT, ErrorCode.FENCED_MEMBER_EPOCH)
            await eventually(lambda: core.events[-1] == ("lost", "a0 a1"))
            held.set()
            await eventually(lambda: core.subscription.assigned == tps("b0"))
            assert core.events[1:] == [("revoked", "a0"), ("lost", "a0 a1"), ("assigned", "b0")]

    run(scenario())
