"""ControlledShutdown: a broker is about to stop. Source: processControlledShutdown."""

from __future__ import annotations

import logging
from typing import Final

from kafkapy import errors
from kafkapy.controller.context import PartitionStatus, Replica, ReplicaStatus
from kafkapy.controller.controllership import Controllership
from kafkapy.controller.partition_state_machine import ElectionStrategy
from kafkapy.slices import in_slices
from kafkapy.types import TopicPartition

logger = logging.getLogger("kafka.controller.KafkaController")

NAME: Final = "ControlledShutdown"
UNKNOWN_EPOCH: Final = -1
"""The epoch of a broker whose version of the request has none."""


async def run(controllership: Controllership, broker_id: int, broker_epoch: int) -> set[TopicPartition]:
    """Move leaderships off the broker; returns the replicated partitions it still leads.

    BROKER_NOT_AVAILABLE; STALE_BROKER_EPOCH, unless the epoch is unknown (-1).
    """
    context = controllership.context
    broker = context.live_brokers.get(broker_id)
    if broker is None:
        raise errors.BrokerNotAvailableError(f"Broker id {broker_id} does not exist.")
    if broker_epoch != UNKNOWN_EPOCH and broker_epoch < broker.epoch:
        raise errors.StaleBrokerEpochError(
            f"Broker {broker_id} asks with the old epoch {broker_epoch}: it is registered with epoch {broker.epoch}."
        )
    logger.info("Broker %d is shutting down", broker_id)
    context.shutting_down_brokers.add(broker_id)
    replicated = [
        replica
        async for replica in in_slices(await context.replicas_on({broker_id}))
        if len(context.replicas_of(replica.partition)) > 1
        and replica.partition in context.leadership
        and not context.is_topic_being_deleted(replica.partition.topic)
    ]
    led: list[TopicPartition] = []
    following: list[Replica] = []
    async for replica in in_slices(replicated):
        if context.leadership[replica.partition].leader == broker_id:
            led.append(replica.partition)
        else:
            following.append(replica)
    await controllership.partitions.handle_state_changes(
        led, PartitionStatus.ONLINE, ElectionStrategy.CONTROLLED_SHUTDOWN
    )
    # The broker stops to follow before the ISRs without it are written.
    async for replica in in_slices(following):
        epoch = context.leadership[replica.partition].leader_epoch
        controllership.batch.add_stop_replica(broker_id, replica.partition, epoch, delete=False)
    await controllership.batch.send()
    await controllership.replicas.handle_state_changes(following, ReplicaStatus.OFFLINE)
    return {partition async for partition in in_slices(led) if context.leadership[partition].leader == broker_id}
