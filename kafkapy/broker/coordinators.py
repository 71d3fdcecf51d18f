"""The coordinators of a broker, with one clock and one log writer.

They write into internal topics.

Source: kafka.server.BrokerServer, where the group and the transaction coordinator are made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kafkapy.broker.finalized_features import FinalizedFeatures
from kafkapy.broker.internal_topics import PARTITION_COUNT_KEYS, InternalTopics
from kafkapy.coordinator.clock import LoopClock
from kafkapy.coordinator.group.config import GroupConfig
from kafkapy.coordinator.partitioning import partition_of
from kafkapy.coordinator.result import Later
from kafkapy.coordinator.share.config import ShareCoordinatorConfig
from kafkapy.coordinator.transaction.config import TransactionConfig
from kafkapy.coordinator.writer import PartitionLogWriter
from kafkapy.errors import KafkaError
from kafkapy.metadata.topic_names import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy._speedups.log.appender import LogAppender
    from kafkapy._speedups.requests.offset_commit.lease import CommitTable
    from kafkapy.broker.latest_offsets import LatestOffsets
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.coordinator.group.assignors.api import GroupAssignor
    from kafkapy.coordinator.group.coordinator import GroupCoordinator
    from kafkapy.coordinator.group.shard import GroupEvent
    from kafkapy.coordinator.peers import SenderPeers
    from kafkapy.coordinator.share.cluster_persister import ClusterPersister
    from kafkapy.coordinator.share.coordinator import ShareCoordinator
    from kafkapy.coordinator.share.state import ShareKey
    from kafkapy.coordinator.transaction.coordinator import TransactionCoordinator
    from kafkapy.coordinator.transaction.markers import LocalMarkerWriter, Marker
    from kafkapy.coordinator.transaction.remote_coordinator import ClusterCoordinates
    from kafkapy.coordinator.transaction.remote_markers import ClusterMarkerWriter
    from kafkapy.coordinator.transaction.verification import TransactionVerification
    from kafkapy.metadata.cache import MetadataCache
    from kafkapy.metadata.inter_broker_sender import InterBrokerSender
    from kafkapy.metadata.store import MetadataStore
    from kafkapy.replica.replica_manager import ReplicaManager

logger = logging.getLogger("kafka.server.Coordinators")

DELETION_REMEMBERED_MS: Final = 10 * 60 * 1000
"""Time in ms that a deleted topic's name is remembered for partitions of __consumer_offsets that move here."""
DELETIONS_REMEMBERED: Final = 10_000
COUNT_RETRY_S: Final = 0.1
"""Pause in seconds before the store is asked again for a topic that is led here."""
NO_LEADER: Final = -1
LOAD_BUFFER_KEYS: Final = {
    GROUP_METADATA_TOPIC: "offsets.load.buffer.size",
    TRANSACTION_STATE_TOPIC: "transaction.state.log.load.buffer.size",
    SHARE_GROUP_STATE_TOPIC: "share.coordinator.load.buffer.size",
}


class Coordinators:
    """Owns the coordinators. Made, started and stopped by KafkaServer on the control loop.

    Each is imported and made when it is first needed: by a request, or by a partition of its topic that this broker
    leads. `start` comes before the controller's first LeaderAndIsr, so that no partition is missed.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MetadataStore,
        replica_manager: ReplicaManager,
        metadata_cache: MetadataCache,
        next_producer_id: Callable[[], Awaitable[int]],
        notify: Callable[..., None],
        assignors: Sequence[GroupAssignor],
        share_assignor: GroupAssignor,
        connect: Callable[[str], InterBrokerSender],
        appender: LogAppender | None = None,
        *,
        features: FinalizedFeatures | None = None,
        create_topic: Callable[[str], Coroutine[None, None, object]] | None = None,
        commit_table: CommitTable | None = None,
    ) -> None:
        """`appender` appends to the logs; its events go to `writer.appended`.

        `assignors` are those of group.consumer.assignors, in that order, and `share_assignor` is that of
        group.share.assignors. `connect` makes a client of other brokers for a purpose. `create_topic` creates one of
        the internal topics. `commit_table` lets network threads append offsets.
        """
        self.config = config
        self.clock = LoopClock()
        self.writer = PartitionLogWriter(
            replica_manager, {topic: config.get_int(key) for topic, key in LOAD_BUFFER_KEYS.items()}, appender
        )
        self._store = store
        self._replica_manager = replica_manager
        self._metadata_cache = metadata_cache
        self._next_producer_id = next_producer_id
        self._notify = notify
        self._assignors = assignors
        self._share_assignor = share_assignor
        self._connect = connect
        self._features = features or FinalizedFeatures()
        self._create_topic = create_topic
        self._commit_table = commit_table
        self._creating: asyncio.Task[None] | None = None
        """The creation of __share_group_state under way."""
        self._broker_id = replica_manager.broker_id
        self.internal_topics = InternalTopics(config, store)
        self._changes: dict[str, list[tuple[TopicPartition, int, bool]]] = {}
        """Changes of leadership that wait for the partition count of their topic."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._peers: dict[str, SenderPeers] = {}
        self._deleted: dict[str, int] = {}
        """Deleted topics, and the time in ms until which they are remembered."""
        self._group_config = GroupConfig.from_broker_config(config)
        self._transaction_config = TransactionConfig.from_broker_config(config)
        self._share_config = ShareCoordinatorConfig.from_broker_config(config)

    async def start(self) -> None:
        """Follow what this broker leads, and the cluster's metadata."""
        await self.internal_topics.start()
        self._replica_manager.leadership_listeners.append(self._leadership_changed)
        self._replica_manager.deletion_listeners.append(self._topics_deleted)
        self._do(self._follow_metadata(), "coordinators-metadata")

    async def close(self) -> None:
        """Follow the metadata no more, and close the connections to other brokers."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for peers in self._peers.values():
            await peers.close()

    @cached_property
    def group(self) -> GroupCoordinator:
        """The group coordinator."""
        from kafkapy.coordinator.group.coordinator import GroupCoordinator

        return GroupCoordinator(
            self._group_config,
            self.writer,
            self.clock,
            partition_count=lambda: self.internal_topics.count(GROUP_METADATA_TOPIC),
            compression=self.config.get_int("offsets.topic.compression.codec"),
            rebalanced=self._rebalanced,
            assignors=self._assignors,
            metadata=lambda: self._metadata_cache.snapshot,
            led_elsewhere=self._offsets_led_elsewhere,
            consumer_protocol_finalized=lambda: self._features.has_consumer_protocol,
            share_assignor=self._share_assignor,
            persister=lambda: self.persister,
            latest_offsets=lambda partitions: self.latest_offsets(partitions),
            share_version=lambda: self._features.share_version,
            commit_table=self._commit_table,
        )

    @cached_property
    def latest_offsets(self) -> LatestOffsets:
        """Reads the latest offsets of partitions in the whole cluster."""
        from kafkapy.broker.latest_offsets import LatestOffsets

        config = self._transaction_config
        return LatestOffsets(
            self._broker_id,
            self._replica_manager,
            self._peers_for("latest-offsets"),
            self._leader_of,
            timeout_ms=lambda: config.request_timeout_ms,
        )

    @cached_property
    def markers(self) -> LocalMarkerWriter:
        """The writer of transaction markers into partitions that this broker leads."""
        from kafkapy.coordinator.transaction.markers import LocalMarkerWriter

        config = self._transaction_config
        return LocalMarkerWriter(
            self.writer, self.clock, self._complete_offsets, timeout_ms=lambda: config.request_timeout_ms
        )

    @cached_property
    def cluster_markers(self) -> ClusterMarkerWriter:
        """The writer of transaction markers into partitions of the whole cluster."""
        from kafkapy.coordinator.transaction.remote_markers import ClusterMarkerWriter

        config = self._transaction_config
        return ClusterMarkerWriter(
            self._broker_id,
            self.markers,
            self._peers_for("transaction-markers"),
            self.clock,
            self._leader_of,
            timeout_ms=lambda: config.request_timeout_ms,
        )

    @cached_property
    def transactions(self) -> ClusterCoordinates:
        """The transaction coordinators of the whole cluster."""
        from kafkapy.coordinator.transaction.remote_coordinator import ClusterCoordinates

        config = self._transaction_config
        return ClusterCoordinates(
            self._broker_id,
            self.transaction,
            self._peers_for("transaction-coordinators"),
            self.clock,
            self._coordinator_of,
            timeout_ms=lambda: config.request_timeout_ms,
        )

    @cached_property
    def transaction(self) -> TransactionCoordinator:
        """The transaction coordinator, started."""
        from kafkapy.coordinator.transaction.coordinator import TransactionCoordinator

        coordinator = TransactionCoordinator(
            self._transaction_config,
            self.writer,
            self.clock,
            self.cluster_markers,
            self._next_producer_id,
            partition_count=lambda: self.partition_count(TRANSACTION_STATE_TOPIC),
            is_gone=self._is_gone,
            transaction_version=lambda: self._features.transaction_version,
            two_phase_max_ms=lambda: self.config.get_int("kafkapy.transaction.two.phase.commit.max.ms"),
        )
        coordinator.start()
        return coordinator

    @cached_property
    def verification(self) -> TransactionVerification:
        """The check with the transaction coordinator before a transaction's first batch."""
        from kafkapy.coordinator.transaction.verification import TransactionVerification

        config = self._transaction_config
        return TransactionVerification(
            self.transactions,
            self.clock,
            enabled=self.verifies_transactions,
            backoff_ms=config.add_backoff_ms,
            backoff_max_ms=min(config.add_backoff_max_ms, config.request_timeout_ms),
        )

    @cached_property
    def share(self) -> ShareCoordinator:
        """The share coordinator, started."""
        from kafkapy.coordinator.share.coordinator import ShareCoordinator

        coordinator = ShareCoordinator(
            self._share_config,
            self.writer,
            self.clock,
            partition_count=lambda: self.partition_count(SHARE_GROUP_STATE_TOPIC),
            exists=self._exists,
            is_gone=self._topic_is_gone,
            delete_records=self._delete_records,
        )
        coordinator.start()
        return coordinator

    @cached_property
    def persister(self) -> ClusterPersister:
        """The share coordinators of the whole cluster: the state of share-partitions."""
        from kafkapy.coordinator.share.cluster_persister import ClusterPersister

        config = self._transaction_config
        return ClusterPersister(
            self._broker_id,
            self.share,
            self._peers_for("share-coordinators"),
            self.clock,
            self._share_coordinator_of,
            self._create_share_topic,
            timeout_ms=lambda: config.request_timeout_ms,
        )

    @property
    def verifies_transactions(self) -> bool:
        """transaction.partition.verification.enable as it is now."""
        return self.config.get_bool("transaction.partition.verification.enable")

    def make_all(self) -> None:
        """Make those that are not yet, for whoever looks at them from another thread."""
        _ = self.group, self.verification, self.share

    def update_config(self, config: BrokerConfig) -> None:
        """Take over what may change while the broker runs."""
        self.config = config
        if self._made("verification"):
            self.verification.enabled = self.verifies_transactions
        self._group_config = GroupConfig.from_broker_config(config)
        if self._made("group"):
            self.group.overrides.update(self._group_config)

    def stop(self) -> None:
        """Write all unwritten records; waiting clients look for another coordinator."""
        if self._made("verification"):
            self.verification.close()
        if self._made("persister"):
            self.persister.close()
        if self._made("transactions"):
            self.transactions.close()
        if self._made("cluster_markers"):
            self.cluster_markers.close()
        for peers in self._peers.values():
            # Clients that wait for other brokers get an answer now.
            peers.cancel()
        if self._made("transaction"):
            self.transaction.stop()
        if self._made("share"):
            self.share.stop()
        if self._made("markers"):
            self.markers.close()
        if self._made("group"):
            self.group.stop()
        self.clock.close()

    def _made(self, name: str) -> bool:
        return name in self.__dict__

    # --- what this broker leads -------------------------------------------------------------------------------------

    def _leadership_changed(self, partition: TopicPartition, leader_epoch: int, leads: bool) -> None:
        if self._made("markers"):
            self.markers.leadership_changed(partition)
        topic = partition.topic
        if topic not in PARTITION_COUNT_KEYS:
            return
        waiting = self._changes.get(topic)
        if waiting is not None:
            waiting.append((partition, leader_epoch, leads))
            return
        if not leads or self.internal_topics.is_known(topic):
            self._pass_on(partition, leader_epoch, leads)
            return
        # Another broker may have created the topic. Nothing is coordinated before it is known how keys are spread.
        self._changes[topic] = [(partition, leader_epoch, leads)]
        self._do(self._count_first(topic), f"partitions-of-{topic}")

    async def _count_first(self, topic: str) -> None:
        while not await self.internal_topics.look_for(topic):
            # It is led here, so it exists, or did: the next try may see the deletion.
            if not self._changes.get(topic):
                break
            await asyncio.sleep(COUNT_RETRY_S)
        for change in self._changes.pop(topic, ()):
            self._pass_on(*change)

    def _pass_on(self, partition: TopicPartition, leader_epoch: int, leads: bool) -> None:
        if partition.topic == TRANSACTION_STATE_TOPIC:
            self.transaction.on_leadership_change(partition, leader_epoch, leads)
            return
        if partition.topic == SHARE_GROUP_STATE_TOPIC:
            self.share.on_leadership_change(partition, leader_epoch, leads)
            return
        group = self.group
        led_before = partition.partition in group.runtime.states()
        group.runtime.on_leadership_change(partition, leader_epoch, leads)
        if leads and not led_before:
            # The coordinator before this one may not have heard of them any more.
            now = self.clock.monotonic_ms()
            self._deleted = {topic: until for topic, until in self._deleted.items() if until > now}
            gone = [topic for topic in self._deleted if not self._metadata_cache.contains(topic)]
            if gone:
                group.topics_deleted(gone, [partition.partition])

    def _topics_deleted(self, topic_ids: Mapping[str, UUID]) -> None:
        topics = topic_ids.keys()
        if self._made("share"):
            self.share.topics_deleted(topic_ids.values())
        for topic in topics & PARTITION_COUNT_KEYS.keys():
            self.internal_topics.forget(topic)
            self._changes.pop(topic, None)
        until = self.clock.monotonic_ms() + DELETION_REMEMBERED_MS
        self._deleted |= dict.fromkeys(topics, until)
        for topic in list(self._deleted)[:-DELETIONS_REMEMBERED]:
            del self._deleted[topic]
        if not self._made("group"):
            return
        if GROUP_METADATA_TOPIC in topics:
            self.group.deleted_topics.abandon()
        self.group.topics_deleted(topics)

    async def forget_offsets(self, topics: AbstractSet[str], offsets_partitions: int) -> None:
        """Return when no group that this broker coordinates has offsets of deleted topics.

        No crash brings them back then: the controller waits for that before the names are free. `offsets_partitions` is
        how many partitions __consumer_offsets has, 0 without it. The coordinators of other partitions hear of the
        deletion by the metadata, as in Kafka.
        """
        here = [number for number in range(offsets_partitions) if not self._offsets_led_elsewhere(number)]
        if here:
            await self.group.topics_deleted(topics, here).wait()

    def _offsets_led_elsewhere(self, number: int) -> bool:
        """Whether this broker need not wait for a partition of __consumer_offsets that it does not lead."""
        snapshot = self._metadata_cache.snapshot
        found = snapshot.partition(GROUP_METADATA_TOPIC, number)
        if found is None:
            return len(snapshot.brokers) > 1
        return found.leader != self._broker_id and found.replicas != (self._broker_id,)

    async def look_for(self, topic: str) -> None:
        """Learn the number of partitions of an internal topic that exists."""
        if not self.internal_topics.is_known(topic) and self._metadata_cache.contains(topic):
            await self.internal_topics.look_for(topic)

    def partition_count(self, topic: str) -> int:
        """How many partitions an internal topic has, or will have when it is created."""
        return self.internal_topics.count(topic)

    # --- the cluster ------------------------------------------------------------------------------------------------

    def _peers_for(self, purpose: str) -> SenderPeers:
        from kafkapy.coordinator.peers import SenderPeers

        peers = self._peers[purpose] = SenderPeers(lambda: self._connect(purpose))
        return peers

    def _leader_of(self, partition: TopicPartition) -> int | None:
        snapshot = self._metadata_cache.snapshot
        found = snapshot.partition(*partition)
        if found is None:
            return None
        return found.leader if found.leader in snapshot.brokers else NO_LEADER

    def _coordinator_of(self, transactional_id: str) -> int | None:
        """The broker of a transactional id: -1 when it is not known now, None when nobody has the topic."""
        return self._leader_for(TRANSACTION_STATE_TOPIC, transactional_id)

    def _share_coordinator_of(self, key: ShareKey) -> int | None:
        """The same of a share-partition."""
        return self._leader_for(SHARE_GROUP_STATE_TOPIC, key.text)

    def _leader_for(self, topic: str, key: str) -> int | None:
        """The leader of a key's partition of an internal topic."""
        if not self.internal_topics.is_known(topic):
            return NO_LEADER if self._metadata_cache.contains(topic) else None
        return self._leader_of(TopicPartition(topic, partition_of(key, self.partition_count(topic))))

    def _create_share_topic(self) -> None:
        """Create __share_group_state, once at a time."""
        if self._create_topic is not None and (self._creating is None or self._creating.done()):
            self._creating = self._do(self._create(SHARE_GROUP_STATE_TOPIC), "create-share-group-state")

    async def _create(self, topic: str) -> None:
        assert self._create_topic is not None
        try:
            await self._create_topic(topic)
        except KafkaError as error:
            logger.warning("Topic %s cannot be created; the broker retries: %s", topic, error)
        await self.look_for(topic)
        if self._made("persister"):
            self.persister.leaders_changed()

    # --- topics of share-partitions ---------------------------------------------------------------------------------

    def _exists(self, topic_id: UUID, partition: int) -> bool:
        topic = self._metadata_cache.topic_by_id(topic_id)
        return topic is not None and partition in topic.partitions

    def _topic_is_gone(self, topic_id: UUID) -> bool:
        # As for transactions: only who has heard of all topics can tell.
        known = self._metadata_cache
        return known.contains(SHARE_GROUP_STATE_TOPIC) and known.topic_by_id(topic_id) is None

    def _delete_records(self, partition: TopicPartition, offset: int) -> Later[None]:
        later: Later[None] = Later()

        async def delete() -> None:
            try:
                await self._replica_manager.delete_records(partition, offset, of_internal_topic=True)
            except KafkaError as error:
                later.fail(error)
            else:
                later.set(None)

        self._do(delete(), f"prune-{partition}")
        return later

    async def _follow_metadata(self) -> None:
        while True:
            await self._metadata_cache.wait_for_change()
            for topic in PARTITION_COUNT_KEYS:
                await self.look_for(topic)
            alive = self._metadata_cache.snapshot.brokers
            for peers in self._peers.values():
                for broker_id in peers.brokers - alive.keys():
                    # No answer comes any more, and the connection may not have noticed.
                    peers.disconnect(broker_id)
            if self._made("cluster_markers"):
                self.cluster_markers.leaders_changed()
            if self._made("transactions"):
                self.transactions.leaders_changed()
            if self._made("persister"):
                self.persister.leaders_changed()

    def _do(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _complete_offsets(self, partition: int, marker: Marker) -> Later[None]:
        return self.group.runtime.complete_transaction(
            partition, marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.committed
        )

    def _is_gone(self, partition: TopicPartition) -> bool:
        # Only who has heard of all partitions can tell that one is missing; the coordinator's own topic is among them.
        known = self._metadata_cache
        return known.contains(TRANSACTION_STATE_TOPIC) and not known.contains(partition)

    def _rebalanced(self, event: GroupEvent) -> None:
        self._notify("group_rebalanced", group_id=event.group_id, generation=event.generation_id, members=event.members)
