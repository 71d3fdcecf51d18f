"""The parts of one controllership: the cluster's context and its managers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from kafkapy import errors
from kafkapy.controller.broker_channel import (
    BrokerRequestBatch,
    ChannelFactory,
    ControllerChannelManager,
    ResponseCallback,
)
from kafkapy.controller.context import ControllerContext, PartitionStatus, Replica, ReplicaStatus
from kafkapy.controller.controller_stats import ControllerStats
from kafkapy.controller.controller_store import ControllerStore
from kafkapy.controller.node_watches import NodeWatches
from kafkapy.controller.partition_state_machine import PartitionStateMachine
from kafkapy.controller.reassignment import PartitionReassignments
from kafkapy.controller.replica_state_machine import ReplicaStateMachine
from kafkapy.controller.topic_deletion import ForgetOffsets, TopicDeletionManager
from kafkapy.metadata.config_repository import ConfigRepository
from kafkapy.metadata.features import unsupported_levels
from kafkapy.metadata.metadata_version import MetadataVersion
from kafkapy.metadata.store import NoNodeError
from kafkapy.metadata.znodes import BrokerRegistration, broker_path, topic_path
from kafkapy.slices import in_slices
from kafkapy.types import TopicPartition, random_uuid

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

logger = logging.getLogger("kafka.controller.KafkaController")

OwnEvent = Callable[["Controllership"], Awaitable[None]]
"""An event that runs with the controllership that has queued it."""


class Controllership:
    """Owns the parts that live as long as one controllership.

    KafkaController makes it, and makes the next one when it resigns; used within its events on the control loop.

    `answered` receives the brokers' answers. `notify` calls the plugins' hooks of an event. `forget_offsets`: see
    TopicDeletionManager. `put` queues an event that runs with this controllership while it lasts. `node_changed` gets
    the path of a topic or a broker whose node has changed.
    """

    def __init__(
        self,
        broker_id: int,
        epoch: int,
        store: ControllerStore,
        configs: ConfigRepository,
        config: Callable[[], BrokerConfig],
        channel_factory: ChannelFactory,
        answered: ResponseCallback,
        notify: Callable[..., None],
        forget_offsets: ForgetOffsets | None,
        put: Callable[[str, OwnEvent], None],
        node_changed: Callable[[str], None],
        metadata_version: MetadataVersion,
        stats: ControllerStats,
    ) -> None:
        self.store = store
        self.configs = configs
        self.notify = notify
        self.metadata_version = metadata_version
        self._put = put
        self._config = config
        self._moving: dict[TopicPartition, None] = {}
        """Partitions that move and whose ISRs have changed."""
        self._deletion_waiters: dict[str, set[asyncio.Future[None]]] = {}
        self.context = context = ControllerContext()
        context.epoch = epoch
        self.channels = ControllerChannelManager(channel_factory, answered)
        self.batch = BrokerRequestBatch(broker_id, context, self.channels)
        self.partitions = PartitionStateMachine(
            context, self.store, self.batch, self._unclean_allowed, stats, metadata_version.has_leader_recovery
        )
        self.replicas = ReplicaStateMachine(context, self.store, self.batch)
        self.deletion = TopicDeletionManager(
            context,
            self.store,
            self.batch,
            self.partitions,
            self.replicas,
            self._topic_deleted,
            forget_offsets,
            lambda: put("TopicDeletionResume", _resume_deletion),
        )
        self.reassignments = PartitionReassignments(
            context, self.store, self.batch, self.partitions, self.replicas, self.deletion
        )
        self.watches = NodeWatches(store.store, node_changed)

    async def close(self) -> None:
        """Close the channels; waiters for a topic's deletion get NOT_CONTROLLER."""
        self.watches.close()
        await self.channels.close()
        await self.deletion.close()
        for waiters in self._deletion_waiters.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(errors.NotControllerError())
        self._deletion_waiters.clear()

    @property
    def config(self) -> BrokerConfig:
        """The broker's present configuration."""
        return self._config()

    # --- brokers ------------------------------------------------------------------------------------------------------

    async def registered_brokers(self) -> dict[int, BrokerRegistration]:
        """The registered brokers, whose nodes are followed from now on.

        A broker that does not support the finalized features is left out: it leads nothing, and hears of nothing.
        """
        ids = await self.store.broker_ids()
        # The watch comes first, so that no change after the read is missed.
        await self.watches.follow([broker_path(each) for each in ids])
        found = await self.store.registrations(ids)
        try:
            levels, _ = await self.store.features()
        except NoNodeError:
            levels = {}
        for broker in list(found.values()):
            reason = unsupported_levels(broker.features, levels)
            if reason:
                logger.warning("The controller ignores broker %d, which does not support %s", broker.id, reason)
                del found[broker.id]
        return found

    # --- topics -------------------------------------------------------------------------------------------------------

    async def adopt_topics(self, topics: Collection[str]) -> list[TopicPartition]:
        """Load topics from the store into the context; returns their partitions.

        Topics of old brokers get an id. Their nodes are followed from now on.
        """
        added: list[TopicPartition] = []
        await self.watches.follow([topic_path(topic) for topic in topics])
        found = await self.store.topic_assignments(list(topics))
        async for topic, (assignment, stat) in in_slices(found.items()):
            topic_id = assignment.topic_id
            if topic_id is None:
                topic_id = random_uuid()
                await self.store.set_topic(topic, assignment._replace(topic_id=topic_id), stat.version)
            self.context.put_topic(topic, topic_id, assignment)
            for number, each in assignment.partitions.items():
                if each.is_being_reassigned:
                    self.context.reassigning.setdefault(TopicPartition(topic, number))
            added += self.context.partitions_of(topic)
        return added

    async def topics_created(self, topics: Sequence[str]) -> None:
        """Bring new topics of the context online, and tell plugins of them.

        Called within an event.
        """
        await self.watches.follow([topic_path(topic) for topic in topics])
        await self.configs.reload_topics(topics)
        await self.partitions_created([each for topic in topics for each in self.context.partitions_of(topic)])
        for topic in topics:
            self.notify(
                "topic_created",
                topic=topic,
                topic_id=self.context.topic_ids[topic],
                partitions=len(self.context.assignments[topic]),
                configs=dict(self.configs.topic(topic)),
            )

    async def partitions_created(self, partitions: list[TopicPartition]) -> None:
        """Bring new partitions of the context online.

        Called within an event.
        """
        replicas = list(self.context.replicas_for(partitions))
        await self.partitions.handle_state_changes(partitions, PartitionStatus.NEW)
        await self.replicas.handle_state_changes(replicas, ReplicaStatus.NEW)
        await self.partitions.handle_state_changes(partitions, PartitionStatus.ONLINE)
        await self.replicas.handle_state_changes(replicas, ReplicaStatus.ONLINE)

    async def bring_new_replicas_online(self) -> None:
        """Bring replicas online that the last controller left without a state."""
        await self.replicas.handle_state_changes(list(self.context.new_replicas), ReplicaStatus.ONLINE)

    async def replicas_offline(self, replicas: Iterable[Replica]) -> None:
        """Elect other leaders and shrink ISRs after brokers or directories failed."""
        context = self.context
        deleting: list[Replica] = []
        others: list[Replica] = []
        async for each in in_slices(replicas):
            (deleting if context.is_topic_being_deleted(each.partition.topic) else others).append(each)
        leaderless = await context.partitions_with_offline_leader()
        await self.partitions.handle_state_changes(leaderless, PartitionStatus.OFFLINE)
        await self.partitions.elect_where_needed()
        await self.replicas.handle_state_changes(others, ReplicaStatus.OFFLINE)
        if deleting:
            await self.deletion.replicas_failed(deleting)
        await self.batch.add_update_metadata(context.live_brokers, leaderless)
        await self.batch.send()

    def isr_changed(self, partitions: Iterable[TopicPartition]) -> None:
        """Complete reassignments for which these ISRs have waited, in a later event."""
        moving = [partition for partition in partitions if partition in self.context.reassigning]
        if moving:
            # One event for the changes of many leaders: it is queued once.
            self._moving.update(dict.fromkeys(moving))
            self._put("PartitionReassignmentIsrChange", _isrs_changed)

    async def complete_moves(self) -> None:
        """Complete the reassignments whose ISRs have changed."""
        moving, self._moving = self._moving, {}
        try:
            await self.reassignments.isr_changed(moving)
        except BaseException:
            self._moving = moving | self._moving
            raise

    def topic_deletion(self, topic: str) -> asyncio.Future[None]:
        """A future that ends when the topic is deleted for good."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters = self._deletion_waiters.setdefault(topic, set())
        waiters.add(waiter)

        def done(each: asyncio.Future[None]) -> None:
            waiters.discard(each)
            if not each.cancelled():
                each.exception()  # the waiter may have given up; then no one reads the outcome

        waiter.add_done_callback(done)
        return waiter

    async def _topic_deleted(self, topic: str, topic_id: UUID) -> None:
        self.configs.forget_topic(topic)
        self.watches.forget([topic_path(topic)])
        self.notify("topic_deleted", topic=topic, topic_id=topic_id)
        for waiter in self._deletion_waiters.pop(topic, ()):
            if not waiter.done():
                waiter.set_result(None)

    def _unclean_allowed(self, topic: str) -> bool:
        own = self.configs.topic(topic).get("unclean.leader.election.enable")
        if own is not None:
            return own.strip().lower() == "true"
        return self.config.get_bool("unclean.leader.election.enable")


async def _isrs_changed(controllership: Controllership) -> None:
    await controllership.complete_moves()


async def _resume_deletion(controllership: Controllership) -> None:
    await controllership.deletion.resume()
