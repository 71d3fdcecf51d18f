"""Commits of members of the classic protocol, what a refusal says about the member, and what is counted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from clients.consumer.membership.fake_core import COMMIT, HEARTBEAT, JOIN, Run, commit, group, joined
from clients.fake_broker import eventually

from kafkapy.errors import CommitFailedError, ErrorCode, FencedInstanceIdError, RebalanceInProgressError


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
