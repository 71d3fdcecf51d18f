"""DescribeConfigs as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkapy.types import ConfigSource

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16


def ask(client: Any, kind: int, name: str, version: int = 4, keys: list[str] | None = None, **fields: bool) -> Any:
    resource = DescribeConfigsRequest.Resource(resource_type=kind, resource_name=name, configuration_keys=keys)
    return client(DescribeConfigsRequest(resources=[resource], **fields), version).results[0]


def entries(result: Any) -> dict[str, Any]:
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, "")
    return {each.name: each for each in result.configs}


@pytest.mark.parametrize("version", range(5))
def test_every_version_describes_a_topic(client: Any, topic_name: str, version: int) -> None:
    client.create_topic(topic_name, retention_ms="5000")
    found = entries(ask(client, TOPIC, topic_name, version))
    assert (found["retention.ms"].value, found["retention.ms"].read_only) == ("5000", False)
    assert found["cleanup.policy"].value == "delete"
    if version == 0:
        assert (found["retention.ms"].is_default, found["cleanup.policy"].is_default) == (False, True)
    else:
        assert found["retention.ms"].config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG
        assert found["cleanup.policy"].config_source == ConfigSource.DEFAULT_CONFIG
    if version >= 3:
        assert found["retention.ms"].config_type == 5


def test_only_the_keys_asked_for_come(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    found = entries(ask(client, TOPIC, topic_name, keys=["segment.bytes", "no.such.key"]))
    assert list(found) == ["segment.bytes"]


def test_synonyms_and_documentation_come_when_asked_for(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name, segment_bytes="1048576")
    plain = entries(ask(client, TOPIC, topic_name, keys=["segment.bytes"]))["segment.bytes"]
    assert (plain.synonyms, plain.documentation) == ([], None)
    full = ask(client, TOPIC, topic_name, keys=["segment.bytes"], include_synonyms=True, include_documentation=True)
    entry = entries(full)["segment.bytes"]
    assert [(each.name, each.value, each.source) for each in entry.synonyms] == [
        ("segment.bytes", "1048576", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ("log.segment.bytes", "1073741824", ConfigSource.DEFAULT_CONFIG),
    ]
    assert entry.documentation


def test_the_broker_is_described_with_sources(client: Any) -> None:
    found = entries(ask(client, BROKER, "1"))
    assert (found["broker.id"].value, found["broker.id"].config_source) == ("1", ConfigSource.STATIC_BROKER_CONFIG)
    assert found["broker.id"].read_only
    assert found["num.io.threads"].config_source == ConfigSource.DEFAULT_CONFIG
    assert not found["num.io.threads"].read_only


def test_secrets_are_never_shown(client: Any) -> None:
    found = entries(ask(client, BROKER, "1", include_synonyms=True))
    secret = found["ssl.keystore.password"]
    assert (secret.value, secret.is_sensitive) == (None, True)
    assert {each.value for each in secret.synonyms} <= {None}


def test_loggers_are_described_with_levels(client: Any) -> None:
    found = entries(ask(client, BROKER_LOGGER, "1"))
    assert found["root"].value in ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
    assert "kafka.request.logger" in found
    assert found["root"].config_source == ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "no-such-topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "99", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (0, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_described_has_its_error(client: Any, kind: int, name: str, error: ErrorCode) -> None:
    result = ask(client, kind, name)
    assert (result.error_code, result.configs) == (error, [])
    assert result.error_message
