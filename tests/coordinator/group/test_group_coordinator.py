"""GroupCoordinator: what handlers get where the group cannot be asked, or cannot be written."""

from __future__ import annotations

import pytest

from kafkapy import errors
from kafkapy.coordinator.group.assignors.uniform import UniformAssignor
from kafkapy.coordinator.group.config import GroupConfig
from kafkapy.coordinator.group.consumer.requests import ConsumerClient
from kafkapy.coordinator.group.coordinator import GroupCoordinator
from kafkapy.errors import ErrorCode
from kafkapy.metadata.topic_names import GROUP_METADATA_TOPIC
from kafkapy.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.heartbeat import HeartbeatRequest
from kafkapy.testing.coordinator import MemoryWriter, VirtualClock, snapshot_of
from kafkapy.testing.share import share_parts
from kafkapy.types import TopicPartition

PARTITION = TopicPartition(GROUP_METADATA_TOPIC, 0)


class Bench:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.writer = MemoryWriter()
        self.coordinator = GroupCoordinator(
            GroupConfig(),
            self.writer,
            self.clock,
            partition_count=lambda: 1,
            assignors=[UniformAssignor()],
            metadata=lambda: snapshot_of({"t": 1}),
            **share_parts(self.clock),
        )

    def lead(self) -> None:
        self.coordinator.runtime.on_leadership_change(PARTITION, 1, True)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_every_member_is_taken_for_alive_while_the_group_is_loaded(bench: Bench) -> None:
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    with pytest.raises(errors.NotCoordinatorError):
        bench.coordinator.heartbeat(beat).result()
    bench.lead()
    assert bench.coordinator.heartbeat(beat).result() is ErrorCode.NONE
    bench.clock.run()
    with pytest.raises(errors.UnknownMemberIdError):
        bench.coordinator.heartbeat(beat).result()


def test_a_member_that_does_not_fit_into_a_batch_is_no_matter_of_message_sizes(bench: Bench) -> None:
    bench.lead()
    bench.clock.run()
    bench.writer.max_bytes = 500
    client = ConsumerClient("c", "/127.0.0.1")
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=1000, topic_partitions=[]
    )
    request.subscribed_topic_names = ["t" * 249 for _ in range(3)]
    with pytest.raises(errors.UnknownServerError):
        bench.coordinator.consumer_heartbeat(client, request, 1).result()
    assert bench.writer.appends == 0
    bench.writer.max_bytes = 1_048_588
    joined = bench.coordinator.consumer_heartbeat(client, request, 1)
    bench.clock.run()
    assert joined.result().error_code == ErrorCode.NONE
