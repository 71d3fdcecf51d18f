"""The IsrManager on real logs: who joins and leaves an ISR, and what the controller's answers do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from replica.isr_leader import LAG_MS, IsrLeader, settle

from kafkapy import errors
from kafkapy.errors import ErrorCode
from kafkapy.replica import isr as isr_module
from kafkapy.replica.isr import BACK_TO_COMMITTED, STAYS_PENDING
from kafkapy.replica.partition import Partition


def run(test: Callable[[IsrLeader], Awaitable[None]]) -> None:
    async def body() -> None:
        leader = IsrLeader()
        try:
            await test(leader)
        finally:
            await leader.manager.close()

    asyncio.run(body())


def isr_of(partition: Partition) -> tuple[tuple[int, ...], int]:
    assert partition.state is not None
    return partition.state.isr, partition.state.version


def sizes(partition: Partition) -> tuple[int, int]:
    log = partition.log
    assert log is not None
    return log.in_sync_replicas, log.maximal_in_sync_replicas


def test_a_follower_that_has_caught_up_joins() -> None:
    async def test(leader: IsrLeader) -> None:
        partition = leader.lead()
        leader.append(partition, 4)
        leader.fetched(partition, 2, 4, broker_epoch=22)
        leader.fetched(partition, 3, 3)
        await settle()
        assert not leader.sender.asked
        leader.fetched(partition, 3, 4, broker_epoch=33)
        await settle()
        change = leader.sender.last
        assert (change.isr, change.broker_epochs) == ((1, 2, 3), (-1, 22, 33))
        assert (change.leader, change.leader_epoch, change.partition_epoch, change.controller_epoch) == (1, 5, 7, 4)
        # Until the answer the member counts for the high watermark only.
        assert (isr_of(partition), sizes(partition)) == (((1, 2), 7), (2, 3))
        leader.replication.clock_ms = 9000
        leader.append(partition)
        leader.fetched(partition, 2, 5)
        assert partition.log is not None and partition.log.high_watermark == 4
        leader.fetched(partition, 3, 5)
        assert partition.log.high_watermark == 5
        leader.sender.grant()
        await settle()
        assert (isr_of(partition), sizes(partition), partition.pending) == (((1, 2, 3), 8), (3, 3), None)
        assert (leader.manager.expands, leader.manager.shrinks, leader.manager.failed) == (1, 0, 0)
        assert len(leader.sender.asked) == 1

    run(test)


def test_a_dead_follower_does_not_join() -> None:
    async def test(leader: IsrLeader) -> None:
        partition = leader.lead()
        leader.replication.set_live_brokers([1, 2])
        leader.fetched(partition, 3, 0)
        await settle()
        assert not leader.sender.asked
        leader.replication.set_live_brokers([1, 2, 3])
        leader.fetched(partition, 3, 0)
        await settle()
        assert leader.sender.last.isr == (1, 2, 3)

    run(test)


def test_a_member_that_lags_leaves_and_the_high_watermark_moves_when_that_is_committed() -> None:
    async def test(leader: IsrLeader) -> None:
        partition = leader.lead(isr=(1, 2, 3))
        log = partition.log
        assert log is not None
        leader.append(partition, 2)
        leader.fetched(partition, 2, 2)
        leader.replication.clock_ms = 1000 + LAG_MS
        await leader.manager.shrink_all()
        await settle()
        assert not leader.sender.asked
        leader.replication.clock_ms += 1
        leader.fetched(partition, 3, 1)  # it fetches, but is not caught up
        await leader.manager.shrink_all()
        await settle()
        assert leader.sender.last.isr == (1, 2)
        assert (isr_of(partition), sizes(partition), log.high_watermark) == (((1, 2, 3), 7), (3, 3), 1)
        # A second look does not ask twice.
        await leader.manager.shrink_all()
        await settle()
        assert len(leader.sender.asked) == 1
        leader.sender.grant()
        await settle()
        assert (isr_of(partition), sizes(partition), log.high_watermark) == (((1, 2), 8), (2, 2), 2)
        assert (leader.manager.shrinks, leader.manager.expands) == (1, 0)

    run(test)


def test_an_idle_member_at_the_log_end_stays() -> None:
    # KAFKA-7152
    async def test(leader: IsrLeader) -> None:
        partition = leader.lead(isr=(1, 2, 3))
        leader.append(partition, 2)
        for replica in (2, 3):
            leader.fetched(partition, replica, 2)
        leader.replication.clock_ms = 1_000_000
        await leader.manager.shrink_all()
        await settle()
        assert not leader.sender.asked

    run(test)


def test_a_member_that_never_fetches_leaves_after_the_lag_time() -> None:
    async def test(leader: IsrLeader) -> None:
        partition = leader.lead(isr=(1, 2, 3))
        leader.fetched(partition, 2, 0)
        leader.replication.clock_ms = 1000 + LAG_MS
        await leader.manager.shrink_all()
        await settle()
        assert not leader.sender.asked
        leader.replication.clock_ms += 1
        await leader.manager.shrink_all()
        await settle()
        assert leader.sender.last.isr == (1, 2)

    run(test)


@pytest.mark.parametrize("code", sorted(BACK_TO_COMMITTED))
def test_a_change_that_was_not_applied_may_be_asked_again(code: ErrorCode) -> None:
    async def test(leader: IsrLeader) -> None:
        partition = leader.lead()
        leader.fetched(partition, 3, 0)
        await settle()
        leader.sender.asked[-1][1].set_exception(errors.error_for(code))
        await settle()
        assert (isr_of(partition), sizes(partition), partition.pending) == (((1, 2), 7), (2, 2), None)
        assert leader.manager.failed == 1
        leader.fetched(partition, 3, 0)
        await settle()
        assert len(leader.sender.asked) == 2
        leader.sender.grant()
        await settle()
        assert isr_of(partition) == ((1, 2, 3), 8)

    run(test)


@pytest.mark.parametrize("code", sorted(STAYS_PENDING))
def test_a_change_on_an_unknown_state_waits_for_the_controllers_word(code: ErrorCode) -> None:
    async def test(leader: IsrLeader) -> None:
        partition = leader.lead()
        leader.append(partition)
        leader.fetched(partition, 2, 1)
        leader.fetched(partition, 3, 1)
        await settle()
        leader.sender.asked[-1][1].set_exception(errors.error_for(code))
        await settle()
        # The controller may have added it: the high watermark still waits for it, and nothing more is asked.
        assert (sizes(partition), partition.pending is not None, leader.manager.failed) == ((2, 3), True, 1)
        leader.append(partition)
        leader.replication.clock_ms = 9000
        leader.fetched(partition, 2, 2)
        await leader.manager.shrink_all()
        await settle()
        assert partition.log is not None and partition.log.high_watermark == 1
        assert len(leader.sender.asked) == 1
        leader.lead(partition=partition, isr=(1, 2, 3), leader_epoch=6, version=9)
        assert (sizes(partition), partition.pending) == ((3, 3), None)

    run(test)


def test_another_error_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_module, "RETRY_S", 0.0)

    async def test(leader: IsrLeader) -> None:
        partition = leader.lead()
        leader.fetched(partition, 3, 0)
        await settle()
        for code in (ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR):
            leader.sender.asked[-1][1].set_exception(errors.error_for(code))
            await settle()
        assert len(leader.sender.asked) == 3
        assert len({change for change, _ in leader.sender.asked}) == 1
        leader.sender.grant()
        await settle()
        assert (isr_of(partition), leader.manager.failed) == (((1, 2, 3), 8), 2)

    run(test)


def test_an_answer_that_comes_after_another_assignment_is_dropped() -> None:
    async def test(leader: IsrLeader) -> None:
        partition = leader.lead()
        leader.fetched(partition, 3, 0)
        await settle()
        leader.lead(partition=partition, isr=(1,), leader_epoch=6, version=9)
        leader.sender.grant()
        await settle()
        assert (isr_of(partition), sizes(partition)) == (((1,), 9), (1, 1))
        leader.fetched(partition, 3, 0)
        await settle()
        leader.follow(partition, 2, 7)
        leader.sender.grant()
        await settle()
        assert partition.state is not None and partition.state.leader == 2
        assert (sizes(partition), leader.manager.expands) == ((0, 0), 0)
        await leader.manager.shrink_all()
        leader.fetched(partition, 3, 0)
        assert len(leader.sender.asked) == 2

    run(test)


@pytest.mark.parametrize("lies", [{"leader_epoch": 4}, {"leader_epoch": 6}, {"version": 6}])
def test_an_answer_of_another_epoch_is_not_applied(lies: dict[str, int]) -> None:
    async def test(leader: IsrLeader) -> None:
        partition = leader.lead()
        leader.fetched(partition, 3, 0)
        await settle()
        leader.sender.grant(**lies)
        await settle()
        assert (isr_of(partition), sizes(partition), leader.manager.failed) == (((1, 2), 7), (2, 3), 1)

    run(test)


def test_the_same_state_without_a_write_ends_the_change() -> None:
    # KAFKA-14144: the answer of an earlier, equal request was lost.
    async def test(leader: IsrLeader) -> None:
        partition = leader.lead()
        leader.fetched(partition, 3, 0)
        await settle()
        leader.sender.grant(version=7)
        await settle()
        assert (isr_of(partition), partition.pending) == (((1, 2, 3), 7), None)

    run(test)


def test_one_change_at_a_time() -> None:
    async def test(leader: IsrLeader) -> None:
        partition = leader.lead(isr=(1,), replicas=(1, 2, 3))
        leader.fetched(partition, 2, 0)
        leader.fetched(partition, 3, 0)
        await settle()
        assert [change.isr for change, _ in leader.sender.asked] == [(1, 2)]
        leader.sender.grant()
        await settle()
        leader.fetched(partition, 3, 0)
        await settle()
        assert leader.sender.last.isr == (1, 2, 3)
        assert leader.sender.last.partition_epoch == 8

    run(test)


def test_followers_announced_before_the_assignment_is_known_join_later() -> None:
    """The log leads in the new epoch, on a worker thread, before the control loop has the assignment."""

    async def test(leader: IsrLeader) -> None:
        partition = leader.lead(isr=(1,))
        log = partition.log
        assert log is not None
        log.become_leader(1, 6, (1,), (1, 2, 3), partition_epoch=8)
        leader.fetched(partition, 3, 0)
        await settle()
        assert not leader.sender.asked
        leader.lead(partition=partition, isr=(1,), leader_epoch=6, version=8)
        leader.fetched(partition, 3, 0)
        await settle()
        assert (leader.sender.last.isr, leader.sender.last.leader_epoch) == ((1, 3), 6)

    run(test)


def test_a_partition_of_one_replica_is_not_looked_after() -> None:
    async def test(leader: IsrLeader) -> None:
        partition = leader.lead(isr=(1,), replicas=(1,))
        leader.append(partition)
        leader.replication.clock_ms = 1_000_000
        await leader.manager.shrink_all()
        leader.drain()
        await settle()
        assert not leader.sender.asked and sizes(partition) == (1, 1)

    run(test)


def test_many_partitions_shrink_at_once() -> None:
    async def test(leader: IsrLeader) -> None:
        partitions = [leader.lead(isr=(1, 2, 3)) for _ in range(50)]
        for partition in partitions:
            leader.append(partition)
            leader.fetched(partition, 3, 1)
        leader.replication.clock_ms = 9000
        await leader.manager.shrink_all()
        await settle()
        assert len(leader.sender.asked) == 50
        assert {change.isr for change, _ in leader.sender.asked} == {(1, 3)}

    run(test)


def test_the_operator_is_told_what_becomes_of_an_isr(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(isr_module, "RETRY_S", 0)
    caplog.set_level("INFO", "kafka")

    def told() -> list[tuple[str, str]]:
        found = [(each.levelname, each.getMessage()) for each in caplog.records if "ISR" in each.getMessage()]
        caplog.clear()
        return found

    async def test(leader: IsrLeader) -> None:
        partition = leader.lead(isr=(1, 2))
        leader.append(partition, 4)
        leader.fetched(partition, 2, 3)
        leader.replication.clock_ms += LAG_MS + 1
        leader.manager.shrink(partition)
        await settle()
        asks = "Partition t-0: the leader asks to shrink the ISR from [1, 2] to [1]; high watermark 3, log end 4"
        assert told() == [("INFO", asks)]
        leader.sender.asked[-1][1].set_exception(errors.error_for(ErrorCode.UNKNOWN_SERVER_ERROR))
        await settle()
        again = "Partition t-0: the ISR [1] was not set because of UNKNOWN_SERVER_ERROR; the leader asks again"
        assert told() == [("WARNING", again)]
        assert (len(leader.sender.asked), leader.manager.failed) == (2, 1)
        leader.sender.grant()
        await settle()
        assert told() == [("INFO", "Partition t-0: the ISR is [1] in partition epoch 8")]
        for number, (code, what) in enumerate(
            (
                (sorted(BACK_TO_COMMITTED)[0], "it stays [1]"),
                (sorted(STAYS_PENDING)[0], "the leader waits for its new state"),
            )
        ):
            leader.fetched(partition, 2, 4)
            await settle()
            leader.sender.asked[-1][1].set_exception(errors.error_for(code))
            await settle()
            refused = f"Partition t-0: the controller refuses the ISR [1, 2] with {code.name}"
            assert told() == [("INFO", f"{refused}; {what}")]
            assert leader.manager.failed == 2 + number
            assert (partition.pending is None) == (number == 0)

    run(test)


@pytest.mark.parametrize(
    ("at", "caught_up_ms", "lags"),
    [(9, -1, False), (9, 0, False), (8, -1, True), (8, 0, True), (8, 399, True), (8, 400, False), (8, 500, False),
     (10, 399, True), (-1, -1, True)],
)  # fmt: skip
def test_a_member_lags_that_was_not_caught_up_for_the_lag_time(at: int, caught_up_ms: int, lags: bool) -> None:
    """Now is 500; the log ends at 9. The leader itself never lags, whatever is known of it."""

    async def test(leader: IsrLeader) -> None:
        leader.replication.clock_ms = 500
        followers = [(each, at, 0, caught_up_ms, -1, 0) for each in (1, 2, 3)]
        log: Any = SimpleNamespace(log_end_offset=9, followers=lambda: followers)
        assert leader.manager.lagging(log, (1, 2)) == ({2} if lags else set())
        unknown: Any = SimpleNamespace(log_end_offset=9, followers=list)
        assert leader.manager.lagging(unknown, (1, 2, 3)) == {2, 3}
        nothing: Any = SimpleNamespace(log_end_offset=-1, followers=list)
        assert leader.manager.lagging(nothing, (1, 2)) == set()

    run(test)


def test_an_event_of_a_log_that_nobody_looks_after_or_that_is_on_its_way_changes_nothing() -> None:
    async def test(leader: IsrLeader) -> None:
        partition = leader.lead()
        log, manager = partition.log, leader.manager
        assert log is not None and partition.assignment is not None
        calls = (
            lambda: manager.follower_caught_up(log.id + 1, 3),
            lambda: manager.follower_caught_up(log.id, 2),  # a member
        )
        for call in calls:
            call()
        # The log leads in another epoch than the assignment says.
        assignment = partition.assignment
        partition.assignment = assignment._replace(state=assignment.state._replace(leader_epoch=4))
        manager.follower_caught_up(log.id, 3)
        leader.replication.clock_ms = 9000
        manager.shrink(partition)
        partition.assignment = None
        manager.follower_caught_up(log.id, 3)
        manager.shrink(partition)
        partition.assignment, partition.log = assignment, None
        manager.follower_caught_up(log.id, 3)
        manager.shrink(partition)
        partition.log = log
        log.go_offline(5)
        manager.shrink(partition)
        await settle()
        assert (leader.sender.asked, partition.pending) == ([], None)
        manager.forget(partition, log)
        manager.follower_caught_up(log.id, 3)
        await settle()
        assert leader.sender.asked == []

    run(test)


def test_a_log_that_has_a_newer_assignment_is_not_changed() -> None:
    """The log hears of it first, on a worker thread."""

    async def test(leader: IsrLeader) -> None:
        partition = leader.lead()
        log = partition.log
        assert log is not None
        told: list[Any] = []

        def set_isr(*what: Any, leader_epoch: int) -> bool:
            told.append((*what, leader_epoch))
            return False

        fake: Any = SimpleNamespace(id=log.id, leader_epoch=5, set_isr=set_isr)
        partition.log = fake
        leader.manager.follower_caught_up(log.id, 3)
        leader.manager._change(partition, (1,))
        await settle()
        assert told == [(7, (1, 2), (1, 2, 3), 5), (7, (1, 2), (1, 2), 5)]
        assert (leader.sender.asked, partition.pending) == ([], None)

    run(test)


def test_an_error_of_a_change_that_another_assignment_ended_counts_nothing() -> None:
    async def test(leader: IsrLeader) -> None:
        partition = leader.lead()
        leader.fetched(partition, 3, 0)
        await settle()
        leader.lead(partition=partition, isr=(1,), leader_epoch=6, version=9)
        leader.sender.asked[-1][1].set_exception(errors.error_for(ErrorCode.UNKNOWN_SERVER_ERROR))
        await settle()
        assert (leader.manager.failed, len(leader.sender.asked)) == (0, 1)
        assert (isr_of(partition), sizes(partition)) == (((1,), 9), (1, 1))

    run(test)


def test_the_end_of_the_manager_ends_all_changes() -> None:
    async def test(leader: IsrLeader) -> None:
        partition = leader.lead()
        leader.fetched(partition, 3, 0)
        await settle()
        changes = list(leader.manager._changes)
        assert len(changes) == 1
        await leader.manager.close()
        assert [each.cancelled() for each in changes] == [True]
        assert leader.manager._led == {}

    run(test)


def test_a_change_is_asked_for_again_after_a_pause(pauses: list[float]) -> None:
    async def test(leader: IsrLeader) -> None:
        partition = leader.lead()
        leader.fetched(partition, 3, 0)
        await settle()
        for number in (1, 2):
            leader.sender.asked[-1][1].set_exception(errors.error_for(ErrorCode.NOT_CONTROLLER))
            await settle()
            assert (len(leader.sender.asked), pauses) == (1 + number, [0.05] * number)

    run(test)
