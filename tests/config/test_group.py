"""The configuration of single groups."""

from __future__ import annotations

import pytest

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.group import describe_group, validate_group
from kafkapy.config.properties import Properties
from kafkapy.errors import ConfigError
from kafkapy.types import ConfigSource

REQUIRED = ["broker.id=1", "log.dirs=/nowhere"]


def broker(*keys: str) -> BrokerConfig:
    return BrokerConfig.from_properties(Properties().override([*REQUIRED, *keys]))


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"consumer.session.timeout.ms": "60001"}, "must be less than or equal to group.consumer.max.session.timeout"),
        ({"consumer.session.timeout.ms": "1"}, "must be greater than or equal to group.consumer.min.session.timeout"),
        ({"consumer.heartbeat.interval.ms": "15001"}, "less than or equal to group.consumer.max.heartbeat.interval.ms"),
        ({"consumer.heartbeat.interval.ms": "x"}, "whole number"),
        ({"retention.ms": "1"}, "is not a group configuration key"),
    ],
)
def test_what_a_group_may_not_be_given(keys: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        validate_group(keys, broker())


def test_a_session_is_longer_than_a_heartbeat_interval() -> None:
    wide = broker("group.consumer.min.session.timeout.ms=5000", "group.consumer.session.timeout.ms=45000")
    validate_group({"consumer.session.timeout.ms": "5001"}, wide)
    with pytest.raises(ConfigError, match="must be greater than consumer.heartbeat.interval.ms"):
        validate_group({"consumer.session.timeout.ms": "5000"}, wide)


def test_where_a_value_comes_from() -> None:
    set_for_all = broker("group.consumer.heartbeat.interval.ms=6000")
    described = {each.name: each for each in describe_group(set_for_all, {"consumer.session.timeout.ms": "50000"})}
    session, heartbeat = described["consumer.session.timeout.ms"], described["consumer.heartbeat.interval.ms"]
    assert (session.value, session.source) == ("50000", ConfigSource.DYNAMIC_GROUP_CONFIG)
    assert [each.name for each in session.synonyms] == [
        "consumer.session.timeout.ms",
        "group.consumer.session.timeout.ms",
    ]
    assert (heartbeat.value, heartbeat.source) == ("6000", ConfigSource.STATIC_BROKER_CONFIG)


def test_keys_of_kafka_4_4_without_effect_are_taken_and_described() -> None:
    keys = {"share.heartbeat.interval.ms": "6000", "streams.num.warmup.replicas": "1"}
    validate_group(keys, broker())
    with pytest.raises(ConfigError, match="at least 1"):
        validate_group({"share.heartbeat.interval.ms": "0"}, broker())
    described = {each.name: each for each in describe_group(broker("group.share.session.timeout.ms=50000"), keys)}
    assert described["share.heartbeat.interval.ms"].source is ConfigSource.DYNAMIC_GROUP_CONFIG
    assert described["share.session.timeout.ms"].value == "50000"
    assert described["streams.assignor.name"].value == "sticky"
    assert [(each.name, each.value) for each in described["share.isolation.level"].synonyms] == [
        ("share.isolation.level", "read_uncommitted")
    ]
    assert "streams.num.warmup.replicas" in described
    assert "streams.task.offset.interval.ms" not in described


@pytest.mark.parametrize(
    "keys",
    [
        ["group.consumer.session.timeout.ms=60001"],
        ["group.consumer.heartbeat.interval.ms=4999"],
        ["group.consumer.max.heartbeat.interval.ms=4999"],
        [
            "group.consumer.min.session.timeout.ms=1000",
            "group.consumer.session.timeout.ms=5000",
        ],
    ],
)
def test_bounds_that_contradict_themselves_keep_a_broker_from_starting(keys: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"group\.consumer"):
        broker(*keys)
