"""The consumer's keys: Kafka 4's defaults, kafka-python's spellings, and durations."""

from __future__ import annotations

import pytest

from kafkapy.config.clients import ClientConfig
from kafkapy.config.config_def import MAX_LONG
from kafkapy.config.consumer import CONSUMER
from kafkapy.config.durations import duration_ms
from kafkapy.errors import ConfigError


def test_defaults_are_kafkas() -> None:
    config = ClientConfig(CONSUMER)
    expected = {
        "group.id": None,
        "auto.offset.reset": "latest",
        "enable.auto.commit": True,
        "auto.commit.interval.ms": 5000,
        "session.timeout.ms": 45000,
        "heartbeat.interval.ms": 3000,
        "max.poll.interval.ms": 300000,
        "max.poll.records": 500,
        "fetch.min.bytes": 1,
        "fetch.max.wait.ms": 500,
        "fetch.max.bytes": 52428800,
        "max.partition.fetch.bytes": 1048576,
        "isolation.level": "read_uncommitted",
        "check.crcs": True,
        "client.rack": "",
        "allow.auto.create.topics": True,
        "exclude.internal.topics": True,
        "group.protocol": "classic",
        "default.api.timeout.ms": 60000,
        "consumer.timeout.ms": MAX_LONG,
    }
    assert {key: config[key] for key in expected} == expected


def test_both_spellings_and_infinity() -> None:
    config = ClientConfig(CONSUMER, {"group.id": "g"}, consumer_timeout_ms=float("inf"), max_poll_records="7")
    assert (config["group.id"], config["consumer.timeout.ms"], config["max.poll.records"]) == ("g", MAX_LONG, 7)


def test_kafka_pythons_other_keywords_are_accepted() -> None:
    from kafka import KafkaConsumer

    refused = []
    for name in sorted(KafkaConsumer.DEFAULT_CONFIG):
        try:
            ClientConfig(CONSUMER, {name: None})
        except ConfigError:
            refused.append(name)
    assert refused == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("auto_offset_reset", "oldest"),
        ("auto_offset_reset", "by_duration"),
        ("auto_offset_reset", "by_duration:1h"),
        ("isolation_level", "serializable"),
        ("max_poll_records", 0),
        ("group_id", ""),
        ("group_protocol", "share"),
        ("fetch_min_bytes", -1),
        ("max_pol_records", 5),
    ],
)
def test_what_is_not_allowed_is_named(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name.replace("_", "[._]")):
        ClientConfig(CONSUMER, {name: value})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT1S", 1000),
        ("PT0.5S", 500),
        ("PT1.0019S", 1001),
        ("PT1H30M", 5_400_000),
        ("P1D", 86_400_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("pt15m", 900_000),
    ],
)
def test_durations_are_iso_8601(text: str, expected: int) -> None:
    assert duration_ms(text) == expected
    assert ClientConfig(CONSUMER, auto_offset_reset=f"by_duration:{text}")["auto.offset.reset"].endswith(text)


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "1H", "-PT1S", "P1Y", "P1M", "PT1S ", "PT1.S", "PT٣S", "PT" + "9" * 200 + "S"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="ISO 8601"):
        duration_ms(text)
