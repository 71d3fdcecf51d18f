"""A broker without sockets whose share coordinator is the real one, on a log in memory, and lends leases."""

from __future__ import annotations

from typing import Any

from speedups.requests.share.members import ShareBroker

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy.coordinator.share.config import ShareCoordinatorConfig
from kafkapy.coordinator.share.coordinator import ShareCoordinator
from kafkapy.coordinator.share.records import SHARE_RECORDS
from kafkapy.coordinator.share.shard import ShareShard
from kafkapy.coordinator.share.state import ShareKey, StateBatch, share_key
from kafkapy.coordinator.writer import READ_TO_LOG_END, PartitionLogWriter
from kafkapy.errors import code_of
from kafkapy.records.batches import iter_records
from kafkapy.testing.coordinator import VirtualClock
from kafkapy.types import TopicPartition

STATES = "__share_group_state"
PARTITION = TopicPartition(STATES, 0)


class LendingBroker(ShareBroker):
    """`lends`: whether the coordinator does, or takes every write itself."""

    def __init__(
        self, *, lends: bool = True, updates_per_snapshot: int = 500, compression: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.lends = lends
        self.config = ShareCoordinatorConfig(updates_per_snapshot=updates_per_snapshot, compression=compression)
        self.clock = VirtualClock()
        (self.state_log,) = self.topic(STATES)
        self.epoch = 0
        self.by_python = 0
        """Writes that the coordinator took."""
        self.coordinator = self.new_coordinator()

    def log(self, partition: TopicPartition) -> PartitionLog | None:
        """See HostsPartitions."""
        return self.state_log if partition == PARTITION else None

    def new_coordinator(self) -> ShareCoordinator:
        """A coordinator that has loaded what the log has."""
        coordinator = ShareCoordinator(
            self.config,
            PartitionLogWriter(self),
            self.clock,
            partition_count=lambda: 1,
            exists=lambda topic_id, partition: True,
            is_gone=lambda topic_id: False,
            delete_records=lambda partition, offset: NotImplemented,
        )
        coordinator.on_leadership_change(PARTITION, self.epoch, True)
        self.clock.run()
        return coordinator

    @property
    def shard(self) -> ShareShard:
        return self.coordinator.runtime.shards()[0]

    def serve(self) -> None:
        """Load, write and lend as ShareManager does."""
        while True:
            loads, writes, emptied = self.shares.take()
            self.emptied += emptied
            for id, group, _, topic_id, partition, leader_epoch in loads:
                key = share_key(group, topic_id, partition)
                if key not in self.shard.states:
                    self.ask(self.coordinator.initialize(key, 1, 0))
                state = self.ask(self.coordinator.read(key, leader_epoch))
                self.shares.loaded(id, state.state_epoch, self.settings, state.start_offset, state.batches)
            for write in writes:
                key = share_key(*write.key)
                error = self.ask(
                    self.coordinator.write(
                        key,
                        write.state_epoch,
                        write.leader_epoch,
                        write.start_offset,
                        write.delivery_complete,
                        [*map(StateBatch._make, write.batches)],
                    )
                )
                self.by_python += 1
                write.finish(error or 0)
                if self.lends and not error:
                    self.coordinator.lend(key, write)
            if not loads and not writes:
                return

    def ask(self, later: Any) -> Any:
        """The reply, or the code of the error."""
        self.clock.run()
        assert later.done
        return later.result() if later.error is None else code_of(later.error)

    def key(self, topic: str, partition: int = 0, group: str = "g") -> ShareKey:
        return share_key(group, self.topic_id(topic), partition)

    def records(self) -> list[Any]:
        """Key and value of each record of the log, decoded."""
        data, *_ = self.state_log.read(0, 1 << 24, isolation=READ_TO_LOG_END, leader_only=True)
        return [SHARE_RECORDS.decode(each.key or b"", each.value) for each in iter_records(data)]

    def raw_records(self) -> list[tuple[bytes, bytes]]:
        """Key and value of each record of the log, as they are."""
        data, *_ = self.state_log.read(0, 1 << 24, isolation=READ_TO_LOG_END, leader_only=True)
        return [(each.key or b"", each.value or b"") for each in iter_records(data)]

    @staticmethod
    def stored(coordinator: ShareCoordinator) -> dict[ShareKey, tuple[Any, ...]]:
        """What a coordinator knows, once it has heard of all updates."""
        shard = coordinator.runtime.shards()[0]
        for key in shard.states:
            shard.summary(key)
        return {
            key: (each.state_epoch, each.start_offset, each.delivery_complete, each.updates, list(each.batches))
            for key, each in shard.states.items()
        }
