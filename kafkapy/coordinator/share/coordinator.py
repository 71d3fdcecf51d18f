"""ShareCoordinator: the state of the share-partitions that this broker coordinates.

It finds the shard of a share-partition, runs the operation there, and waits. Errors of the runtime (NOT_COORDINATOR,
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE) come like those of the operation. Source:
org.apache.kafka.coordinator.share.ShareCoordinatorService.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

from kafkapy.coordinator.abandoned_leases import AbandonedLeases
from kafkapy.coordinator.clock import Clock
from kafkapy.coordinator.hosted import Durations, Operation, ShardContext
from kafkapy.coordinator.result import Later, hide_too_large, without_too_large
from kafkapy.coordinator.runtime import CoordinatorRuntime
from kafkapy.coordinator.share.config import ShareCoordinatorConfig
from kafkapy.coordinator.share.records import SHARE_RECORDS
from kafkapy.coordinator.share.shard import ShareShard
from kafkapy.coordinator.share.state import ShareKey, ShareState, ShareSummary, StateBatch
from kafkapy.coordinator.writer import PartitionWriter
from kafkapy.metadata.topic_names import SHARE_GROUP_STATE_TOPIC
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy._speedups.requests.share.state_write import StateWrite

logger = logging.getLogger("kafka.coordinator.share.ShareCoordinator")

T = TypeVar("T")

PAUSE_MS: Final = 100
"""Pause in ms before an operation that met an update of the data plane is tried again."""
LOOKED_AT_ONCE: Final = 500
"""Share-partitions that a check looks at in one turn of the loop."""


class ShareCoordinator:
    """Owns the runtime of __share_group_state. A Persister for the share-partitions of its shards.

    Coordinators makes it; handlers and the Persister call it on the control loop.

    `partition_count` returns how many partitions __share_group_state has, or will have. `exists` returns whether a
    topic has a partition, `is_gone` whether a topic was deleted. `delete_records` deletes the records of a partition
    below an offset.
    """

    def __init__(
        self,
        config: ShareCoordinatorConfig,
        writer: PartitionWriter,
        clock: Clock,
        *,
        partition_count: Callable[[], int],
        exists: Callable[[UUID, int], bool],
        is_gone: Callable[[UUID], bool],
        delete_records: Callable[[TopicPartition, int], Later[None]],
    ) -> None:
        self.config = config
        self.write_times = Durations()
        """Durations of writes until they were committed."""
        self.pruned: dict[int, int] = {}
        """The offset below which records were deleted, by partition."""
        self._is_gone = is_gone
        self._delete_records = delete_records
        self._writer = writer
        self._abandoned = AbandonedLeases()
        self._suspects: set[UUID] = set()
        """Topics of share-partitions that were not known at the last check."""
        self.runtime: CoordinatorRuntime[ShareShard] = CoordinatorRuntime(
            "share.ShareCoordinator",
            SHARE_GROUP_STATE_TOPIC,
            lambda context: self._make_shard(context, exists),
            SHARE_RECORDS,
            writer,
            clock,
            partition_count=partition_count,
            write_timeout_ms=lambda: self.config.write_timeout_ms,
            linger_ms=config.linger_ms,
            compression=config.compression,
            is_settled=self._abandoned.is_settled,
        )

    def _make_shard(self, context: ShardContext[ShareShard], exists: Callable[[UUID, int], bool]) -> ShareShard:
        return ShareShard(context, self.config, exists, partial(self._abandoned.abandon, context.partition))

    # --- life -------------------------------------------------------------------------------------------------------

    def on_leadership_change(self, partition: TopicPartition, leader_epoch: int, leads: bool) -> None:
        """Load or unload a partition's shard; for ReplicaManager.leadership_listeners."""
        if partition.topic == SHARE_GROUP_STATE_TOPIC:
            self.pruned.pop(partition.partition, None)
            self.runtime.on_leadership_change(partition, leader_epoch, leads)

    def start(self) -> None:
        """Start the pruning of logs, and the checks for cold share-partitions and deleted topics."""
        self._every(lambda: self.config.prune_interval_ms, "prune", self.prune)
        self._every(lambda: self.config.cold_interval_ms, "cold", self.look_after_cold)

    def stop(self) -> None:
        """Write the unwritten records; waiting requests get NOT_COORDINATOR."""
        self.runtime.stop()

    def _every(self, interval_ms: Callable[[], int], name: str, work: Callable[[], object]) -> None:
        def due() -> None:
            self._every(interval_ms, name, work)
            work()

        self.runtime.timer.schedule(name, interval_ms(), due)

    # --- the Persister's requests -----------------------------------------------------------------------------------

    def partition_for(self, key: ShareKey) -> int:
        """The partition of __share_group_state that a share-partition belongs to."""
        return self.runtime.partition_for(key.text)

    def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> Later[None]:
        """See Persister."""
        return self._write(key, lambda shard, now_ms: shard.initialize(key, state_epoch, start_offset, now_ms))

    def read(self, key: ShareKey, leader_epoch: int) -> Later[ShareState]:
        """See Persister."""
        return self._write(key, lambda shard, now_ms: shard.read(key, leader_epoch, now_ms))

    def write(
        self,
        key: ShareKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete: int,
        batches: Sequence[StateBatch],
    ) -> Later[None]:
        """See Persister."""
        started = self.runtime.clock.monotonic_ms()
        written = self.runtime.write(
            self.partition_for(key),
            lambda shard, now_ms: shard.write(
                key, state_epoch, leader_epoch, start_offset, delivery_complete, batches, now_ms
            ),
        )
        written.then(partial(self._written, started))
        return written

    def _written(self, started_ms: int, written: Later[None]) -> None:
        hide_too_large(written)
        self.write_times.add(self.runtime.clock.monotonic_ms() - started_ms)

    def lend(self, key: ShareKey, write: StateWrite) -> None:
        """See Persister."""
        partition = self.partition_for(key)
        found = None if self.config.compression else self.runtime.at_rest(partition)
        log = None if found is None else self._writer.lendable(TopicPartition(SHARE_GROUP_STATE_TOPIC, partition))
        if found is not None and log is not None:
            shard, leader_epoch = found
            shard.lend(key, write, log, leader_epoch)

    def delete(self, key: ShareKey) -> Later[None]:
        """See Persister."""
        return self._write(key, lambda shard, _: shard.delete(key))

    def summary(self, key: ShareKey, leader_epoch: int) -> Later[ShareSummary]:
        """See Persister. The leader epoch makes no difference, as in Kafka."""
        del leader_epoch
        return self.runtime.read(self.partition_for(key), lambda shard, _: shard.summary(key))

    def _write(self, key: ShareKey, operation: Operation[ShareShard, T]) -> Later[T]:
        return without_too_large(self.runtime.write(self.partition_for(key), operation))

    # --- deleted topics, cold share-partitions ----------------------------------------------------------------------

    def topics_deleted(self, topic_ids: Iterable[UUID]) -> None:
        """Remove the share-partitions of deleted topics."""
        gone = list(topic_ids)
        for partition, shard in self.runtime.shards().items():
            keys = [key for topic_id in gone for key in shard.topics.get(topic_id, ())]
            self._each(partition, shard, iter(keys), _forget)

    def look_after_cold(self) -> None:
        """Write snapshots of share-partitions without changes again, so that the logs can be pruned.

        Share-partitions of topics that were not known at two checks are removed: this broker may not have coordinated
        them when their topic was deleted.
        """
        missing: set[UUID] = set()
        for partition, shard in self.runtime.shards().items():
            missing.update(topic_id for topic_id in shard.topics if self._is_gone(topic_id))
            if shard.is_mostly_redundant:
                self._each(partition, shard, iter(list(shard.states)), _refresh)
        self.topics_deleted(missing & self._suspects)
        self._suspects = missing

    def _each(
        self,
        partition: int,
        shard: ShareShard,
        keys: Iterator[ShareKey],
        operation: Callable[[ShareKey], Operation[ShareShard, None]],
    ) -> None:
        """Run an operation for the next share-partitions, and for the rest in later turns of the loop."""
        looked_at = list(islice(keys, LOOKED_AT_ONCE))
        if not looked_at or self.runtime.shards().get(partition) is not shard:
            return

        def ended(key: ShareKey, done: Later[None]) -> None:
            if done.error is not None and key in shard.held_up:
                again = partial(self._each, partition, shard, iter([key]), operation)
                self.runtime.timer.schedule(object(), PAUSE_MS, again)
            elif done.error is not None:
                logger.info(
                    "The state of share-partition %s cannot be written; the coordinator retries: %s", key, done.error
                )

        for key in looked_at:
            # Each by itself: the records of all may exceed a batch. What fails is tried again at the next check.
            self.runtime.write(partition, operation(key)).then(partial(ended, key))
        self.runtime.timer.schedule(object(), 0, lambda: self._each(partition, shard, keys, operation))

    # --- pruning ----------------------------------------------------------------------------------------------------

    def prune(self) -> None:
        """Delete the records that no share-partition needs any more."""
        for partition in self.runtime.shards():
            # The answer comes when the records that make others redundant are committed.
            self.runtime.read(partition, lambda shard, _: shard.needed_from).then(partial(self._prune, partition))

    def _prune(self, partition: int, needed_from: Later[int]) -> None:
        if needed_from.error is not None or needed_from.result() <= self.pruned.get(partition, 0):
            return
        offset = needed_from.result()

        def deleted(done: Later[None]) -> None:
            if done.error is None:
                self.pruned[partition] = offset
            else:
                logger.warning(
                    "Records of partition %d of %s cannot be deleted; the coordinator retries: %s",
                    partition,
                    SHARE_GROUP_STATE_TOPIC,
                    done.error,
                )

        self._delete_records(TopicPartition(SHARE_GROUP_STATE_TOPIC, partition), offset).then(deleted)


def _forget(key: ShareKey) -> Operation[ShareShard, None]:
    return lambda shard, _: shard.forget(key)


def _refresh(key: ShareKey) -> Operation[ShareShard, None]:
    return lambda shard, now_ms: shard.refresh(key, now_ms)
