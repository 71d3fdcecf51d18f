"""DescribeQuorum as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.describe_quorum import DescribeQuorumRequest
from kafkapy.types import ResourceType

Topic = DescribeQuorumRequest.Topic
METADATA = "__cluster_metadata"


def request(*partitions: tuple[str, int]) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[Topic(topic_name=name, partitions=[Topic.Partition(partition_index=n)]) for name, n in partitions]
    )


@pytest.mark.parametrize("version", range(3))
def test_the_controller_is_the_whole_quorum(client: Any, broker: Any, topic_name: str, version: int) -> None:
    def shown() -> Any:
        response = client(request((METADATA, 0)), version)
        assert response.error_code == ErrorCode.NONE
        if version == 2:
            (node,) = response.nodes
            (listener,) = node.listeners
            assert (node.node_id, listener.host, listener.port) == (1, "127.0.0.1", broker.endpoints[0].port)
        (partition,) = response.topics[0].partitions
        return partition

    before = shown()
    assert (before.error_code, before.leader_id, before.observers) == (ErrorCode.NONE, 1, [])
    assert before.leader_epoch == broker.context.controller.epoch
    (voter,) = before.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (1, before.high_watermark)
    assert (voter.last_caught_up_timestamp > 0) == (version > 0)
    client.create_topic(topic_name)
    assert shown().high_watermark > before.high_watermark


@pytest.mark.parametrize("asked", [[("t", 0)], [(METADATA, 1)], [(METADATA, 0), ("t", 0)], [(METADATA, 0)] * 2, []])
def test_there_is_no_other_quorum(client: Any, asked: list[tuple[str, int]]) -> None:
    response = client(request(*asked), 2)
    assert response.error_code == ErrorCode.NONE
    found = [
        (topic.topic_name, each.partition_index, each.error_code)
        for topic in response.topics
        for each in topic.partitions
    ]
    assert found == [(name, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for name, index in asked]


def test_one_who_may_not_look_is_told_so(group_client: Any, deny: Any) -> None:
    deny((ResourceType.CLUSTER, "kafka-cluster"))
    assert group_client(request((METADATA, 0)), 2).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
