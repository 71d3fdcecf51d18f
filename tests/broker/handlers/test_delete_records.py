"""DeleteRecords as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.delete_records import DeleteRecordsRequest
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest


def delete(client: Any, topic: str, offset: int, version: int = 2, partition: int = 0) -> Any:
    partitions = [DeleteRecordsRequest.Topic.Partition(partition_index=partition, offset=offset)]
    topics = [DeleteRecordsRequest.Topic(name=topic, partitions=partitions)]
    return client(DeleteRecordsRequest(topics=topics, timeout_ms=5000), version).topics[0].partitions[0]


def earliest(client: Any, topic: str) -> int:
    partitions = [ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=-2)]
    topics = [ListOffsetsRequest.Topic(name=topic, partitions=partitions)]
    offset: int = client(ListOffsetsRequest(replica_id=-1, topics=topics), 5).topics[0].partitions[0].offset
    return offset


@pytest.fixture
def topic(client: Any, topic_name: str) -> str:
    client.create_topic(topic_name)
    client.produce(topic_name, [(1000, b"x")] * 10)
    return topic_name


@pytest.mark.parametrize("version", range(3))
def test_every_version_moves_the_log_start(client: Any, topic: str, version: int) -> None:
    result = delete(client, topic, 4, version)
    assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 4)
    assert earliest(client, topic) == 4


def test_minus_one_is_the_high_watermark(client: Any, topic: str) -> None:
    assert delete(client, topic, -1).low_watermark == 10
    assert earliest(client, topic) == 10


def test_the_log_start_never_moves_back(client: Any, topic: str) -> None:
    delete(client, topic, 6)
    assert delete(client, topic, 2).low_watermark == 6
    assert earliest(client, topic) == 6


def test_offsets_beyond_the_high_watermark_are_refused(client: Any, topic: str) -> None:
    result = delete(client, topic, 11)
    assert (result.error_code, result.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_unknown_partitions_are_refused(client: Any, topic: str) -> None:
    assert delete(client, topic, 1, partition=5).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_records_of_a_compacted_topic_stay(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name, cleanup_policy="compact")
    assert delete(client, topic_name, 0).error_code == ErrorCode.POLICY_VIOLATION


def test_a_partition_named_twice_is_answered_once_and_the_last_offset_counts(client: Any, topic: str) -> None:
    partition = DeleteRecordsRequest.Topic.Partition
    first = [partition(partition_index=0, offset=7), partition(partition_index=5, offset=0)]
    second = [partition(partition_index=0, offset=3)]
    topics = [DeleteRecordsRequest.Topic(name=topic, partitions=each) for each in (first, second)]
    (answer,) = client(DeleteRecordsRequest(topics=topics, timeout_ms=5000), 2).topics
    assert [(each.partition_index, each.low_watermark, each.error_code) for each in answer.partitions] == [
        (0, 3, ErrorCode.NONE),
        (5, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert earliest(client, topic) == 3
