"""CreateTopics as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.types import ZERO_UUID


def topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    assignments: dict[int, list[int]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> CreateTopicsRequest.Topic:
    return CreateTopicsRequest.Topic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreateTopicsRequest.Topic.Assignment(partition_index=index, broker_ids=brokers)
            for index, brokers in (assignments or {}).items()
        ],
        configs=[CreateTopicsRequest.Topic.Config(name=key, value=value) for key, value in (configs or {}).items()],
    )


def partitions_of(client: Any, name: str) -> int:
    request = MetadataRequest(topics=[MetadataRequest.Topic(name=name)], allow_auto_topic_creation=False)
    return len(client(request, 12).topics[0].partitions)


@pytest.mark.parametrize("version", range(8))
def test_every_version_creates(client: Any, topic_name: str, version: int) -> None:
    (result,) = client(CreateTopicsRequest(topics=[topic(topic_name, 3)]), version).topics
    assert (result.error_code, result.name) == (ErrorCode.NONE, topic_name)
    assert partitions_of(client, topic_name) == 3
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
    assert (result.topic_id != ZERO_UUID) == (version >= 7)


def test_the_answer_holds_the_effective_configuration(client: Any, topic_name: str) -> None:
    request = CreateTopicsRequest(topics=[topic(topic_name, configs={"retention.ms": "1000"})])
    (result,) = client(request, 7).topics
    configs = {each.name: (each.value, each.config_source) for each in result.configs}
    assert configs["retention.ms"] == ("1000", 1)
    assert configs["cleanup.policy"] == ("delete", 5)


def test_validate_only_makes_nothing(client: Any, topic_name: str) -> None:
    request = CreateTopicsRequest(topics=[topic(topic_name, 3)], validate_only=True)
    (result,) = client(request, 7).topics
    assert (result.error_code, result.num_partitions) == (ErrorCode.NONE, 3)
    assert partitions_of(client, topic_name) == 0


def test_minus_one_means_the_brokers_defaults(client: Any, topic_name: str) -> None:
    (result,) = client(CreateTopicsRequest(topics=[topic(topic_name, -1, -1)]), 7).topics
    assert (result.error_code, result.num_partitions, result.replication_factor) == (ErrorCode.NONE, 1, 1)


def test_a_topic_that_exists_is_refused(client: Any, topic_name: str) -> None:
    client(CreateTopicsRequest(topics=[topic(topic_name)]), 7)
    (result,) = client(CreateTopicsRequest(topics=[topic(topic_name)]), 7).topics
    assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert topic_name in result.error_message


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (topic("bad name"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("none", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("many-replicas", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("no-replicas", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("bad-key", configs={"no.such.key": "1"}), ErrorCode.INVALID_CONFIG),
        (topic("bad-value", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (topic("both", 1, 1, {0: [1]}), ErrorCode.INVALID_REQUEST),
        (topic("unknown-broker", -1, -1, {0: [99]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
    ],
    ids=lambda value: value.name if hasattr(value, "name") else None,
)
def test_what_cannot_be_is_refused_with_a_message(client: Any, wanted: Any, error: ErrorCode) -> None:
    (result,) = client(CreateTopicsRequest(topics=[wanted]), 7).topics
    assert result.error_code == error, result.error_message
    assert result.error_message


def test_one_bad_topic_does_not_spoil_the_others(client: Any, topic_name: str) -> None:
    response = client(CreateTopicsRequest(topics=[topic("bad name"), topic(topic_name)]), 7)
    assert [each.error_code for each in response.topics] == [ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE]


def test_a_topic_named_twice_is_refused(client: Any, topic_name: str) -> None:
    (result,) = client(CreateTopicsRequest(topics=[topic(topic_name), topic(topic_name)]), 7).topics
    assert result.error_code == ErrorCode.INVALID_REQUEST


def test_replicas_may_be_assigned_by_hand(client: Any, topic_name: str) -> None:
    (result,) = client(CreateTopicsRequest(topics=[topic(topic_name, -1, -1, {0: [1], 1: [1]})]), 7).topics
    assert (result.error_code, result.num_partitions) == (ErrorCode.NONE, 2)


def test_the_last_value_of_a_key_given_twice_counts(client: Any, topic_name: str) -> None:
    wanted = topic(topic_name)
    wanted.configs = [CreateTopicsRequest.Topic.Config(name="retention.ms", value=each) for each in ("5", "6")]
    result = client(CreateTopicsRequest(topics=[wanted]), 7).topics[0]
    assert result.error_code == ErrorCode.NONE, result.error_message
    assert {each.name: each.value for each in result.configs}["retention.ms"] == "6"
