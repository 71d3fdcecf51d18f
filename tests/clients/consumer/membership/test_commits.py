"""Committed offsets: what is sent in which version, in which order, what is tried again, and what errors mean."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from clients.consumer.membership.fake_core import COMMIT, FIND, FakeCore, Run, group, tps
from clients.fake_broker import Silence, eventually

from kafkapy.errors import (
    CommitFailedError,
    ErrorCode,
    GroupAuthorizationFailedError,
    IllegalArgumentError,
    InvalidCommitOffsetSizeError,
    KafkaTimeoutError,
    OffsetMetadataTooLargeError,
    TopicAuthorizationFailedError,
)
from kafkapy.protocol.registry import ApiKeys
from kafkapy.types import ZERO_UUID, OffsetAndMetadata, TopicPartition

FETCH = ApiKeys.OFFSET_FETCH


def at(offset: int, text: str = "a0") -> dict[TopicPartition, OffsetAndMetadata]:
    return {partition: OffsetAndMetadata(offset, "note", 3) for partition in tps(text)}


def by_hand(core: FakeCore) -> FakeCore:
    """A consumer whose partitions are assigned by hand: it commits as nobody in particular."""
    core.subscription.unsubscribe()
    core.subscription.assign_by_user(sorted(tps("a0 a1 b0")))
    return core


@pytest.mark.parametrize("version", range(2, 11))
def test_commits_are_read_back_from_brokers_of_every_age(run: Run, version: int) -> None:
    async def scenario() -> None:
        async with group("a b") as (core, coordinator):
            coordinator.broker.versions |= {COMMIT: (2, version), FETCH: (1, min(version, 10))}
            commits = by_hand(core).commits
            await commits.commit(at(5, "a1 b0"))
            [sent] = coordinator.seen(COMMIT)
            assert (sent.generation_id_or_member_epoch, sent.member_id, sent.group_instance_id) == (-1, "", None)
            assert [(each.name == "", each.topic_id == ZERO_UUID) for each in sent.topics] == [
                (version >= 10, version < 10)
            ] * 2
            epoch = 3 if version >= 6 else -1
            assert [each.partitions[0].committed_leader_epoch for each in sent.topics] == [epoch] * 2
            found = await commits.committed(tps("a0 a1 b0"), require_stable=True)
            assert {key: value and value.offset for key, value in found.items()} == {
                TopicPartition("a", 0): None,
                TopicPartition("a", 1): 5,
                TopicPartition("b", 0): 5,
            }
            assert {each.leader_epoch for each in found.values() if each} == {epoch}
            [asked] = coordinator.seen(FETCH)
            assert asked.require_stable == (version >= 7)
            assert len(asked.groups) == (version >= 8)
            await commits.committed(tps("a0"), require_stable=False)
            assert not coordinator.seen(FETCH)[-1].require_stable

    run(scenario())


def test_topics_whose_id_is_not_known_are_named(run: Run) -> None:
    async def scenario() -> None:
        async with group() as (core, coordinator):
            commits = by_hand(core).commits
            await commits.commit(at(5, "a0 z0"))
            [sent] = coordinator.seen(COMMIT)
            assert [each.name for each in sent.topics] == ["a", "z"]
            await commits.committed(tps("a0 z0"))
            assert [each.name for each in coordinator.seen(FETCH)[-1].groups[0].topics] == ["a", "z"]

    run(scenario())


RETRIED = [
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    -99,
]


@pytest.mark.parametrize("code", [*RETRIED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REQUEST_TIMED_OUT])
def test_a_commit_that_fails_for_now_is_sent_again(run: Run, code: int) -> None:
    async def scenario() -> None:
        async with group() as (core, coordinator):
            coordinator.refuse(COMMIT, code, code)
            await by_hand(core).commits.commit(at(5))
            assert coordinator.committed == {("a", 0): 5}
            stays = code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            assert len(coordinator.seen(FIND)) == (1 if stays else 3)

    run(scenario())


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationFailedError),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationFailedError),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, OffsetMetadataTooLargeError),
        (ErrorCode.INVALID_COMMIT_OFFSET_SIZE, InvalidCommitOffsetSizeError),
    ],
)
def test_a_commit_that_cannot_go_well_is_refused(run: Run, code: ErrorCode, raised: type[Exception]) -> None:
    async def scenario() -> None:
        async with group() as (core, coordinator):
            coordinator.refuse(COMMIT, code)
            with pytest.raises(raised):
                await by_hand(core).commits.commit(at(5))
            assert len(coordinator.seen(COMMIT)) == 1

    run(scenario())


def test_an_offset_below_zero_is_not_sent(run: Run) -> None:
    async def scenario() -> None:
        async with group() as (core, coordinator):
            with pytest.raises(IllegalArgumentError, match="Offset -1 of a-0"):
                await by_hand(core).commits.commit(at(-1))
            assert coordinator.seen(COMMIT) == []

    run(scenario())


def test_a_commit_takes_no_longer_than_it_may_and_says_why(run: Run) -> None:
    async def scenario() -> None:
        async with group() as (core, coordinator):
            coordinator.refuse(COMMIT, *[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1000)
            with pytest.raises(KafkaTimeoutError, match="took longer than 0.2 s: The coordinator is"):
                await by_hand(core).commits.commit(at(5), timeout_ms=200)

            def silent(version: int, request: Any) -> Any:
                raise Silence

            coordinator.broker.on[FETCH] = silent
            with pytest.raises(KafkaTimeoutError, match="The query for committed offsets"):
                await core.commits.committed(tps("a0"), timeout_ms=100)

    run(scenario())


def test_commits_arrive_in_the_order_of_the_calls_retries_included(run: Run) -> None:
    async def scenario() -> None:
        async with group() as (core, coordinator):
            coordinator.refuse(COMMIT, ErrorCode.NOT_COORDINATOR, 0, -99)
            commits = by_hand(core).commits
            await asyncio.gather(*(commits.commit(at(offset)) for offset in range(10)))
            arrived = [each.topics[0].partitions[0].committed_offset for each in coordinator.seen(COMMIT)]
            assert arrived == [0, 0, 1, 1, *range(2, 10)]
            assert coordinator.committed == {("a", 0): 9}

    run(scenario())


def test_a_commit_is_not_sent_after_its_partitions_were_taken(run: Run) -> None:
    """Somebody else has them, and may have committed more."""

    async def scenario() -> None:
        strategy = {"partition.assignment.strategy": "cooperative-sticky"}
        async with group(**strategy) as (core, coordinator):
            coordinator.leader, coordinator.assignment = "other", "a0 a1"
            await core.member.start()
            await eventually(lambda: core.member.ready)
            coordinator.refuse(COMMIT, *[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3, -99)
            answer = coordinator.broker.on[COMMIT]
            rebalanced = asyncio.Event()

            async def slow(version: int, request: Any) -> Any:
                await rebalanced.wait()
                return answer(version, request)

            coordinator.broker.on[COMMIT] = slow
            taken = asyncio.ensure_future(core.commits.commit(at(5, "a0")))
            await eventually(lambda: coordinator.seen(COMMIT))
            kept = asyncio.ensure_future(core.commits.commit(at(6, "a1")))
            await asyncio.sleep(0)
            # The coordinator's connection is waiting for the commit; what a rebalance does is done by hand.
            core.subscription.assign_from_subscribed(tps("a1"))
            rebalanced.set()
            with pytest.raises(CommitFailedError):
                await taken
            await kept
            assert coordinator.committed == {("a", 1): 6}

    run(scenario())


def test_a_commit_that_is_given_up_does_not_hold_up_the_next(run: Run) -> None:
    async def scenario() -> None:
        async with group() as (core, coordinator):
            held = asyncio.Event()
            answer = coordinator.broker.on[COMMIT]

            async def hold(version: int, request: Any) -> Any:
                await held.wait()
                return answer(version, request)

            coordinator.broker.on[COMMIT] = hold
            commits = by_hand(core).commits
            first = asyncio.ensure_future(commits.commit(at(1)))
            await eventually(lambda: coordinator.seen(COMMIT))
            second = asyncio.ensure_future(commits.commit(at(2)))
            first.cancel()
            held.set()
            await second
            assert coordinator.committed == {("a", 0): 2}

    run(scenario())


@pytest.mark.parametrize(
    "code", [*RETRIED, ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID]
)
@pytest.mark.parametrize("version", [7, 9, 10])
def test_offsets_that_cannot_be_read_for_now_are_asked_for_again(run: Run, code: int, version: int) -> None:
    async def scenario() -> None:
        async with group() as (core, coordinator):
            coordinator.broker.versions[FETCH] = (1, version)
            commits = by_hand(core).commits
            await commits.commit(at(5))
            coordinator.refuse(FETCH, code, code)
            assert await commits.committed(tps("a0")) == {TopicPartition("a", 0): OffsetAndMetadata(5, "", 3)}
            assert len(coordinator.seen(FETCH)) == 3

    run(scenario())


@pytest.mark.parametrize("code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_offsets_that_may_not_be_read_are_an_error(run: Run, code: ErrorCode) -> None:
    async def scenario() -> None:
        async with group() as (core, coordinator):
            coordinator.refuse(FETCH, code)
            with pytest.raises((GroupAuthorizationFailedError, TopicAuthorizationFailedError)) as raised:
                await by_hand(core).commits.committed(tps("a0"))
            assert raised.value.code is code

    run(scenario())


def test_nothing_is_asked_of_nobody(run: Run) -> None:
    async def scenario() -> None:
        async with group() as (core, coordinator):
            await by_hand(core).commits.commit({})
            assert await core.commits.committed([]) == {}
            assert coordinator.seen(COMMIT) == coordinator.seen(FETCH) == coordinator.seen(FIND) == []

    run(scenario())


def test_members_of_the_consumer_protocol_say_who_asks(run: Run) -> None:
    async def scenario() -> None:
        async with group(**{"group.protocol": "consumer"}) as (core, coordinator):
            await core.commits.committed(tps("a0"))
            coordinator.target = "a0"
            await core.member.start()
            await eventually(lambda: core.member.ready)
            await core.commits.committed(tps("a0"))
            before, after = (each.groups[0] for each in coordinator.seen(FETCH))
            assert (before.member_id, before.member_epoch) == (None, -1)
            assert (after.member_id, after.member_epoch) == (core.member.group_metadata().member_id, 1)

    run(scenario())


def test_before_a_rebalance_only_what_has_changed_is_committed_and_failures_are_left_behind(run: Run) -> None:
    async def scenario() -> None:
        async with group() as (core, coordinator):
            commits = by_hand(core).commits
            await commits.commit(at(5, "a0 a1"))
            await commits.commit_before_rebalance(at(5, "a0") | at(6, "a1"), 5000)
            assert [len(each.topics[0].partitions) for each in coordinator.seen(COMMIT)] == [2, 1]
            await commits.commit_before_rebalance(at(5, "a0"), 5000)
            assert len(coordinator.seen(COMMIT)) == 2
            # Somebody else has had it in between.
            commits.assigned(tps("a0"))
            await commits.commit_before_rebalance(at(5, "a0"), 5000)
            assert len(coordinator.seen(COMMIT)) == 3
            coordinator.refuse(COMMIT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            await commits.commit_before_rebalance(at(7, "a0"), 5000)
            assert len(coordinator.seen(COMMIT)) == 4
            assert coordinator.committed == {("a", 0): 5, ("a", 1): 6}

    run(scenario())
