"""ReplicaLeaderElection: ElectLeaders asks for preferred or unclean elections.

Source: processReplicaLeaderElection.
"""

from __future__ import annotations

from typing import Final

from kafkapy import errors
from kafkapy.controller.context import PartitionStatus
from kafkapy.controller.controllership import Controllership
from kafkapy.controller.partition_state_machine import ElectionStrategy
from kafkapy.slices import in_slices
from kafkapy.types import TopicPartition

NAME: Final = "ReplicaLeaderElection"


async def run(
    controllership: Controllership, partitions: list[TopicPartition], unclean: bool
) -> dict[TopicPartition, errors.KafkaError | None]:
    """The error of each partition, None after a successful election."""
    context = controllership.context
    results: dict[TopicPartition, errors.KafkaError | None] = {}
    unknown = errors.UnknownTopicOrPartitionError("The partition does not exist.")
    not_needed = errors.ElectionNotNeededError()
    needed = []
    async for partition in in_slices(partitions):
        state = context.leadership.get(partition)
        if state is None or context.is_topic_being_deleted(partition.topic):
            results[partition] = unknown
            continue
        has_leader = context.is_replica_online(state.leader, partition)
        done = has_leader if unclean else state.leader == context.replicas_of(partition)[0]
        if done:
            results[partition] = not_needed
        else:
            needed.append(partition)
    strategy = ElectionStrategy.OFFLINE_PARTITION_UNCLEAN if unclean else ElectionStrategy.PREFERRED_REPLICA
    moved = await controllership.partitions.handle_state_changes(needed, PartitionStatus.ONLINE, strategy)
    for partition in needed:
        failure: errors.KafkaError | None = None
        if partition not in moved:
            code = 83 if unclean else 80
            failure = errors.error_for(code)
        results[partition] = failure
    return results
