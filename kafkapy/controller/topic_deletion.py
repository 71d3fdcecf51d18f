"""The deletion of topics, which outlives requests, brokers and controllers.

A topic is deleted when /admin/delete_topics names it. Clients hear that it is gone, its partitions become NonExistent,
each replica is stopped and deleted by its broker, and when all brokers have confirmed that, the topic's nodes are
removed. A replica that cannot be deleted now (its broker is dead, its log directory failed) makes the topic ineligible
until that changes. The name is free again when the groups have forgotten their offsets for good, so that a new topic of
the name does not inherit them. The mark stays until the end, so the next controller resumes the deletion. Source:
kafka.controller.TopicDeletionManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Final
from uuid import UUID

from kafkapy.controller.broker_channel import BrokerRequestBatch
from kafkapy.controller.context import ControllerContext, PartitionStatus, Replica, ReplicaStatus
from kafkapy.controller.controller_store import ControllerStore
from kafkapy.controller.partition_state_machine import PartitionStateMachine
from kafkapy.controller.replica_state_machine import ReplicaStateMachine
from kafkapy.metadata.broker_requests import EPOCH_DURING_DELETE
from kafkapy.metadata.topic_names import GROUP_METADATA_TOPIC
from kafkapy.slices import in_slices
from kafkapy.types import TopicPartition

logger = logging.getLogger("kafka.controller.TopicDeletionManager")

RETRY_S: Final = 1.0
"""Pause in seconds after an error before offsets are forgotten again."""

ForgetOffsets = Callable[[AbstractSet[str], int], Awaitable[None]]


class TopicDeletionManager:
    """Drives deletions.

    Owned by KafkaController; called within its events on the control loop.

    `deleted` is awaited with the name and id of each topic that is gone for good. `forget_offsets` gets topics and the
    number of partitions of __consumer_offsets, and returns when no group has offsets of the topics; `again` has
    `resume` called in an event.
    """

    def __init__(
        self,
        context: ControllerContext,
        store: ControllerStore,
        batch: BrokerRequestBatch,
        partitions: PartitionStateMachine,
        replicas: ReplicaStateMachine,
        deleted: Callable[[str, UUID], Awaitable[None]],
        forget_offsets: ForgetOffsets | None = None,
        again: Callable[[], None] = lambda: None,
    ) -> None:
        self._context = context
        self._store = store
        self._batch = batch
        self._partitions = partitions
        self._replicas = replicas
        self._deleted = deleted
        self._forget_offsets = forget_offsets
        self._again = again
        self._forgotten: set[UUID] = set()
        """Ids of topics whose offsets are gone."""
        self._forgetting: dict[asyncio.Task[None], frozenset[UUID]] = {}

    async def close(self) -> None:
        """Cancel all waits."""
        for task in self._forgetting:
            task.cancel()
        await asyncio.gather(*self._forgetting, return_exceptions=True)

    def initialize(self, topics: Iterable[str]) -> None:
        """Load the marks found at an election; `resume` then continues them."""
        context = self._context
        context.topics_to_delete = set(topics)
        for topic in context.topics_to_delete:
            replicas = context.replicas_for(context.partitions_of(topic))
            self.wait_for_reassignment(topic)
            if not all(context.is_replica_online(each.broker, each.partition) for each in replicas):
                context.topics_deletion_ineligible.add(topic)
                logger.info("The deletion of topic %s waits for its offline replicas", topic)

    def wait_for_reassignment(self, topic: str) -> None:
        """Begin no deletion of a topic while partitions of it move to other replicas."""
        context = self._context
        if context.is_topic_being_deleted(topic) and context.is_topic_being_reassigned(topic):
            context.topics_deletion_ineligible.add(topic)
            logger.info("The deletion of topic %s waits for the reassignment of its partitions", topic)

    async def enqueue(self, topics: Iterable[str]) -> None:
        """Begin to delete marked topics."""
        topics = list(topics)
        self._context.topics_to_delete.update(topics)
        for topic in topics:
            self.wait_for_reassignment(topic)
        await self.resume()

    async def retry(self, topics: Iterable[str]) -> None:
        """Retry topics whose replicas are online again."""
        context = self._context
        waiting = {
            topic
            for topic in context.topics_to_delete.intersection(topics)
            if not context.is_topic_being_reassigned(topic)
        }
        if waiting:
            context.topics_deletion_ineligible -= waiting
            await self.resume(waiting)

    async def replicas_failed(self, replicas: Iterable[Replica]) -> None:
        """Mark replicas that brokers could not delete now."""
        context = self._context
        failed = [
            each
            for each in replicas
            if context.is_topic_being_deleted(each.partition.topic)
            and context.replica_state(each) in (ReplicaStatus.DELETION_STARTED, ReplicaStatus.OFFLINE)
        ]
        if failed:
            topics = {each.partition.topic for each in failed}
            await self._replicas.handle_state_changes(failed, ReplicaStatus.DELETION_INELIGIBLE)
            context.topics_deletion_ineligible |= topics
            logger.info("The deletion of topics %s waits: brokers could not delete replicas", ", ".join(sorted(topics)))
            await self.resume(topics)

    async def replicas_deleted(self, replicas: Iterable[Replica]) -> None:
        """Mark replicas that brokers have deleted."""
        context = self._context
        gone = [
            each
            for each in replicas
            if context.is_topic_being_deleted(each.partition.topic)
            and context.replica_state(each) is ReplicaStatus.DELETION_STARTED
        ]
        await self._replicas.handle_state_changes(gone, ReplicaStatus.DELETION_SUCCESSFUL)
        await self.resume({each.partition.topic for each in gone})

    async def resume(self, topics: Iterable[str] | None = None) -> None:
        """Finish the deletions that are complete, and begin the eligible ones.

        None: of all topics.
        """
        context = self._context
        begin: list[str] = []
        remembered: set[str] = set()
        for topic in sorted(context.topics_to_delete if topics is None else context.topics_to_delete & set(topics)):
            if context.all_replicas_in_state(topic, ReplicaStatus.DELETION_SUCCESSFUL):
                if self._forget_offsets is None or context.topic_ids[topic] in self._forgotten:
                    await self._complete(topic)
                else:
                    remembered.add(topic)
                continue
            if context.has_replica_in_state(topic, ReplicaStatus.DELETION_STARTED):
                continue
            if topic not in context.topics_deletion_ineligible:
                waiting = context.replicas_in_state(topic, ReplicaStatus.DELETION_INELIGIBLE)
                await self._replicas.handle_state_changes(waiting, ReplicaStatus.OFFLINE)
                begin.append(topic)
        if remembered:
            under_way = frozenset[UUID]().union(*self._forgetting.values())
            self._begin_to_forget({each for each in remembered if context.topic_ids[each] not in under_way})
        if begin:
            await self._begin(begin)

    def _begin_to_forget(self, topics: set[str]) -> None:
        """Forget the topics' offsets, as no commit arrives any more.

        Brokers have deleted the replicas, and before that removed the topics from their caches.
        """
        forget = self._forget_offsets
        if forget is None or not topics:
            return
        context = self._context
        offsets_partitions = 0
        if GROUP_METADATA_TOPIC not in context.topics_to_delete:
            offsets_partitions = len(context.partitions_of(GROUP_METADATA_TOPIC))
        task = asyncio.get_running_loop().create_task(_awaited(forget, topics, offsets_partitions))
        self._forgetting[task] = frozenset(context.topic_ids[each] for each in topics)
        task.add_done_callback(self._forgot)

    def _forgot(self, task: asyncio.Task[None]) -> None:
        topics = self._forgetting.pop(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._forgotten |= topics
            self._again()
            return
        logger.error(
            "The offsets of %d deleted topics could not be removed; the controller retries", len(topics), exc_info=error
        )
        asyncio.get_running_loop().call_later(RETRY_S, self._again)

    async def vanished(self, topic: str) -> None:
        """Forget a topic whose nodes another tool removed.

        Brokers stop hosting it, and keep its logs.
        """
        context = self._context
        context.topics_to_delete.add(topic)
        partitions = context.partitions_of(topic)
        await self._batch.add_update_metadata(context.live_brokers, partitions)
        for replica in context.replicas_for(partitions):
            self._batch.add_stop_replica(replica.broker, replica.partition, EPOCH_DURING_DELETE, delete=False)
        await self._batch.send()
        self._begin_to_forget({topic})
        topic_id = context.topic_ids[topic]
        context.remove_topic(topic)
        await self._deleted(topic, topic_id)

    async def _begin(self, topics: list[str]) -> None:
        context = self._context
        logger.info("The deletion of topics %s begins", ", ".join(topics))
        partitions = [partition for topic in topics for partition in context.partitions_of(topic)]
        fresh: list[TopicPartition] = [p for p in partitions if p.topic not in context.topics_deletion_started]
        await self._partitions.handle_state_changes(fresh, PartitionStatus.OFFLINE)
        await self._partitions.handle_state_changes(fresh, PartitionStatus.NON_EXISTENT)
        context.topics_deletion_started.update(topics)
        # Clients must stop using the topic before its logs go.
        await self._batch.add_update_metadata(context.live_brokers, partitions)
        await self._batch.send()
        alive: list[Replica] = []
        dead: list[Replica] = []
        async for replica in in_slices(context.replicas_for(partitions)):
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
        # This comes first: a store that fails leaves everything as it is, for the next try.
        await self._store.delete_topic(topic)
        replicas = context.replicas_in_state(topic, ReplicaStatus.DELETION_SUCCESSFUL)
        await self._replicas.handle_state_changes(replicas, ReplicaStatus.NON_EXISTENT)
        topic_id = context.topic_ids[topic]
        context.remove_topic(topic)
        self._forgotten.discard(topic_id)
        logger.info("The deletion of topic %s is complete", topic)
        await self._deleted(topic, topic_id)


async def _awaited(forget: ForgetOffsets, topics: set[str], offsets_partitions: int) -> None:
    await forget(topics, offsets_partitions)
