"""A partition that this process leads, with a real log on a clock that the test sets, and a controller by hand."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from kafkapy._speedups.base.event_queue import FOLLOWER_CAUGHT_UP, EventQueue
from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.log.replication import Replication
from kafkapy.config.topic import LogConfig
from kafkapy.log.backends.memory import MemoryLogStorage
from kafkapy.metadata.broker_requests import LeaderAndIsrPartition
from kafkapy.metadata.znodes import PartitionState
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.replica.alter_partition import IsrChange
from kafkapy.replica.isr import IsrManager
from kafkapy.replica.partition import Partition
from kafkapy.types import TopicPartition

LAG_MS = 100


class Sender:
    """An AlterPartitionSender whose answers the test gives."""

    def __init__(self) -> None:
        self.asked: list[tuple[IsrChange, asyncio.Future[PartitionState]]] = []

    async def alter(self, change: IsrChange) -> PartitionState:
        answer: asyncio.Future[PartitionState] = asyncio.get_running_loop().create_future()
        self.asked.append((change, answer))
        return await answer

    async def close(self) -> None:
        return

    @property
    def last(self) -> IsrChange:
        return self.asked[-1][0]

    def grant(self, **fields: Any) -> PartitionState:
        change, answer = self.asked[-1]
        state = PartitionState(
            change.leader, change.leader_epoch, change.isr, change.controller_epoch, False, change.partition_epoch + 1
        )._replace(**fields)
        answer.set_result(state)
        return state


class IsrLeader:
    """Broker 1 with partitions that it leads."""

    def __init__(self) -> None:
        self.events = EventQueue()
        self.replication = Replication(LAG_MS)
        self.replication.clock_ms = 1000
        self.sender = Sender()
        self.manager = IsrManager(1, self.replication, self.sender)
        self.partitions: list[Partition] = []

    def lead(
        self,
        *,
        isr: tuple[int, ...] = (1, 2),
        replicas: tuple[int, ...] = (1, 2, 3),
        leader_epoch: int = 5,
        version: int = 7,
        partition: Partition | None = None,
        **config: Any,
    ) -> Partition:
        if partition is None:
            number = len(self.partitions)
            partition = Partition(TopicPartition("t", number), UUID(int=9), 1)
            overrides = {key.replace("_", "."): str(value) for key, value in config.items()}
            log = PartitionLog(
                "t",
                number,
                MemoryLogStorage(f"t-{number}"),
                LogConfig.create(overrides=overrides),
                events=self.events,
            )
            log.use_replication(self.replication)
            partition.log = log
            self.partitions.append(partition)
        assert partition.log is not None
        state = PartitionState(1, leader_epoch, isr, 4, False, version)
        partition.log.become_leader(1, leader_epoch, isr, replicas, partition_epoch=version)
        partition.assignment = LeaderAndIsrPartition(state, replicas)
        self.manager.leadership_changed(partition, partition.log)
        return partition

    def follow(self, partition: Partition, leader: int, leader_epoch: int) -> None:
        assert partition.log is not None and partition.assignment is not None
        partition.log.become_follower(leader, leader_epoch)
        partition.assignment = partition.assignment._replace(
            state=partition.assignment.state._replace(leader=leader, leader_epoch=leader_epoch)
        )
        self.manager.leadership_changed(partition, partition.log)

    @staticmethod
    def append(partition: Partition, records: int = 1) -> None:
        builder = RecordBatchBuilder()
        for _ in range(records):
            builder.append(1_700_000_000_000, b"k", b"v")
        assert partition.log is not None
        partition.log.append_as_leader(builder.build(), api_version=9)

    def fetched(self, partition: Partition, replica: int, offset: int, **fields: Any) -> None:
        """A follower's fetch, and what the control loop makes of it."""
        assert partition.log is not None
        partition.log.follower_position(replica, offset, **fields)
        self.drain()

    def drain(self) -> None:
        for kind, handle, argument, text in self.events.drain():
            if kind == FOLLOWER_CAUGHT_UP:
                self.manager.follower_caught_up(handle, argument, text)


async def settle() -> None:
    """Let the tasks that can run do so."""
    for _ in range(10):
        await asyncio.sleep(0)
