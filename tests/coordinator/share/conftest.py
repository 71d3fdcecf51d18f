"""A share coordinator on a virtual clock, with a log in memory from which records can be deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid5

import pytest

from kafkapy.coordinator.result import Later
from kafkapy.coordinator.share.config import ShareCoordinatorConfig
from kafkapy.coordinator.share.coordinator import ShareCoordinator
from kafkapy.coordinator.share.records import SHARE_RECORDS
from kafkapy.coordinator.share.shard import ShareShard
from kafkapy.coordinator.share.state import ShareKey, StateBatch
from kafkapy.errors import KafkaError, code_of
from kafkapy.metadata.topic_names import SHARE_GROUP_STATE_TOPIC
from kafkapy.records.batches import iter_records
from kafkapy.testing.coordinator import MemoryWriter, VirtualClock
from kafkapy.types import ZERO_UUID, TopicPartition

PARTITION = TopicPartition(SHARE_GROUP_STATE_TOPIC, 0)
TOPIC = uuid5(ZERO_UUID, "topic")
OTHER = uuid5(ZERO_UUID, "other")
KEY = ShareKey("group", TOPIC, 0)
MINUTE_MS = 60_000


class ShareBench:
    """A coordinator that leads the one partition of __share_group_state; topics have ten partitions."""

    def __init__(self, writer: MemoryWriter | None = None, **keys: Any) -> None:
        self.clock = VirtualClock()
        self.writer = writer or MemoryWriter()
        self.config = ShareCoordinatorConfig(**keys)
        self.topics: set[UUID] = {TOPIC, OTHER}
        self.refusal: KafkaError | None = None
        """The error of deletions of records."""
        self.epoch = 0
        self.restart()

    def restart(self) -> None:
        """Another coordinator on the same log."""
        if self.epoch:
            self.coordinator.on_leadership_change(PARTITION, self.epoch + 1, False)
            self.coordinator.runtime.timer.close()
        self.epoch += 2
        self.coordinator = ShareCoordinator(
            self.config,
            self.writer,
            self.clock,
            partition_count=lambda: 1,
            exists=lambda topic_id, partition: topic_id in self.topics and 0 <= partition < 10,
            is_gone=lambda topic_id: topic_id not in self.topics,
            delete_records=self._delete_records,
        )
        self.coordinator.start()
        self.coordinator.on_leadership_change(PARTITION, self.epoch, True)
        self.clock.run()

    def _delete_records(self, partition: TopicPartition, offset: int) -> Later[None]:
        if self.refusal is not None:
            return Later.failure(self.refusal)
        assert offset <= self.writer.high_watermark(partition), "only committed records may be deleted"
        self.writer.log_starts[partition] = max(offset, self.log_start)
        return Later.of(None)

    # --- what is stored ---------------------------------------------------------------------------------------------

    @property
    def shard(self) -> ShareShard:
        return self.coordinator.runtime.shards()[0]

    @property
    def log_start(self) -> int:
        return self.writer.log_starts.get(PARTITION, 0)

    @property
    def log_end(self) -> int:
        return self.writer.end_offset(PARTITION)

    def records(self) -> list[Any]:
        """The records of the log."""
        data = b"".join(self.writer.batches.get(PARTITION, []))
        found = [each for each in iter_records(data) if each.offset >= self.log_start]
        return [SHARE_RECORDS.decode(each.key or b"", each.value) for each in found]

    def states(self) -> dict[ShareKey, Any]:
        """What the shard knows, without what only tells when a snapshot is due."""
        return {
            key: (state.state_epoch, state.leader_epoch, state.start_offset, state.delivery_complete, state.batches)
            for key, state in self.shard.states.items()
        }

    # --- requests, in short -----------------------------------------------------------------------------------------

    def ask(self, later: Later[Any]) -> Any:
        """The reply, or the code of the error."""
        self.clock.run()
        assert later.done
        if later.error is None:
            return later.result()
        assert isinstance(later.error, KafkaError), later.error
        return code_of(later.error)

    def initialize(self, key: ShareKey = KEY, state_epoch: int = 1, start_offset: int = 0) -> Any:
        return self.ask(self.coordinator.initialize(key, state_epoch, start_offset))

    def read(self, key: ShareKey = KEY, leader_epoch: int = 0) -> Any:
        return self.ask(self.coordinator.read(key, leader_epoch))

    def write(
        self,
        *batches: tuple[int, int, int, int],
        key: ShareKey = KEY,
        state_epoch: int = 1,
        leader_epoch: int = 0,
        start_offset: int = -1,
        complete: int = 0,
    ) -> Any:
        changed = [StateBatch(*each) for each in batches]
        return self.ask(self.coordinator.write(key, state_epoch, leader_epoch, start_offset, complete, changed))

    def delete(self, key: ShareKey = KEY) -> Any:
        return self.ask(self.coordinator.delete(key))

    def summary(self, key: ShareKey = KEY) -> Any:
        return self.ask(self.coordinator.summary(key, -1))

    def batches(self, key: ShareKey = KEY) -> Sequence[tuple[int, ...]]:
        """The state batches of a share-partition."""
        return [tuple(each) for each in self.shard.states[key].batches]


@pytest.fixture
def bench() -> ShareBench:
    """A coordinator that has nothing to do yet."""
    return ShareBench()
