"""The configuration of single groups."""

from __future__ import annotations

import pytest

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.durations import duration_ms, is_reset
from kafkapy.config.group import describe_group, parse_group, validate_group
from kafkapy.config.properties import Properties
from kafkapy.coordinator.group.config import GroupConfig, GroupOverrides
from kafkapy.coordinator.group.share.config import ShareGroupConfigs
from kafkapy.errors import ConfigError
from kafkapy.types import ConfigSource, IsolationLevel

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
        ({"consumer.assignment.interval.ms": "15001"}, "or equal to group.consumer.max.assignment.interval.ms"),
        ({"retention.ms": "1"}, "is not a group configuration key"),
        ({"share.session.timeout.ms": "44999"}, "greater than or equal to group.share.min.session.timeout.ms"),
        ({"share.heartbeat.interval.ms": "15001"}, "less than or equal to group.share.max.heartbeat.interval.ms"),
        ({"share.assignment.interval.ms": "15001"}, "less than or equal to group.share.max.assignment.interval.ms"),
        ({"share.record.lock.duration.ms": "14999"}, "or equal to group.share.min.record.lock.duration.ms"),
        ({"share.record.lock.duration.ms": "999"}, "at least 1000"),
        ({"share.delivery.count.limit": "11"}, "less than or equal to group.share.max.delivery.count.limit"),
        ({"share.delivery.count.limit": "1"}, "at least 2"),
        ({"share.partition.max.record.locks": "4001"}, "or equal to group.share.max.partition.max.record.locks"),
        ({"share.auto.offset.reset": "none"}, "latest, earliest or by_duration"),
        ({"share.auto.offset.reset": "by_duration:1h"}, "latest, earliest or by_duration"),
        ({"share.auto.offset.reset": "by_duration:-PT1H"}, "latest, earliest or by_duration"),
        ({"share.isolation.level": "serializable"}, "read_committed"),
        ({"share.renew.acknowledge.enable": "yes"}, "true or false"),
        ({"errors.deadletterqueue.topic.name": "__letters"}, "does not begin with"),
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
    keys = {"streams.heartbeat.interval.ms": "6000", "streams.num.warmup.replicas": "1"}
    validate_group(keys, broker())
    with pytest.raises(ConfigError, match="at least 1"):
        validate_group({"streams.heartbeat.interval.ms": "0"}, broker())
    described = {each.name: each for each in describe_group(broker("group.share.session.timeout.ms=50000"), keys)}
    assert described["streams.heartbeat.interval.ms"].source is ConfigSource.DYNAMIC_GROUP_CONFIG
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
        ["group.consumer.assignment.interval.ms=15001"],
        ["group.share.session.timeout.ms=60001"],
        ["group.share.heartbeat.interval.ms=4999"],
        ["group.share.assignment.interval.ms=15001"],
        ["group.share.record.lock.duration.ms=60001"],
        ["group.share.delivery.count.limit=2", "group.share.min.delivery.count.limit=3"],
        ["group.share.partition.max.record.locks=4001"],
        ["group.share.max.session.timeout.ms=44999"],
        ["group.share.max.share.sessions=199"],
        ["group.share.max.size=1000", "group.share.max.share.sessions=999"],
        ["group.share.min.session.timeout.ms=5000", "group.share.session.timeout.ms=5000"],
    ],
)
def test_bounds_that_contradict_themselves_keep_a_broker_from_starting(keys: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"group\.(consumer|share)"):
        broker(*keys)


@pytest.mark.parametrize(
    "keys",
    [
        {"share.session.timeout.ms": "60000", "share.heartbeat.interval.ms": "15000"},
        {"share.assignment.interval.ms": "0", "share.record.lock.duration.ms": "60000"},
        {"share.delivery.count.limit": "10", "share.partition.max.record.locks": "100"},
        {"share.auto.offset.reset": "by_duration:P1DT2H", "share.isolation.level": "read_committed"},
        {"errors.deadletterqueue.topic.name": "letters", "errors.deadletterqueue.copy.record.enable": "true"},
    ],
)
def test_what_a_share_group_may_be_given(keys: dict[str, str]) -> None:
    validate_group(keys, broker())


def test_the_interval_of_a_groups_assignments_is_its_own_or_the_brokers_if_that_is_set() -> None:
    unset = GroupOverrides(GroupConfig.from_broker_config(broker()))
    assert unset.assignment_interval_ms("any") is None
    overrides = GroupOverrides(GroupConfig.from_broker_config(broker("group.consumer.assignment.interval.ms=1000")))
    overrides.put("mine", parse_group({"consumer.assignment.interval.ms": "0"}))
    assert (overrides.assignment_interval_ms("mine"), overrides.assignment_interval_ms("any")) == (0, 1_000)


def test_share_groups_have_the_brokers_keys_under_their_own() -> None:
    overrides = GroupOverrides(
        GroupConfig.from_broker_config(
            broker(
                "group.share.delivery.count.limit=7",
                "group.share.heartbeat.interval.ms=6000",
                "group.share.record.lock.duration.ms=20000",
            )
        )
    )
    assert overrides.share_group("any") == ShareGroupConfigs(record_lock_duration_ms=20_000, delivery_count_limit=7)
    own = {
        "share.delivery.count.limit": "3",
        "share.auto.offset.reset": "by_duration:PT1H",
        "share.isolation.level": "read_committed",
        "share.renew.acknowledge.enable": "false",
        "share.partition.max.record.locks": "500",
        "share.assignment.interval.ms": "0",
        "errors.deadletterqueue.topic.name": "letters",
        "errors.deadletterqueue.copy.record.enable": "true",
    }
    overrides.put("mine", parse_group(own))
    assert overrides.share_group("mine") == ShareGroupConfigs(
        record_lock_duration_ms=20_000,
        delivery_count_limit=3,
        max_record_locks=500,
        auto_offset_reset="by_duration:PT1H",
        isolation_level=IsolationLevel.READ_COMMITTED,
        renew_acknowledge=False,
        dead_letter_topic="letters",
        dead_letter_copy=True,
    )
    assert overrides.share_heartbeat_interval_ms("mine") == 6_000
    assert (overrides.share_assignment_interval_ms("mine"), overrides.share_assignment_interval_ms("any")) == (0, 1_000)
    overrides.put("mine", {})
    assert overrides.share_group("mine") == overrides.share_group("any")


def test_values_beyond_bounds_that_the_broker_has_now_are_cut(caplog: pytest.LogCaptureFixture) -> None:
    narrow = broker("group.share.max.delivery.count.limit=6", "group.share.min.record.lock.duration.ms=20000")
    overrides = GroupOverrides(GroupConfig.from_broker_config(narrow))
    overrides.put("group", parse_group({"share.delivery.count.limit": "9", "share.record.lock.duration.ms": "15000"}))
    configs = overrides.share_group("group")
    assert (configs.delivery_count_limit, configs.record_lock_duration_ms) == (6, 20_000)
    assert "Key share.delivery.count.limit of group group is 9, and the broker allows 2 to 6; 6 is in force" in (
        caplog.messages
    )
    overrides.update(GroupConfig.from_broker_config(broker("group.share.delivery.count.limit=4")))
    assert overrides.share_group("other").delivery_count_limit == 4


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("P7D", 604_800_000),
        ("PT1H", 3_600_000),
        ("pt90m", 5_400_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("PT0.0019S", 1),
        ("PT0S", 0),
    ],
)
def test_durations_are_those_of_iso_8601(text: str, ms: int) -> None:
    assert duration_ms(text) == ms
    assert is_reset(f"by_duration:{text}", ("latest",))


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "1H", "P1H", "P1M", "PT1.5H", "-PT1H", "PT1S ", "P" + "9" * 200]
)
def test_other_texts_are_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="not an ISO 8601 duration"):
        duration_ms(text)
    assert not is_reset(f"by_duration:{text}", ("latest",))
