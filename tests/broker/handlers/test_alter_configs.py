"""AlterConfigs as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.alter_configs import AlterConfigsRequest
from kafkapy.protocol.messages.describe_configs import DescribeConfigsRequest

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8


def alter(client: Any, kind: int, name: str, keys: dict[str, str | None], version: int = 2, **fields: bool) -> Any:
    configs = [AlterConfigsRequest.Resource.Config(name=key, value=value) for key, value in keys.items()]
    resource = AlterConfigsRequest.Resource(resource_type=kind, resource_name=name, configs=configs)
    request = AlterConfigsRequest(resources=[resource], **{"validate_only": False} | fields)
    return client(request, version).responses[0]


def value(client: Any, topic: str, key: str) -> str:
    resource = DescribeConfigsRequest.Resource(resource_type=TOPIC, resource_name=topic, configuration_keys=[key])
    found: str = client(DescribeConfigsRequest(resources=[resource]), 4).results[0].configs[0].value
    return found


@pytest.mark.parametrize("version", range(3))
def test_every_version_replaces_a_topics_keys(client: Any, topic_name: str, version: int) -> None:
    client.create_topic(topic_name, retention_ms="5000")
    result = alter(client, TOPIC, topic_name, {"segment.bytes": "1048576"}, version)
    assert result.error_code == ErrorCode.NONE, result.error_message
    assert value(client, topic_name, "segment.bytes") == "1048576"
    assert value(client, topic_name, "retention.ms") == "604800000", "what is not named goes back to its default"


def test_the_running_log_has_the_new_value_at_once(client: Any, broker: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    alter(client, TOPIC, topic_name, {"max.message.bytes": "2000"})
    configs = [log.config for log in broker.context.log_manager.logs().values() if log.topic == topic_name]
    assert [config.max_message_bytes for config in configs] == [2000]


def test_validate_only_changes_nothing(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    assert alter(client, TOPIC, topic_name, {"retention.ms": "5"}, validate_only=True).error_code == ErrorCode.NONE
    assert value(client, topic_name, "retention.ms") == "604800000"


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ({"no.such.key": "1"}, ErrorCode.INVALID_CONFIG),
        ({"retention.ms": "soon"}, ErrorCode.INVALID_CONFIG),
        ({"retention.ms": None}, ErrorCode.INVALID_REQUEST),
        ({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_bad_values_are_refused_with_a_message(client: Any, topic_name: str, keys: Any, error: ErrorCode) -> None:
    client.create_topic(topic_name)
    result = alter(client, TOPIC, topic_name, keys)
    assert result.error_code == error
    assert next(iter(keys)) in result.error_message


def test_other_resources_have_their_errors(client: Any) -> None:
    assert alter(client, TOPIC, "no-such-topic", {}).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(client, TOPIC, "", {}).error_code == ErrorCode.INVALID_REQUEST
    assert alter(client, BROKER, "99", {}).error_code == ErrorCode.INVALID_REQUEST
    assert alter(client, BROKER, "1", {"broker.rack": "a"}).error_code == ErrorCode.INVALID_REQUEST, "read-only"
    assert alter(client, BROKER_LOGGER, "1", {"root": "INFO"}).error_code == ErrorCode.INVALID_REQUEST
    assert alter(client, 0, "x", {}).error_code == ErrorCode.INVALID_REQUEST


def test_a_key_given_twice_changes_nothing(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name, retention_ms="7")
    Resource = AlterConfigsRequest.Resource
    configs = [Resource.Config(name="retention.ms", value=value) for value in ("1", "2")]
    resource = Resource(resource_type=TOPIC, resource_name=topic_name, configs=configs)
    answer = client(AlterConfigsRequest(resources=[resource], validate_only=False), 2).responses[0]
    assert (answer.error_code, bool(answer.error_message)) == (ErrorCode.INVALID_REQUEST, True)
    assert value(client, topic_name, "retention.ms") == "7"
