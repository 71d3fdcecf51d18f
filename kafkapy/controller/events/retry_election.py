"""RetryElection: the store failed within a step, and the step is completed."""

from __future__ import annotations

from typing import Final

from kafkapy.controller.context import PartitionStatus, ReplicaStatus
from kafkapy.controller.controllership import Controllership
from kafkapy.controller.events import (
    broker_change,
    isr_change_notification,
    log_dir_event_notification,
    preferred_election,
    topic_change,
    topic_deletion,
)
from kafkapy.slices import in_slices

NAME: Final = "RetryElection"


async def run(controllership: Controllership) -> None:
    """Read the store again, bring its partitions online, and elect missing leaders."""
    await broker_change.run(controllership)
    await controllership.replicas_offline(await controllership.context.replicas_without_broker())
    await _bring_up_brokers(controllership)
    await log_dir_event_notification.run(controllership)
    await isr_change_notification.run(controllership)
    await topic_change.run(controllership)
    await controllership.adopt_topics(controllership.context.assignments)
    await _read_states(controllership)
    await topic_deletion.run(controllership)
    await _bring_up_partitions(controllership)
    await controllership.partitions.elect_where_needed()
    await controllership.bring_new_replicas_online()
    await controllership.reassignments.adopt_written()
    await controllership.reassignments.resume(lambda _partition, _assignment: True)
    await controllership.deletion.resume()
    await preferred_election.run(controllership)


async def _read_states(controllership: Controllership) -> None:
    """Adopt states that were written without an answer, and tell brokers."""
    context = controllership.context
    found = await controllership.store.partition_states(list(context.all_partitions()))
    async for partition, state in in_slices(found.items()):
        if (
            context.leadership.get(partition) == state
            or partition not in context.partition_status
            or context.is_topic_being_deleted(partition.topic)
        ):
            continue
        context.leadership[partition] = state
        led = context.is_replica_online(state.leader, partition)
        context.put_partition_state(partition, PartitionStatus.ONLINE if led else PartitionStatus.OFFLINE)
        controllership.batch.add_leader_and_isr(context.replicas_of(partition), partition, state)
    await controllership.batch.send()


async def _bring_up_brokers(controllership: Controllership) -> None:
    """Tell brokers again of everything that a stopped step may have kept from them."""
    context = controllership.context
    returned = [
        replica
        async for replica in in_slices(context.replicas_for(context.all_partitions()))
        if context.replica_state(replica) is ReplicaStatus.OFFLINE
        and context.is_replica_online(replica.broker, replica.partition)
        and not context.is_topic_being_deleted(replica.partition.topic)
    ]
    if returned:
        brokers = {replica.broker for replica in returned}
        await controllership.batch.add_update_metadata(brokers, context.leadership)
        await controllership.batch.send()
        await controllership.replicas.handle_state_changes(returned, ReplicaStatus.ONLINE)


async def _bring_up_partitions(controllership: Controllership) -> None:
    """Bring partitions online that a stopped step left in the context only."""
    context = controllership.context
    missing = [
        each
        async for each in in_slices(context.all_partitions())
        if each not in context.partition_status and not context.is_topic_being_deleted(each.topic)
    ]
    if not missing:
        return
    grown = {each.topic async for each in in_slices(context.partition_status)}
    await controllership.partitions_created([each for each in missing if each.topic in grown])
    created = dict.fromkeys(each.topic for each in missing if each.topic not in grown)
    if created:
        await controllership.topics_created(list(created))
