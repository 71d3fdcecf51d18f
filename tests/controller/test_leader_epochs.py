"""Leader epochs after a start: they rise where records may be missing, or where the log is ahead of the store."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from kafkapy.controller.context import ControllerContext
from kafkapy.controller.leader_epochs import NO_LOG, LogAtStart, next_epoch, raise_epochs
from kafkapy.metadata.znodes import PartitionState, ReplicaAssignment, TopicAssignment
from kafkapy.types import TopicPartition, random_uuid

States = dict[TopicPartition, PartitionState]
HERE = 1
STORED = PartitionState(2, 9, (2,), 3, version=8)
"""The state that another broker has written meanwhile."""


@pytest.mark.parametrize(
    ("epoch", "log", "expected"),
    [
        (-1, NO_LOG, -1),
        (-1, LogAtStart(True, -1), -1),
        (-1, LogAtStart(True, 0), 1),
        (-1, LogAtStart(False, 4), 5),
        (0, NO_LOG, 1),
        (3, LogAtStart(True, -1), 3),
        (3, LogAtStart(True, 3), 3),
        (3, LogAtStart(True, 4), 5),
        (3, LogAtStart(False, -1), 4),
        (3, LogAtStart(False, 3), 4),
        (3, LogAtStart(False, 4), 5),
    ],
)
def test_the_epoch_after_a_start(epoch: int, log: LogAtStart, expected: int) -> None:
    assert next_epoch(epoch, log) == expected


class Store:
    """Takes every state but those of partition `late`."""

    def __init__(self, late: TopicPartition) -> None:
        self.late = late

    async def create_partition_states(self, states: Mapping[TopicPartition, PartitionState]) -> States:
        return {partition: each._replace(version=0) for partition, each in states.items()}

    async def update_partition_states(
        self, states: Mapping[TopicPartition, PartitionState]
    ) -> tuple[States, list[TopicPartition]]:
        written = {partition: each._replace(version=each.version + 1) for partition, each in states.items()}
        refused = [partition for partition in written if partition == self.late]
        return {partition: each for partition, each in written.items() if partition not in refused}, refused

    async def partition_states(self, partitions: Collection[TopicPartition]) -> States:
        return dict.fromkeys(partitions, STORED)


def test_epochs_rise_in_the_store_and_the_context() -> None:
    replicas = {
        "clean": (HERE,),
        "unclean": (HERE, 2),
        "late": (HERE, 2),
        "elsewhere": (2, 3),
        "forgotten": (HERE,),
        "forgotten by two": (HERE, 2),
        "new": (HERE,),
    }
    context = ControllerContext()
    context.epoch = 6
    for name, each in replicas.items():
        topic_id = random_uuid()
        context.put_topic(name, topic_id, TopicAssignment(topic_id, {0: ReplicaAssignment(each)}))
    of = {name: TopicPartition(name, 0) for name in replicas}
    logs = {of["clean"]: LogAtStart(True, 4), of["forgotten"]: LogAtStart(True, 7)}
    logs[of["forgotten by two"]] = logs[of["forgotten"]]
    before = PartitionState(HERE, 4, (HERE,), 5, version=2)
    led = dict.fromkeys((of["clean"], of["unclean"], of["late"], of["elsewhere"]), before)
    context.leadership.update(led)
    store: Any = Store(of["late"])
    asyncio.run(raise_epochs(context, store, HERE, lambda partition: logs.get(partition, NO_LOG)))
    assert context.leadership == {
        **led,
        of["unclean"]: PartitionState(HERE, 5, (HERE,), 6, version=3),
        of["late"]: STORED,
        of["forgotten"]: PartitionState(HERE, 8, (HERE,), 6, version=0),
    }
