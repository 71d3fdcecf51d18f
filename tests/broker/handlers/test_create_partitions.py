"""CreatePartitions as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.create_partitions import CreatePartitionsRequest
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.metadata import MetadataRequest


@pytest.fixture
def topic(client: Any, topic_name: str) -> str:
    wanted = CreateTopicsRequest.Topic(
        name=topic_name, num_partitions=2, replication_factor=1, assignments=[], configs=[]
    )
    assert client(CreateTopicsRequest(topics=[wanted]), 7).topics[0].error_code == ErrorCode.NONE
    return topic_name


def request(name: str, count: int, brokers: list[list[int]] | None = None, **fields: Any) -> CreatePartitionsRequest:
    given = CreatePartitionsRequest.Topic.Assignment
    assignments = None if brokers is None else [given(broker_ids=each) for each in brokers]
    topic = CreatePartitionsRequest.Topic(name=name, count=count, assignments=assignments)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=10_000, **{"validate_only": False} | fields)


def partitions_of(client: Any, name: str) -> list[int]:
    asked = MetadataRequest(topics=[MetadataRequest.Topic(name=name)], allow_auto_topic_creation=False)
    return [each.leader_id for each in client(asked, 12).topics[0].partitions]


@pytest.mark.parametrize("version", range(4))
def test_every_version_adds_partitions(client: Any, topic: str, version: int) -> None:
    (result,) = client(request(topic, 5), version).results
    assert (result.name, result.error_code) == (topic, ErrorCode.NONE)
    assert partitions_of(client, topic) == [1] * 5


def test_validate_only_adds_nothing(client: Any, topic: str) -> None:
    (result,) = client(request(topic, 5, validate_only=True), 3).results
    assert result.error_code == ErrorCode.NONE
    assert len(partitions_of(client, topic)) == 2


@pytest.mark.parametrize("count", [0, 1, 2])
def test_partitions_are_never_taken_away(client: Any, topic: str, count: int) -> None:
    (result,) = client(request(topic, count), 3).results
    assert result.error_code == ErrorCode.INVALID_PARTITIONS
    assert result.error_message


def test_an_unknown_topic_is_refused(client: Any, topic_name: str) -> None:
    (result,) = client(request(topic_name, 3), 3).results
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_replicas_may_be_assigned_by_hand(client: Any, topic: str) -> None:
    assert client(request(topic, 3, [[1]]), 3).results[0].error_code == ErrorCode.NONE
    assert client(request(topic, 4, [[99]]), 3).results[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_topic_named_twice_is_refused(client: Any, topic: str) -> None:
    twice = request(topic, 3)
    twice.topics = twice.topics * 2
    (result,) = client(twice, 3).results
    assert result.error_code == ErrorCode.INVALID_REQUEST
