"""The coordinators of a broker, with one clock and one log writer.

They write into internal topics.

Source: kafka.server.BrokerServer, where the group and the transaction coordinator are made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import TYPE_CHECKING, Final

from kafkapy.coordinator.clock import LoopClock
from kafkapy.coordinator.group.config import GroupConfig
from kafkapy.coordinator.transaction.config import TransactionConfig
from kafkapy.coordinator.writer import PartitionLogWriter
from kafkapy.metadata.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from kafkapy.metadata.znodes import decode_topic, topic_path
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy._speedups.log.appender import LogAppender
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.coordinator.group.assignors.api import GroupAssignor
    from kafkapy.coordinator.group.coordinator import GroupCoordinator
    from kafkapy.coordinator.group.shard import GroupEvent
    from kafkapy.coordinator.result import Later
    from kafkapy.coordinator.transaction.coordinator import TransactionCoordinator
    from kafkapy.coordinator.transaction.markers import LocalMarkerWriter, Marker
    from kafkapy.coordinator.transaction.verification import TransactionVerification
    from kafkapy.metadata.cache import MetadataCache
    from kafkapy.metadata.store import MetadataStore
    from kafkapy.replica.replica_manager import ReplicaManager

PARTITION_COUNT_KEYS: Final = {
    GROUP_METADATA_TOPIC: "offsets.topic.num.partitions",
    TRANSACTION_STATE_TOPIC: "transaction.state.log.num.partitions",
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
        appender: LogAppender | None = None,
    ) -> None:
        """`appender` appends to the logs; its events go to `writer.appended`.

        `assignors` are those of group.consumer.assignors, in that order.
        """
        self.config = config
        self.clock = LoopClock()
        self.writer = PartitionLogWriter(replica_manager, config.get_int("offsets.load.buffer.size"), appender)
        self._store = store
        self._replica_manager = replica_manager
        self._metadata_cache = metadata_cache
        self._next_producer_id = next_producer_id
        self._notify = notify
        self._assignors = assignors
        self._partition_counts: Mapping[str, int] = {}
        self._group_config = GroupConfig.from_broker_config(config)
        self._transaction_config = TransactionConfig.from_broker_config(config)

    async def start(self) -> None:
        """Follow what this broker leads."""
        self._partition_counts = {topic: await self._count(topic) for topic in PARTITION_COUNT_KEYS}
        self._replica_manager.leadership_listeners.append(self._leadership_changed)
        self._replica_manager.deletion_listeners.append(self._topics_deleted)

    @cached_property
    def group(self) -> GroupCoordinator:
        """The group coordinator."""
        from kafkapy.coordinator.group.coordinator import GroupCoordinator

        return GroupCoordinator(
            self._group_config,
            self.writer,
            self.clock,
            partition_count=lambda: self.partition_count(GROUP_METADATA_TOPIC),
            compression=self.config.get_int("offsets.topic.compression.codec"),
            rebalanced=self._rebalanced,
            assignors=self._assignors,
            metadata=lambda: self._metadata_cache.snapshot,
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
    def transaction(self) -> TransactionCoordinator:
        """The transaction coordinator, started."""
        from kafkapy.coordinator.transaction.coordinator import TransactionCoordinator

        coordinator = TransactionCoordinator(
            self._transaction_config,
            self.writer,
            self.clock,
            self.markers,
            self._next_producer_id,
            partition_count=lambda: self.partition_count(TRANSACTION_STATE_TOPIC),
            is_gone=self._is_gone,
        )
        coordinator.start()
        return coordinator

    @cached_property
    def verification(self) -> TransactionVerification:
        """The check with the transaction coordinator before a transaction's first batch."""
        from kafkapy.coordinator.transaction.verification import TransactionVerification

        config = self._transaction_config
        return TransactionVerification(
            self.transaction,
            self.clock,
            enabled=self.verifies_transactions,
            backoff_ms=config.add_backoff_ms,
            backoff_max_ms=min(config.add_backoff_max_ms, config.request_timeout_ms),
        )

    @property
    def verifies_transactions(self) -> bool:
        """transaction.partition.verification.enable as it is now."""
        return self.config.get_bool("transaction.partition.verification.enable")

    def make_all(self) -> None:
        """Make those that are not yet, for whoever looks at them from another thread."""
        _ = self.group, self.verification

    def update_config(self, config: BrokerConfig) -> None:
        """Take over what may change while the broker runs."""
        self.config = config
        if self._made("verification"):
            self.verification.enabled = self.verifies_transactions

    def stop(self) -> None:
        """Write all unwritten records; waiting clients look for another coordinator."""
        if self._made("verification"):
            self.verification.close()
        if self._made("transaction"):
            self.transaction.stop()
        if self._made("markers"):
            self.markers.close()
        if self._made("group"):
            self.group.stop()
        self.clock.close()

    def _made(self, name: str) -> bool:
        return name in self.__dict__

    def _leadership_changed(self, partition: TopicPartition, leader_epoch: int, leads: bool) -> None:
        if partition.topic == GROUP_METADATA_TOPIC:
            self.group.runtime.on_leadership_change(partition, leader_epoch, leads)
        elif partition.topic == TRANSACTION_STATE_TOPIC:
            self.transaction.on_leadership_change(partition, leader_epoch, leads)

    def _topics_deleted(self, topics: AbstractSet[str]) -> None:
        if not self._made("group"):
            return
        if GROUP_METADATA_TOPIC in topics:
            self.group.deleted_topics.abandon()
        self.group.topics_deleted(topics)

    async def forget_offsets(self, topics: AbstractSet[str], offsets_partitions: int) -> None:
        """Return when no group has offsets of deleted topics.

        No crash brings them back then: the controller waits for that before the names are free. `offsets_partitions` is
        how many partitions __consumer_offsets has, 0 without it.
        """
        if offsets_partitions:
            await self.group.topics_deleted(topics, range(offsets_partitions)).wait()

    def partition_count(self, topic: str) -> int:
        """How many partitions an internal topic has, or will have when it is created."""
        return self._partition_counts[topic]

    async def _count(self, topic: str) -> int:
        # The configured number is for a topic that is yet to be made: keys would be looked for in other partitions.
        found = (await self._store.get_many([topic_path(topic)]))[0]
        if found is None:
            return self.config.get_int(PARTITION_COUNT_KEYS[topic])
        return len(decode_topic(topic, found[0]).partitions)

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
