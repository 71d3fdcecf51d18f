"""The replica state machine: states from New to NonExistent, and their effects.

    New -> Online <-> Offline -> DeletionStarted -> DeletionSuccessful -> NonExistent

A replica whose deletion has failed, because its broker is dead for instance, waits in DeletionIneligible. Becoming
Offline takes a replica out of the ISR in the store. Source: kafka.controller.ZkReplicaStateMachine.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kafkapy.controller.broker_channel import BrokerRequestBatch
from kafkapy.controller.context import ControllerContext, Replica, ReplicaStatus
from kafkapy.controller.controller_store import ControllerStore
from kafkapy.controller.partition_state_machine import states_known
from kafkapy.metadata.broker_requests import EPOCH_DURING_DELETE, NO_EPOCH
from kafkapy.metadata.znodes import NO_LEADER, PartitionState
from kafkapy.slices import in_slices
from kafkapy.types import TopicPartition

logger = logging.getLogger("state.change.logger")

_NEW, _ONLINE, _OFFLINE = ReplicaStatus.NEW, ReplicaStatus.ONLINE, ReplicaStatus.OFFLINE
_STARTED, _SUCCESSFUL = ReplicaStatus.DELETION_STARTED, ReplicaStatus.DELETION_SUCCESSFUL
_INELIGIBLE, _NON_EXISTENT = ReplicaStatus.DELETION_INELIGIBLE, ReplicaStatus.NON_EXISTENT
VALID_PREVIOUS: Final[Mapping[ReplicaStatus, frozenset[ReplicaStatus]]] = {
    _NEW: frozenset({_NON_EXISTENT}),
    _ONLINE: frozenset({_NEW, _ONLINE, _OFFLINE, _INELIGIBLE}),
    _OFFLINE: frozenset({_NEW, _ONLINE, _OFFLINE, _INELIGIBLE}),
    _STARTED: frozenset({_OFFLINE}),
    _SUCCESSFUL: frozenset({_STARTED}),
    _INELIGIBLE: frozenset({_OFFLINE, _STARTED}),
    _NON_EXISTENT: frozenset({_SUCCESSFUL}),
}


class ReplicaStateMachine:
    """Moves replicas between states.

    Owned by KafkaController; called within its events on the control loop.
    """

    def __init__(self, context: ControllerContext, store: ControllerStore, batch: BrokerRequestBatch) -> None:
        self._context = context
        self._store = store
        self._batch = batch

    async def startup(self) -> None:
        """Give every replica its first state, and tell brokers.

        Replicas on dead brokers or failed directories leave the ISR.
        """
        context = self._context
        online, offline = [], []
        async for replica in in_slices(context.replicas_for(context.all_partitions())):
            if context.is_replica_online(replica.broker, replica.partition):
                context.put_replica_state(replica, _ONLINE)
                online.append(replica)
            else:
                # If the topic were marked for deletion, this replica could not be deleted now.
                context.put_replica_state(replica, _INELIGIBLE)
                offline.append(replica)
        await self._move(online, _ONLINE)
        await self._batch.send(full=True)
        await self.handle_state_changes(offline, _OFFLINE)

    async def handle_state_changes(self, replicas: Iterable[Replica], target: ReplicaStatus) -> None:
        """Move the replicas and tell brokers."""
        replicas = list(replicas)
        if replicas:
            await self._move(replicas, target)
            await self._batch.send()

    async def _move(self, replicas: Sequence[Replica], target: ReplicaStatus) -> None:
        context = self._context
        valid = []
        async for replica in in_slices(replicas):
            current = context.replica_state(replica)
            if current in VALID_PREVIOUS[target]:
                valid.append(replica)
            else:
                logger.error("Replica %s cannot become %s from %s", replica, target.value, current.value)
        if target is _ONLINE:
            await self._announce_online(valid)
        elif target is _NEW:
            valid = await self._announce_new(valid)
        elif target is _OFFLINE:
            await self._take_offline(valid)
        elif target is _STARTED:
            async for replica in in_slices(valid):
                self._batch.add_stop_replica(replica.broker, replica.partition, self._stop_epoch(replica), delete=True)
        async for replica in in_slices(valid):
            if target is _NON_EXISTENT:
                self._forget(replica)
            else:
                context.put_replica_state(replica, target)

    def _forget(self, replica: Replica) -> None:
        context = self._context
        context.drop_replica(replica)
        # The whole topic leaves the context when its deletion is complete.
        if not context.is_topic_being_deleted(replica.partition.topic):
            assignment = context.assignment_of(replica.partition)
            context.put_assignment(replica.partition, assignment.without(replica.broker))

    def _stop_epoch(self, replica: Replica) -> int:
        """The leader epoch that a StopReplica names."""
        if self._context.is_topic_being_deleted(replica.partition.topic):
            return EPOCH_DURING_DELETE
        state = self._context.leadership.get(replica.partition)
        return NO_EPOCH if state is None else state.leader_epoch

    async def _announce_online(self, replicas: Sequence[Replica]) -> None:
        context = self._context
        async for replica in in_slices(replicas):
            state = context.leadership.get(replica.partition)
            # The log of a topic that is about to be deleted need not be opened.
            if context.is_topic_being_deleted(replica.partition.topic):
                continue
            # A new replica was told when its partition got its leader.
            if context.replica_state(replica) is _NEW:
                assignment = context.assignment_of(replica.partition)
                if replica.broker not in assignment.replicas:
                    more = (*assignment.replicas, replica.broker)
                    context.put_assignment(replica.partition, assignment._replace(replicas=more))
            elif state is not None:
                self._batch.add_leader_and_isr([replica.broker], replica.partition, state)

    async def _announce_new(self, replicas: Sequence[Replica]) -> list[Replica]:
        """The replicas that may be new: a leader cannot."""
        allowed = []
        async for replica in in_slices(replicas):
            state = self._context.leadership.get(replica.partition)
            if state is not None and state.leader == replica.broker:
                logger.error("Replica %s cannot become new: it leads the partition", replica)
                continue
            allowed.append(replica)
            if state is not None:
                self._batch.add_leader_and_isr([replica.broker], replica.partition, state, is_new=True)
        return allowed

    async def _take_offline(self, replicas: Sequence[Replica]) -> None:
        context = self._context
        by_partition: dict[TopicPartition, set[int]] = {}
        async for replica in in_slices(replicas):
            by_partition.setdefault(replica.partition, set()).add(replica.broker)
        states = await self._remove_from_isr(by_partition)
        async for replica in in_slices(replicas):
            self._batch.add_stop_replica(replica.broker, replica.partition, self._stop_epoch(replica), delete=False)
        async for partition, gone in in_slices(by_partition.items()):
            state = states.get(partition)
            if state is not None:
                remaining = [each for each in context.replicas_of(partition) if each not in gone]
                self._batch.add_leader_and_isr(remaining, partition, state)
            self._batch.add_to_all(partition)

    async def _remove_from_isr(
        self, by_partition: Mapping[TopicPartition, set[int]]
    ) -> dict[TopicPartition, PartitionState]:
        """Take the brokers out of the ISRs; returns the states after that.

        A leader that is taken out becomes -1. An ISR without the brokers stays as it is. Partitions of topics that are
        being deleted are left out.
        """
        result: dict[TopicPartition, PartitionState] = {}
        remaining = [
            partition for partition in by_partition if not self._context.is_topic_being_deleted(partition.topic)
        ]
        current = await states_known(self._context, self._store, remaining)
        while remaining:
            changed: dict[TopicPartition, PartitionState] = {}
            async for partition, state in in_slices(current.items()):
                gone = by_partition[partition]
                if gone.isdisjoint(state.isr):
                    self._context.leadership[partition] = result[partition] = state
                    continue
                # The last replica in sync stays in the ISR: it alone may lead when it comes back.
                isr = tuple(each for each in state.isr if each not in gone) or state.isr
                changed[partition] = state._replace(
                    leader=NO_LEADER if state.leader in gone else state.leader,
                    isr=isr,
                    leader_epoch=state.leader_epoch + 1,
                    controller_epoch=self._context.epoch,
                )
            written, remaining = await self._store.update_partition_states(changed)
            self._context.leadership.update(written)
            result |= written
            current = await self._store.partition_states(remaining)
        return result
