"""ReplicaLeaderElection: ElectLeaders asks for preferred or unclean elections.

Source: processReplicaLeaderElection.
"""

from __future__ import annotations

from typing import Final

from kafkapy import errors
from kafkapy.controller.context import ControllerContext, PartitionStatus
from kafkapy.controller.controllership import Controllership
from kafkapy.controller.partition_state_machine import ElectionStrategy
from kafkapy.slices import in_slices
from kafkapy.types import TopicPartition

NAME: Final = "ReplicaLeaderElection"


async def run(
    controllership: Controllership, partitions: list[TopicPartition], unclean: bool
) -> dict[TopicPartition, int | errors.KafkaError]:
    """The new leader of each partition, or its error."""
    context = controllership.context
    results: dict[TopicPartition, int | errors.KafkaError] = {}
    unknown = errors.UnknownTopicOrPartitionError("The partition does not exist.")
    deleted = errors.InvalidTopicError("The topic is being deleted")
    not_needed = errors.ElectionNotNeededError()
    needed = []
    async for partition in in_slices(partitions):
        replicas = context.replicas_of(partition)
        if not replicas:
            results[partition] = unknown
        elif context.is_topic_being_deleted(partition.topic):
            results[partition] = deleted
        elif _is_needed(context, partition, replicas[0], unclean):
            needed.append(partition)
        else:
            results[partition] = not_needed
    strategy = ElectionStrategy.OFFLINE_PARTITION_UNCLEAN if unclean else ElectionStrategy.PREFERRED_REPLICA
    moved = await controllership.partitions.handle_state_changes(needed, PartitionStatus.ONLINE, strategy)
    failure = errors.error_for(
        errors.ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE if unclean else errors.ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    )
    for partition in needed:
        results[partition] = context.leadership[partition].leader if partition in moved else failure
    return results


def _is_needed(context: ControllerContext, partition: TopicPartition, preferred: int, unclean: bool) -> bool:
    state = context.leadership.get(partition)
    if state is None:
        return True
    return not context.is_replica_online(state.leader, partition) if unclean else state.leader != preferred
