"""Client-metrics subscriptions (resource type CLIENT_METRICS, KIP-714) as a client sees them."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.config.client_metrics import parse_subscription
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.alter_configs import AlterConfigsRequest
from kafkapy.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkapy.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkapy.protocol.messages.list_config_resources import ListConfigResourcesRequest
from kafkapy.types import ConfigSource

METRICS = 16
SET, DELETE, APPEND, SUBTRACT = range(4)


def alter(client: Any, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False) -> Any:
    Resource = IncrementalAlterConfigsRequest.Resource
    configs = [Resource.Config(name=key, config_operation=op, value=value) for key, op, value in changes]
    resource = Resource(resource_type=METRICS, resource_name=name, configs=configs)
    return client(IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only), 1).responses[0]


def described(client: Any, name: str, *keys: str) -> Any:
    resource = DescribeConfigsRequest.Resource(
        resource_type=METRICS, resource_name=name, configuration_keys=list(keys) or None
    )
    return client(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4).results[0]


def values(client: Any, name: str) -> dict[str, str]:
    """The keys that the subscription sets itself."""
    return {each.name: each.value for each in described(client, name).configs if each.config_source != 5}


def listed(client: Any) -> set[str]:
    answer = client(ListConfigResourcesRequest(resource_types=[METRICS]), 1)
    return {each.resource_name for each in answer.config_resources}


def test_a_subscription_is_stored_described_listed_and_deleted(client: Any, topic_name: str) -> None:
    name = f"of/{topic_name} %"
    done = alter(
        client, name, ("metrics", SET, "a.b,c,a.b"), ("interval.ms", SET, "100"), ("match", SET, "client_id=x.*")
    )
    assert done.error_code == ErrorCode.NONE, done.error_message
    assert values(client, name) == {"metrics": "a.b,c", "interval.ms": "100", "match": "client_id=x.*"}
    (entry,) = described(client, name, "interval.ms", "nope").configs
    assert (entry.config_source, entry.read_only, entry.is_sensitive, entry.config_type) == (7, False, False, 3)
    (synonym,) = entry.synonyms
    source = ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG
    assert (synonym.name, synonym.value, synonym.source) == ("interval.ms", "100", source)
    assert name in listed(client)
    alter(client, name, ("metrics", APPEND, "d"), ("interval.ms", DELETE, None))
    alter(client, name, ("metrics", SUBTRACT, "c"))
    assert values(client, name) == {"metrics": "a.b,d", "match": "client_id=x.*"}
    alter(client, name, ("metrics", DELETE, None), ("match", DELETE, None))
    assert values(client, name) == {}
    assert name not in listed(client)


def test_alter_configs_replaces_a_subscription(client: Any, topic_name: str) -> None:
    alter(client, topic_name, ("metrics", SET, "a"), ("interval.ms", SET, "1000"))
    Resource = AlterConfigsRequest.Resource
    resource = Resource(
        resource_type=METRICS, resource_name=topic_name, configs=[Resource.Config(name="metrics", value="*")]
    )
    assert client(AlterConfigsRequest(resources=[resource]), 2).responses[0].error_code == ErrorCode.NONE
    assert values(client, topic_name) == {"metrics": "*"}


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (("nokey", "1"), ErrorCode.INVALID_REQUEST, "Unknown client metrics configuration: nokey"),
        (
            ("interval.ms", "99"),
            ErrorCode.INVALID_REQUEST,
            "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        (("interval.ms", "3600001"), ErrorCode.INVALID_REQUEST, "between 100 and 3600000"),
        (("interval.ms", "x"), ErrorCode.INVALID_CONFIG, "interval.ms"),
        (("metrics", "a,,b"), ErrorCode.INVALID_CONFIG, "Configuration 'metrics' values must not be empty."),
        (("match", "nobody=x"), ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: nobody=x"),
        (("match", "client_id"), ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: client_id"),
        (("match", "client_id=a=b"), ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: client_id=a=b"),
        (("match", "client_id=["), ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: client_id=["),
        (("match", "client_id=" + "(a{500}){500}" * 3), ErrorCode.INVALID_CONFIG, "Illegal client matching pattern"),
    ],
)
def test_bad_subscriptions_are_refused_whole(
    client: Any, topic_name: str, change: tuple[str, str], error: ErrorCode, text: str
) -> None:
    other = "interval.ms" if change[0] != "interval.ms" else "metrics"
    for validate_only in (True, False):
        done = alter(client, topic_name, (other, SET, "500"), (change[0], SET, change[1]), validate_only=validate_only)
        assert (done.error_code, text in done.error_message) == (error, True), done.error_message
    assert values(client, topic_name) == {}


def test_validate_only_writes_nothing(client: Any, topic_name: str) -> None:
    done = alter(client, topic_name, ("metrics", SET, "a"), validate_only=True)
    assert (done.error_code, values(client, topic_name)) == (ErrorCode.NONE, {})


def test_an_empty_name_is_refused(client: Any) -> None:
    for validate_only in (True, False):
        done = alter(client, "", ("metrics", SET, "a"), validate_only=validate_only)
        assert (done.error_code, done.error_message) == (ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    found = described(client, "")
    assert (found.error_code, found.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Client metrics subscription name must not be empty",
    )


def test_a_subscription_matches_whole_properties_and_all_selectors() -> None:
    given = parse_subscription({"match": "client_id=a.*, client_software_name=java"})
    assert given.interval_ms == 300_000
    assert given.matches({"client_id": "abc", "client_software_name": "java"})
    assert not given.matches({"client_id": "xabc", "client_software_name": "java"})
    assert not given.matches({"client_id": "abc"})
    assert parse_subscription({"match": ""}).matches({})
