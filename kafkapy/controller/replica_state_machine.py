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
from kafkapy.metadata.broker_requests import EPOCH_DURING_DELETE
from kafkapy.metadata.znodes import NO_LEADER, PartitionState
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
        """Give every replica its first state; tell brokers of online ones."""
        context = self._context
        online = []
        for replica in context.replicas_for(context.all_partitions()):
            if context.is_replica_online(replica.broker, replica.partition):
                context.put_replica_state(replica, _ONLINE)
                online.append(replica)
            else:
                # If the topic were marked for deletion, this replica could not be deleted now.
                context.put_replica_state(replica, _INELIGIBLE)
        await self._move(online, _ONLINE)
        self._batch.send(full=True)

    async def handle_state_changes(self, replicas: Iterable[Replica], target: ReplicaStatus) -> None:
        """Move the replicas and tell brokers."""
        replicas = list(replicas)
        if replicas:
            await self._move(replicas, target)
            self._batch.send()

    async def _move(self, replicas: Sequence[Replica], target: ReplicaStatus) -> None:
        context = self._context
        valid = []
        for replica in replicas:
            current = context.replica_state(replica)
            if current in VALID_PREVIOUS[target]:
                valid.append(replica)
            else:
                logger.error("Replica %s cannot become %s from %s", replica, target.value, current.value)
        if target is _ONLINE:
            self._announce_online(valid)
        elif target is _NEW:
            self._announce_new(valid)
        elif target is _OFFLINE:
            await self._take_offline(valid)
        elif target is _STARTED:
            for replica in valid:
                self._batch.add_stop_replica(replica.broker, replica.partition, EPOCH_DURING_DELETE, delete=True)
        for replica in valid:
            if target is _NON_EXISTENT:
                context.replica_status.get(replica.partition.topic, {}).pop(replica, None)
            else:
                context.put_replica_state(replica, target)

    def _announce_online(self, replicas: Sequence[Replica]) -> None:
        context = self._context
        for replica in replicas:
            state = context.leadership.get(replica.partition)
            # A new replica was told when its partition got its leader; the log of a topic that is about to be deleted
            # need not be opened.
            if context.replica_state(replica) is _NEW or context.is_topic_being_deleted(replica.partition.topic):
                continue
            if state is not None:
                self._batch.add_leader_and_isr([replica.broker], replica.partition, state)

    def _announce_new(self, replicas: Sequence[Replica]) -> None:
        for replica in replicas:
            state = self._context.leadership.get(replica.partition)
            if state is not None and state.leader != replica.broker:
                self._batch.add_leader_and_isr([replica.broker], replica.partition, state, is_new=True)
                self._batch.add_update_metadata(self._context.live_brokers, [replica.partition])

    async def _take_offline(self, replicas: Sequence[Replica]) -> None:
        context = self._context
        for replica in replicas:
            state = context.leadership.get(replica.partition)
            epoch = EPOCH_DURING_DELETE if state is None else state.leader_epoch
            if context.is_topic_being_deleted(replica.partition.topic):
                epoch = EPOCH_DURING_DELETE
            self._batch.add_stop_replica(replica.broker, replica.partition, epoch, delete=False)
        by_partition: dict[TopicPartition, set[int]] = {}
        for replica in replicas:
            by_partition.setdefault(replica.partition, set()).add(replica.broker)
        for partition, state in (await self._remove_from_isr(by_partition)).items():
            if not context.is_topic_being_deleted(partition.topic):
                leaders = [each for each in context.replicas_of(partition) if each not in by_partition[partition]]
                self._batch.add_leader_and_isr(leaders, partition, state)
            self._batch.add_update_metadata(context.live_brokers, [partition])

    async def _remove_from_isr(
        self, by_partition: Mapping[TopicPartition, set[int]]
    ) -> dict[TopicPartition, PartitionState]:
        """Take the brokers out of the ISRs; returns the changed states.

        A leader that is taken out becomes -1.
        """
        result: dict[TopicPartition, PartitionState] = {}
        remaining = [
            partition for partition in by_partition if not self._context.is_topic_being_deleted(partition.topic)
        ]
        while remaining:
            changed: dict[TopicPartition, PartitionState] = {}
            for partition, state in (await self._store.partition_states(remaining)).items():
                gone = by_partition[partition]
                if gone.isdisjoint(state.isr):
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
        return result
