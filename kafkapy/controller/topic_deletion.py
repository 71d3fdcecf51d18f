"""The deletion of topics, which outlives requests, brokers and controllers.

A topic is deleted when /admin/delete_topics names it. Clients are told that it is gone, its partitions become
NonExistent, each replica is stopped and deleted by its broker, and when all have said so the topic's nodes are removed.
A replica that cannot be deleted now (its broker is dead, its log directory failed) makes the topic ineligible until
that changes. Whatever happens in between, the mark stays, so the next controller goes on.
Source: kafka.controller.TopicDeletionManager.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from uuid import UUID

from kafkapy.controller.broker_channel import BrokerRequestBatch
from kafkapy.controller.context import ControllerContext, PartitionStatus, Replica, ReplicaStatus
from kafkapy.controller.controller_store import ControllerStore
from kafkapy.controller.partition_state_machine import PartitionStateMachine
from kafkapy.controller.replica_state_machine import ReplicaStateMachine
from kafkapy.types import TopicPartition

logger = logging.getLogger("kafka.controller.TopicDeletionManager")


class TopicDeletionManager:
    """Drives deletions. Owned by KafkaController; called within its events on the control loop.

    `deleted` is awaited with the name and id of each topic that is gone for good.
    """

    def __init__(
        self,
        context: ControllerContext,
        store: ControllerStore,
        batch: BrokerRequestBatch,
        partitions: PartitionStateMachine,
        replicas: ReplicaStateMachine,
        deleted: Callable[[str, UUID], Awaitable[None]],
    ) -> None:
        self._context = context
        self._store = store
        self._batch = batch
        self._partitions = partitions
        self._replicas = replicas
        self._deleted = deleted

    def initialize(self, topics: Iterable[str]) -> None:
        """Take over the marks found at an election; `resume` then goes on with them."""
        context = self._context
        context.topics_to_delete = set(topics)
        for topic in context.topics_to_delete:
            replicas = context.replicas_for(context.partitions_of(topic))
            if not all(context.is_replica_online(each.broker, each.partition) for each in replicas):
                context.topics_deletion_ineligible.add(topic)
                logger.info("Halted deletion of topic %s: it has offline replicas", topic)

    async def enqueue(self, topics: Iterable[str]) -> None:
        """Begin to delete topics that were marked."""
        self._context.topics_to_delete.update(topics)
        await self.resume()

    async def retry(self, topics: Iterable[str]) -> None:
        """Try again with topics whose replicas have come back."""
        waiting = self._context.topics_to_delete.intersection(topics)
        if waiting:
            self._context.topics_deletion_ineligible -= waiting
            await self.resume()

    async def replicas_failed(self, replicas: Iterable[Replica]) -> None:
        """Brokers could not delete these replicas now."""
        failed = [each for each in replicas if self._context.is_topic_being_deleted(each.partition.topic)]
        if failed:
            topics = {each.partition.topic for each in failed}
            await self._replicas.handle_state_changes(failed, ReplicaStatus.DELETION_INELIGIBLE)
            self._context.topics_deletion_ineligible |= topics
            logger.info("Halted deletion of topics %s: replicas could not be deleted", ", ".join(sorted(topics)))
            await self.resume()

    async def replicas_deleted(self, replicas: Iterable[Replica]) -> None:
        """Brokers have deleted these replicas."""
        gone = [each for each in replicas if self._context.is_topic_being_deleted(each.partition.topic)]
        await self._replicas.handle_state_changes(gone, ReplicaStatus.DELETION_SUCCESSFUL)
        await self.resume()

    async def resume(self) -> None:
        """Finish what can be finished and begin what can be begun."""
        context = self._context
        begin: list[str] = []
        for topic in sorted(context.topics_to_delete):
            if context.all_replicas_in_state(topic, ReplicaStatus.DELETION_SUCCESSFUL):
                await self._complete(topic)
                continue
            if context.replicas_in_state(topic, ReplicaStatus.DELETION_STARTED):
                continue
            if topic not in context.topics_deletion_ineligible:
                waiting = context.replicas_in_state(topic, ReplicaStatus.DELETION_INELIGIBLE)
                await self._replicas.handle_state_changes(waiting, ReplicaStatus.OFFLINE)
                begin.append(topic)
        if begin:
            await self._begin(begin)

    async def _begin(self, topics: list[str]) -> None:
        context = self._context
        logger.info("Deletion of topics %s begins", ", ".join(topics))
        partitions = [partition for topic in topics for partition in context.partitions_of(topic)]
        fresh: list[TopicPartition] = [p for p in partitions if p.topic not in context.topics_deletion_started]
        await self._partitions.handle_state_changes(fresh, PartitionStatus.OFFLINE)
        await self._partitions.handle_state_changes(fresh, PartitionStatus.NON_EXISTENT)
        context.topics_deletion_started.update(topics)
        # Clients must stop using the topic before its logs go.
        self._batch.add_update_metadata(context.live_brokers, partitions)
        self._batch.send()
        alive: list[Replica] = []
        dead: list[Replica] = []
        for replica in context.replicas_for(partitions):
            if context.replica_state(replica) is ReplicaStatus.DELETION_SUCCESSFUL:
                continue
            online = context.is_replica_online(replica.broker, replica.partition)
            (alive if online else dead).append(replica)
        if dead:
            context.topics_deletion_ineligible.update(replica.partition.topic for replica in dead)
            offline = [r for r in dead if context.replica_state(r) is not ReplicaStatus.DELETION_INELIGIBLE]
            for replica in offline:
                context.put_replica_state(replica, ReplicaStatus.OFFLINE)
            await self._replicas.handle_state_changes(offline, ReplicaStatus.DELETION_INELIGIBLE)
        await self._replicas.handle_state_changes(alive, ReplicaStatus.OFFLINE)
        await self._replicas.handle_state_changes(alive, ReplicaStatus.DELETION_STARTED)

    async def _complete(self, topic: str) -> None:
        context = self._context
        replicas = context.replicas_in_state(topic, ReplicaStatus.DELETION_SUCCESSFUL)
        await self._replicas.handle_state_changes(replicas, ReplicaStatus.NON_EXISTENT)
        await self._store.delete_topic(topic)
        topic_id = context.topic_ids[topic]
        context.remove_topic(topic)
        logger.info("Deletion of topic %s successfully completed", topic)
        await self._deleted(topic, topic_id)
