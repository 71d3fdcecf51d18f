"""Configurations through KafkaAdminClient, against a broker."""

from __future__ import annotations

import pytest

from kafkapy.admin import AlterConfigOp, ConfigFilterType, ConfigResource, ConfigResourceType, KafkaAdminClient
from kafkapy.errors import KafkaError, UnknownTopicOrPartitionError


def configs_of(admin: KafkaAdminClient, kind: str, name: str, **options: object) -> dict[str, dict[str, object]]:
    return admin.describe_configs([ConfigResource(kind, name)], **options)[kind][name]  # type: ignore[arg-type]


def values(configs: dict[str, dict[str, object]]) -> dict[str, object]:
    return {key: config["value"] for key, config in configs.items()}


def test_keys_are_set_added_to_taken_from_and_reset(admin: KafkaAdminClient, topic: str) -> None:
    def alter(configs: dict[str, object]) -> dict[str, dict[str, str]]:
        return admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs)])

    assert alter({"retention.ms": 5, "cleanup.policy": (AlterConfigOp.APPEND, "compact")}) == {"topic": {topic: "OK"}}
    assert values(configs_of(admin, "topic", topic)) == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
    alter({"cleanup.policy": ("subtract", "delete"), "preallocate": True})
    assert values(configs_of(admin, "topic", topic)) == {
        "retention.ms": "5",
        "cleanup.policy": "compact",
        "preallocate": "true",
    }
    alter({"preallocate": ("DELETE", None)})
    assert admin.reset_configs([ConfigResource("topic", topic, ["retention.ms"])]) == {"topic": {topic: "OK"}}
    assert values(configs_of(admin, "topic", topic)) == {"cleanup.policy": "compact"}
    admin.reset_configs([ConfigResource("topic", topic)])
    assert configs_of(admin, "topic", topic) == {}


def test_a_change_that_could_be_made_is_not(admin: KafkaAdminClient, topic: str) -> None:
    wanted = [ConfigResource("topic", topic, {"retention.ms": "7"})]
    assert admin.alter_configs(wanted, validate_only=True) == {"topic": {topic: "OK"}}
    assert configs_of(admin, "topic", topic) == {}


def test_all_keys_are_replaced_where_that_is_asked(admin: KafkaAdminClient, topic: str) -> None:
    admin.alter_configs([ConfigResource("topic", topic, {"retention.ms": "7", "flush.ms": "9"})])
    admin.alter_configs([ConfigResource("topic", topic, {"retention.ms": "8"})], incremental=False)
    assert values(configs_of(admin, "topic", topic)) == {"retention.ms": "8", "flush.ms": "9"}
    admin.reset_configs([ConfigResource("topic", topic, {"flush.ms": None})], incremental=False)
    assert values(configs_of(admin, "topic", topic)) == {"retention.ms": "8"}
    with pytest.raises(ValueError, match="only set"):
        admin.alter_configs([ConfigResource("topic", topic, {"flush.ms": ("delete", None)})], incremental=False)


def test_unknown_keys_are_refused_here_or_by_the_broker(admin: KafkaAdminClient, topic: str) -> None:
    wrong = [ConfigResource("topic", topic, {"retentionms": "7"})]
    with pytest.raises(ValueError, match=f"topic {topic} has no configuration retentionms that can be set"):
        admin.alter_configs(wrong)
    text = admin.alter_configs(wrong, raise_on_unknown=False)["topic"][topic]
    assert text.startswith("InvalidConfigError: ")
    assert "retentionms" in text


def test_filters_synonyms_and_documentation(admin: KafkaAdminClient, topic: str) -> None:
    admin.alter_configs([ConfigResource("topic", topic, {"retention.ms": "7"})])
    found = configs_of(admin, "topic", topic, include_synonyms=True)
    sources = [synonym["source"] for synonym in found["retention.ms"]["synonyms"]]  # type: ignore[attr-defined]
    assert sources == ["DYNAMIC_TOPIC_CONFIG"], "what other units say is left out, as in Kafka"
    assert found["retention.ms"]["config_type"] == "LONG"
    everything = configs_of(admin, "topic", topic, config_filter=ConfigFilterType.ALL, include_documentation=True)
    assert len(everything) > 20
    assert everything["segment.ms"]["documentation"]
    assert "retention.ms" not in configs_of(admin, "topic", topic, config_filter="default")
    static = configs_of(admin, "broker", "1", config_filter="static")
    assert static["log.dirs"]["read_only"] is True
    dynamic = configs_of(admin, "broker", "1", config_filter="dynamic")
    assert "log.cleaner.threads" in dynamic
    assert "log.dirs" not in dynamic
    keys = [ConfigResource("topic", topic, ["segment.ms"])]
    assert list(admin.describe_configs(keys, config_filter="all")["topic"][topic]) == ["segment.ms"]


def test_brokers_their_default_and_their_loggers(admin: KafkaAdminClient) -> None:
    one, every = "log.cleaner.io.max.bytes.per.second", "log.cleaner.backoff.ms"
    assert admin.alter_configs([ConfigResource("broker", 1, {one: "9999"})]) == {"broker": {"1": "OK"}}
    assert admin.alter_configs([ConfigResource("broker", "", {every: "14000"})]) == {"broker": {"": "OK"}}
    assert values(configs_of(admin, "broker", "1")) == {one: "9999.0"}
    assert values(configs_of(admin, "broker", "")) == {every: "14000"}
    admin.reset_configs([ConfigResource("broker", "1"), ConfigResource("broker", "")])
    assert configs_of(admin, "broker", "1") == configs_of(admin, "broker", "") == {}
    loggers = configs_of(admin, "broker_logger", "1", config_filter="all")
    assert "root" in loggers
    logger = next(logger for logger in loggers if logger != "root" and loggers[logger]["value"] != "WARN")
    assert admin.alter_configs([ConfigResource("broker-logger", "1", {logger: "WARN"})]) == {
        "broker_logger": {"1": "OK"}
    }
    assert configs_of(admin, "broker_logger", "1", config_filter="all")[logger]["value"] == "WARN"


def test_groups_have_configurations(admin: KafkaAdminClient) -> None:
    resource = ConfigResource("group", "a-group", {"consumer.session.timeout.ms": "50000"})
    assert admin.alter_configs([resource]) == {"group": {"a-group": "OK"}}
    assert values(configs_of(admin, "group", "a-group")) == {"consumer.session.timeout.ms": "50000"}
    admin.reset_configs([ConfigResource("group", "a-group")])


def test_resources_that_are_not_there(admin: KafkaAdminClient) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="^Topic nothing-here: "):
        configs_of(admin, "topic", "nothing-here")
    with pytest.raises(KafkaError, match="The cluster has no broker 9; it has 1"):
        configs_of(admin, "broker", "9")
    with pytest.raises(ValueError, match="'x' is not a broker id"):
        configs_of(admin, "broker", "x")
    with pytest.raises(ValueError, match="is not a ConfigResourceType: expected one of"):
        ConfigResource("table", "t")
