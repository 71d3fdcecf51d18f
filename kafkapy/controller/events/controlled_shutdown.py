"""ControlledShutdown: a broker is about to stop. Source: processControlledShutdown."""

from __future__ import annotations

from typing import Final

from kafkapy import errors
from kafkapy.controller.context import PartitionStatus, ReplicaStatus
from kafkapy.controller.controllership import Controllership
from kafkapy.controller.partition_state_machine import ElectionStrategy
from kafkapy.types import TopicPartition

NAME: Final = "ControlledShutdown"


async def run(controllership: Controllership, broker_id: int) -> set[TopicPartition]:
    """Move leaderships off the broker; returns the replicated partitions it still leads.

    BROKER_NOT_AVAILABLE.
    """
    context = controllership.context
    if broker_id not in context.live_brokers:
        raise errors.BrokerNotAvailableError(f"Broker id {broker_id} does not exist.")
    context.shutting_down_brokers.add(broker_id)
    replicated = [
        replica
        for replica in context.replicas_on({broker_id})
        if len(context.replicas_of(replica.partition)) > 1 and replica.partition in context.leadership
    ]
    led = [r.partition for r in replicated if context.leadership[r.partition].leader == broker_id]
    await controllership.partitions.handle_state_changes(
        led, PartitionStatus.ONLINE, ElectionStrategy.CONTROLLED_SHUTDOWN
    )
    following = [r for r in replicated if context.leadership[r.partition].leader != broker_id]
    await controllership.replicas.handle_state_changes(following, ReplicaStatus.OFFLINE)
    return {partition for partition in led if context.leadership[partition].leader == broker_id}
