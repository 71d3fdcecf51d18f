"""DeleteRecords over replicas: who is waited for, and what ends the wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from replica.isr_leader import IsrLeader, settle

from kafkapy import errors
from kafkapy._speedups.base.event_queue import FOLLOWER_LOG_START
from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy.replica.partition import Partition
from kafkapy.replica.record_deletions import RecordDeletions

Test = Callable[[IsrLeader, RecordDeletions, Partition, PartitionLog], Awaitable[None]]


def run(test: Test) -> None:
    async def body() -> None:
        leader = IsrLeader()
        deletions = RecordDeletions(leader.replication)
        partition = leader.lead(isr=(1, 2), replicas=(1, 2, 3))
        assert partition.log is not None
        leader.append(partition, 5)
        for replica in (2, 3):
            partition.log.follower_position(replica, 5, log_start_offset=0)
        leader.events.drain()
        await test(leader, deletions, partition, partition.log)
        await leader.manager.close()
        assert not partition.log.announce_log_starts

    asyncio.run(body())


def pump(leader: IsrLeader, deletions: RecordDeletions) -> int:
    """Hand the announced log starts out, and count them."""
    events = [event for event in leader.events.drain() if event[0] == FOLLOWER_LOG_START]
    for _, handle, argument, text in events:
        deletions.log_start_moved(handle, argument, text)
    return len(events)


def test_it_waits_for_all_live_replicas_in_the_isr_or_not() -> None:
    async def test(leader: IsrLeader, deletions: RecordDeletions, partition: Partition, log: PartitionLog) -> None:
        log.delete_records(3)
        assert deletions.low_watermark(log) == 0
        reached = asyncio.ensure_future(deletions.reached(partition, log, 3))
        await settle()
        log.follower_position(2, 5, log_start_offset=3)
        assert pump(leader, deletions) == 1
        await settle()
        assert not reached.done()
        log.follower_position(3, 5, log_start_offset=4)
        pump(leader, deletions)
        assert await reached == 3
        # Nobody waits: nothing is announced.
        log.follower_position(3, 5, log_start_offset=5)
        assert pump(leader, deletions) == 0
        assert await deletions.reached(partition, log, 3) == 3

    run(test)


def test_dead_replicas_are_not_waited_for() -> None:
    async def test(leader: IsrLeader, deletions: RecordDeletions, partition: Partition, log: PartitionLog) -> None:
        log.delete_records(2)
        log.follower_position(2, 5, log_start_offset=2)
        reached = asyncio.ensure_future(deletions.reached(partition, log, 2))
        await settle()
        assert not reached.done()
        leader.replication.set_live_brokers([1, 2])
        deletions.check()
        assert await reached == 2

    run(test)


def test_a_replica_whose_log_is_not_known_holds_it_back() -> None:
    async def test(leader: IsrLeader, deletions: RecordDeletions, partition: Partition, log: PartitionLog) -> None:
        leader.lead(partition=partition, isr=(1, 2), leader_epoch=6, version=8)
        for replica in (2, 3):
            log.follower_position(replica, 5)
        log.delete_records(2)
        assert deletions.low_watermark(log) == -1
        reached = asyncio.ensure_future(deletions.reached(partition, log, 2))
        await settle()
        for replica in (2, 3):
            assert not reached.done()
            log.follower_position(replica, 5, log_start_offset=2)
        pump(leader, deletions)
        assert await reached == 2

    run(test)


def test_the_end_of_leadership_and_of_the_disk_end_the_wait() -> None:
    async def test(leader: IsrLeader, deletions: RecordDeletions, partition: Partition, log: PartitionLog) -> None:
        log.delete_records(2)
        waiting = [asyncio.ensure_future(deletions.reached(partition, log, offset)) for offset in (1, 2)]
        await settle()
        leader.follow(partition, 2, 6)
        deletions.check()
        for each in waiting:
            with pytest.raises(errors.NotLeaderOrFollowerError):
                await each
        leader.lead(partition=partition, leader_epoch=7, version=9)
        reached = asyncio.ensure_future(deletions.reached(partition, log, 2))
        await settle()
        partition.offline = True
        deletions.check()
        with pytest.raises(errors.KafkaStorageError):
            await reached

    run(test)


def test_who_gives_up_leaves_nothing_behind() -> None:
    async def test(leader: IsrLeader, deletions: RecordDeletions, partition: Partition, log: PartitionLog) -> None:
        log.delete_records(2)
        first, second = (asyncio.ensure_future(deletions.reached(partition, log, 2)) for _ in range(2))
        await settle()
        first.cancel()
        await settle()
        assert first.cancelled() and log.announce_log_starts
        for replica in (2, 3):
            log.follower_position(replica, 5, log_start_offset=2)
        pump(leader, deletions)
        assert await second == 2

    run(test)
