"""Topic configuration: what a topic's value is, and where it comes from."""

from __future__ import annotations

import pytest

from kafkapy.config.broker import BROKER_CONFIG_DEF, BrokerConfig
from kafkapy.config.compatibility import TOPIC_REMOVED
from kafkapy.config.topic import (
    BROKER_SYNONYMS,
    TOPIC_CONFIG_DEF,
    LogConfig,
    broker_defaults,
    describe_topic,
    validate_overrides,
)
from kafkapy.errors import ConfigError
from kafkapy.types import ConfigSource, TimestampType


def test_every_key_has_its_field() -> None:
    names = set(LogConfig._fields) - {"overridden"}
    assert names == {key.name.replace(".", "_") for key in TOPIC_CONFIG_DEF}


def test_every_synonym_is_a_broker_key_of_the_same_kind() -> None:
    for name, synonyms in BROKER_SYNONYMS.items():
        for broker_key, factor in synonyms:
            assert broker_key in BROKER_CONFIG_DEF
            if factor == 1:
                assert BROKER_CONFIG_DEF[broker_key].type is TOPIC_CONFIG_DEF[name].type


def test_a_broker_without_settings_gives_kafkas_topic_defaults() -> None:
    assert broker_defaults(BrokerConfig({})) == TOPIC_CONFIG_DEF.defaults()


def test_the_topic_goes_over_the_broker_and_the_broker_over_the_default() -> None:
    broker = BrokerConfig({"log.segment.bytes": "2000", "log.roll.hours": "2", "log.retention.minutes": "3"})
    config = LogConfig.create(broker, {"segment.bytes": "1000", "cleanup.policy": "compact,delete"})
    assert config.segment_bytes == 1000
    assert config.segment_ms == 2 * 3_600_000
    assert config.retention_ms == 180_000
    assert (config.compact, config.delete) == (True, True)
    assert config.max_message_bytes == 1048588
    assert config.overridden == {"segment.bytes", "cleanup.policy"}
    assert config.get("segment.bytes") == 1000


def test_timestamp_bounds_fall_back_to_the_deprecated_key() -> None:
    config = LogConfig.create(None, {"message.timestamp.difference.max.ms": "5", "message.timestamp.after.max.ms": "7"})
    assert (config.timestamp_before_max_ms, config.timestamp_after_max_ms) == (5, 7)
    assert config.timestamp_type is TimestampType.CREATE_TIME


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"segment.byte": "1"}, "not a configuration key; did you mean segment.bytes"),
        ({"segment.bytes": "13"}, "must be at least 14"),
        ({"segment.bytes": None}, "must have a value"),
        ({"cleanup.policy": "shred"}, "must be one of compact, delete"),
        ({"compression.type": "none"}, "must be one of uncompressed"),
        ({"compression.gzip.level": "0"}, "must be 1 to 9 or -1"),
        ({"min.cleanable.dirty.ratio": "1.5"}, "between 0 and 1"),
        ({"retention.ms": "-2"}, "at least -1"),
        ({"leader.replication.throttled.replicas": "0-1"}, "partition:broker"),
        ({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}, "at most max.compaction.lag.ms"),
        ({"remote.storage.enable": "true"}, "remote.log.storage.system.enable"),
    ],
)
def test_bad_topic_configuration_is_refused(overrides: dict[str, str | None], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_overrides(overrides, BrokerConfig({}))
    assert message in str(caught.value)


@pytest.mark.parametrize("replicas", ["*", "", "0:1", "0:1, 2:3"])
def test_throttled_replicas_are_pairs_or_a_star(replicas: str) -> None:
    validate_overrides({"leader.replication.throttled.replicas": replicas})


def test_tiered_topics_keep_less_at_home_than_in_all() -> None:
    broker = BrokerConfig({"remote.log.storage.system.enable": "true"})
    validate_overrides({"remote.storage.enable": "true", "retention.ms": "10", "local.retention.ms": "5"}, broker)
    with pytest.raises(ConfigError, match="must not be above retention.ms"):
        validate_overrides({"remote.storage.enable": "true", "retention.ms": "10", "local.retention.ms": "20"}, broker)
    with pytest.raises(ConfigError, match="compacted"):
        validate_overrides({"remote.storage.enable": "true", "cleanup.policy": "compact"}, broker)


def test_the_storage_backend_is_fixed_at_creation() -> None:
    validate_overrides({"kafkapy.storage.backend": "memory"})
    validate_overrides({"kafkapy.storage.backend": "memory"}, None, {"kafkapy.storage.backend": "memory"})
    with pytest.raises(ConfigError, match="cannot be changed after creation"):
        validate_overrides({"kafkapy.storage.backend": "memory"}, None, {"retention.ms": "1"})


def test_described_values_say_where_they_come_from() -> None:
    broker = BrokerConfig({"log.retention.minutes": "10"}).with_dynamic({"log.cleanup.policy": "compact"})
    entries = {entry.name: entry for entry in describe_topic(broker, {"segment.bytes": "1000"})}
    assert set(entries) == set(TOPIC_CONFIG_DEF.names) - TOPIC_REMOVED
    assert entries["segment.bytes"].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert [(s.name, s.value, s.source) for s in entries["segment.bytes"].synonyms] == [
        ("segment.bytes", "1000", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ("log.segment.bytes", "1073741824", ConfigSource.DEFAULT_CONFIG),
    ]
    assert entries["retention.ms"].value == "600000"
    assert entries["retention.ms"].synonyms == ()
    assert entries["retention.ms"].is_default
    assert entries["cleanup.policy"].value == "compact"
    assert entries["cleanup.policy"].source is ConfigSource.DYNAMIC_BROKER_CONFIG
    assert entries["remote.storage.enable"].is_default
    assert entries["flush.messages"].value == "9223372036854775807"


@pytest.mark.parametrize(
    ("static", "dynamic", "key", "source", "synonyms"),
    [
        ({"log.retention.hours": "5"}, {}, "retention.ms", "DEFAULT_CONFIG", []),
        ({"log.roll.hours": "5"}, {}, "segment.ms", "DEFAULT_CONFIG", []),
        ({"log.flush.scheduler.interval.ms": "5"}, {}, "flush.ms", "DEFAULT_CONFIG", []),
        (
            {"log.retention.ms": "5", "log.retention.hours": "6"},
            {},
            "retention.ms",
            "STATIC_BROKER_CONFIG",
            ["log.retention.ms=5", "log.retention.hours=6", "log.retention.hours=168"],
        ),
        (
            {"log.retention.hours": "6"},
            {"log.retention.ms": "7"},
            "retention.ms",
            "DYNAMIC_BROKER_CONFIG",
            ["log.retention.ms=7", "log.retention.hours=6", "log.retention.hours=168"],
        ),
        ({"log.roll.jitter.ms": "1"}, {}, "segment.jitter.ms", "STATIC_BROKER_CONFIG",
         ["log.roll.jitter.ms=1", "log.roll.jitter.hours=0"]),
    ],
)  # fmt: skip
def test_keys_of_several_units_have_the_sources_that_kafka_tells(
    static: dict[str, str], dynamic: dict[str, str], key: str, source: str, synonyms: list[str]
) -> None:
    (entry,) = describe_topic(BrokerConfig(static).with_dynamic(dynamic), {}, [key])
    assert entry.source.name == source
    assert [f"{each.name}={each.value}" for each in entry.synonyms] == synonyms


def test_keys_that_kafka_4_has_no_more_are_shown_where_they_are_set() -> None:
    shown = {entry.name for entry in describe_topic(BrokerConfig({}), {"message.downconversion.enable": "false"})}
    assert shown & TOPIC_REMOVED == {"message.downconversion.enable"}
    assert len(describe_topic(BrokerConfig({}), {}, list(TOPIC_REMOVED))) == len(TOPIC_REMOVED)


def test_only_the_keys_asked_for_are_described() -> None:
    entries = describe_topic(BrokerConfig({}), {}, ["retention.ms", "no.such.key"])
    assert [entry.name for entry in entries] == ["retention.ms"]


@pytest.mark.parametrize("before", ["3", "7"])
def test_a_bound_that_is_set_goes_over_the_deprecated_key(before: str) -> None:
    """Whether it is the narrower one or the wider one."""
    values = {"message.timestamp.difference.max.ms": "5", "message.timestamp.before.max.ms": before}
    config = LogConfig.create(None, values)
    assert (config.timestamp_before_max_ms, config.timestamp_after_max_ms) == (int(before), 5)
    values = {"message.timestamp.difference.max.ms": "5", "message.timestamp.after.max.ms": before}
    config = LogConfig.create(None, values)
    assert (config.timestamp_before_max_ms, config.timestamp_after_max_ms) == (5, int(before))


@pytest.mark.parametrize("before", ["3", "7"])
def test_a_brokers_bound_that_is_set_goes_over_the_deprecated_key(before: str) -> None:
    difference = {"log.message.timestamp.difference.max.ms": "5"}
    broker = BrokerConfig({**difference, "log.message.timestamp.before.max.ms": before})
    topic = LogConfig.create(broker)
    assert (topic.timestamp_before_max_ms, topic.timestamp_after_max_ms) == (int(before), 5)
    broker = BrokerConfig({**difference, "log.message.timestamp.after.max.ms": before})
    topic = LogConfig.create(broker, {"message.timestamp.before.max.ms": "9"})
    assert (topic.timestamp_before_max_ms, topic.timestamp_after_max_ms) == (9, int(before))
