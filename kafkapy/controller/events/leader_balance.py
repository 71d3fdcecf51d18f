"""AutoPreferredReplicaLeaderElection: leaders go back to their preferred replicas.

Source: checkAndTriggerAutoLeaderRebalance.
"""

from __future__ import annotations

import logging
from typing import Final

from kafkapy.controller.context import ControllerContext, PartitionStatus
from kafkapy.controller.controllership import Controllership
from kafkapy.controller.elections import elect_preferred
from kafkapy.controller.partition_state_machine import ElectionStrategy
from kafkapy.slices import in_slices
from kafkapy.types import TopicPartition

logger = logging.getLogger("kafka.controller.KafkaController")

NAME: Final = "AutoPreferredReplicaLeaderElection"
FIRST_S: Final = 5.0
"""Seconds between an election of the controller and its first check."""


async def run(controllership: Controllership) -> None:
    """Elect the preferred leaders of each broker that leads too few of its partitions."""
    context = controllership.context
    allowed = controllership.config.get_int("leader.imbalance.per.broker.percentage") / 100
    for broker, partitions in (await _by_preferred_leader(context)).items():
        elsewhere = [each async for each in in_slices(partitions) if _is_led_elsewhere(context, each, broker)]
        if len(elsewhere) <= allowed * len(partitions):
            continue
        movable = [each async for each in in_slices(elsewhere) if _may_lead(context, each)]
        if movable:
            logger.info("Broker %d gets %d leaderships back: it is their preferred leader", broker, len(movable))
            await controllership.partitions.handle_state_changes(
                movable, PartitionStatus.ONLINE, ElectionStrategy.PREFERRED_REPLICA
            )


async def _by_preferred_leader(context: ControllerContext) -> dict[int, list[TopicPartition]]:
    result: dict[int, list[TopicPartition]] = {}
    async for partition in in_slices(context.all_partitions()):
        replicas = context.replicas_of(partition)
        if replicas and not context.is_topic_being_deleted(partition.topic):
            result.setdefault(replicas[0], []).append(partition)
    return result


def _is_led_elsewhere(context: ControllerContext, partition: TopicPartition, broker: int) -> bool:
    state = context.leadership.get(partition)
    return state is not None and state.leader != broker


def _may_lead(context: ControllerContext, partition: TopicPartition) -> bool:
    replicas = context.replicas_of(partition)
    online = [each for each in replicas if context.is_replica_online(each, partition)]
    return elect_preferred(replicas, context.leadership[partition].isr, online) is not None
