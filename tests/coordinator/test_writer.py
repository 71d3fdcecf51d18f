"""The runtime over real partition logs: what is written is loaded again, and replies wait for the high watermark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkapy import errors
from kafkapy._speedups.base.event_queue import HIGH_WATERMARK, EventQueue
from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy.config.topic import LogConfig
from kafkapy.coordinator.group.config import GroupConfig
from kafkapy.coordinator.group.coordinator import GroupCoordinator
from kafkapy.coordinator.group.offset_requests import NewOffset, OffsetCommit
from kafkapy.coordinator.group.shard import GroupShard
from kafkapy.coordinator.result import Later, ProducerStamp
from kafkapy.coordinator.writer import PartitionLogWriter
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.loader import load_log
from kafkapy.metadata.cache import MetadataSnapshot
from kafkapy.testing.coordinator import VirtualClock
from kafkapy.testing.share import share_parts
from kafkapy.types import TopicPartition

PARTITION = TopicPartition("__consumer_offsets", 0)


class Broker:
    """One partition of __consumer_offsets on disk, and a coordinator over it; both can be made anew."""

    def __init__(self, root: Path, isr: tuple[int, ...] = (1,), load_bytes: int = 1 << 20, **config: Any) -> None:
        self.root = root
        self.clock = VirtualClock()
        self.events = EventQueue()
        self.hosted: PartitionLog | None = None
        self.epoch = 0
        overrides = {"segment.bytes": "20000", "cleanup.policy": "compact", **config}
        self.config = LogConfig.create(overrides=overrides)
        self.load_bytes = load_bytes
        self.isr = isr
        self.start()

    def log(self, topic_partition: TopicPartition) -> PartitionLog | None:
        return self.hosted if topic_partition == PARTITION else None

    def start(self) -> None:
        """Lead the partition at a new epoch."""
        self.epoch += 1
        if self.hosted is None:
            self.hosted, _ = load_log(
                LocalBackend().open_log(self.root, str(PARTITION), create=True),
                PARTITION,
                self.config,
                events=self.events,
                clean=True,
                recovery_point=0,
                log_start_offset=0,
            )
        self.hosted.become_leader(1, self.epoch, self.isr)
        self.writer = PartitionLogWriter(self, {PARTITION.topic: self.load_bytes})
        self.coordinator = GroupCoordinator(
            GroupConfig(),
            self.writer,
            self.clock,
            partition_count=lambda: 1,
            assignors=(),
            metadata=MetadataSnapshot,
            **share_parts(self.clock),
        )
        self.coordinator.runtime.on_leadership_change(PARTITION, self.epoch, True)
        self.clock.run()

    def drain(self) -> None:
        """What KafkaServer does with the data plane's events."""
        for kind, handle, argument, text in self.events.drain():
            if kind == HIGH_WATERMARK:
                self.writer.high_watermark_moved(handle, argument, text)

    @property
    def shard(self) -> GroupShard:
        return self.coordinator.runtime.shards()[0]

    def commit(self, group: str, offset: int, metadata: str = "", producer: ProducerStamp | None = None) -> Later[Any]:
        from kafkapy.coordinator.group.classic.requests import ClientInfo

        new = {TopicPartition("topic", 0): NewOffset(offset, metadata=metadata)}
        request = OffsetCommit(group, new, producer=producer)
        later = self.coordinator.write(
            group, lambda shard, now: shard.offsets.commit(ClientInfo("c", "/h", 8), request, now)
        )
        self.clock.run()
        return later

    def offsets(self) -> dict[str, int]:
        return {
            group: offset.offset
            for group in self.shard.store.groups()
            for offset in self.shard.store.of_group(group).values()
        }


def test_what_was_written_is_loaded_over_segments_and_chunks(tmp_path: Path) -> None:
    broker = Broker(tmp_path, load_bytes=5000)
    for number in range(600):
        assert broker.commit(f"group-{number % 150}", number, "x" * 100).done
    assert broker.hosted is not None and len(broker.hosted.segments()) > 3
    before = broker.offsets()
    assert before["group-149"] == 599
    broker.start()
    assert broker.offsets() == before
    broker.hosted.close()
    broker.hosted = None
    broker.start()
    assert broker.offsets() == before


def test_transactions_and_their_markers_are_loaded(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.commit("a", 1, producer=ProducerStamp(7, 0))
    broker.commit("b", 2, producer=ProducerStamp(8, 0))
    broker.commit("c", 3, producer=ProducerStamp(9, 0))
    runtime = broker.coordinator.runtime
    assert runtime.complete_transaction(0, 7, 0, 0, True).done
    assert runtime.complete_transaction(0, 8, 0, 0, False).done
    assert broker.offsets() == {"a": 1}
    broker.start()
    assert broker.offsets() == {"a": 1}
    assert broker.shard.store.has_open_transactions("c")
    assert broker.coordinator.runtime.complete_transaction(0, 9, 0, 0, True).done
    assert broker.offsets() == {"a": 1, "c": 3}


def test_a_reply_waits_until_every_in_sync_replica_has_the_record(tmp_path: Path) -> None:
    broker = Broker(tmp_path, isr=(1, 2))
    assert broker.hosted is not None
    first, second = broker.commit("a", 1), broker.commit("b", 2)
    broker.drain()
    assert not first.done and not second.done
    broker.hosted.follower_position(2, 1)
    broker.drain()
    assert first.done and not second.done
    broker.hosted.follower_position(2, 2)
    broker.drain()
    assert second.done
    assert not broker.hosted.announce_high_watermark
    third = broker.commit("a", 3)
    broker.hosted.follower_position(2, 3)
    broker.drain()
    assert third.done


def test_too_few_in_sync_replicas_refuse_a_commit(tmp_path: Path) -> None:
    broker = Broker(tmp_path, **{"min.insync.replicas": "2"})
    with pytest.raises(errors.CoordinatorNotAvailableError):
        broker.commit("a", 1).result()
    assert broker.offsets() == {}


def test_a_partition_that_is_led_elsewhere_refuses_a_commit(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    assert broker.hosted is not None
    broker.hosted.become_follower(2, 9)
    with pytest.raises(errors.NotCoordinatorError):
        broker.commit("a", 1).result()


def test_records_that_no_coordinator_wrote_are_skipped(tmp_path: Path) -> None:
    from kafkapy.records.batches import RecordBatchBuilder

    broker = Broker(tmp_path)
    broker.commit("a", 1)
    assert broker.hosted is not None
    builder = RecordBatchBuilder()
    builder.append(1, b"\x00\x01broken", b"\x00\x03")
    broker.hosted.append_as_leader(builder.build())
    broker.start()
    assert broker.offsets() == {"a": 1}


def test_records_of_a_kind_not_known_are_skipped(tmp_path: Path) -> None:
    from kafkapy.records.batches import RecordBatchBuilder

    broker = Broker(tmp_path)
    broker.commit("a", 1)
    assert broker.hosted is not None
    builder = RecordBatchBuilder()
    builder.append(1, b"\x7f\xff from the future", b"\x00\x00")
    broker.hosted.append_as_leader(builder.build())
    broker.start()
    assert broker.offsets() == {"a": 1}


def test_what_was_loaded_but_not_replicated_is_not_shown_yet(tmp_path: Path) -> None:
    broker = Broker(tmp_path, isr=(1, 2))
    assert broker.hosted is not None
    assert not broker.commit("a", 1).done
    broker.start()
    read = broker.coordinator.read("a", lambda shard, _: broker.offsets())
    assert not read.done
    broker.hosted.follower_position(2, broker.hosted.log_end_offset)
    broker.drain()
    assert read.result() == {"a": 1}
