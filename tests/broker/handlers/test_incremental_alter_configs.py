"""IncrementalAlterConfigs as a client sees it."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kafkapy.broker.thread_counts import THREAD_COUNTS
from kafkapy.config.broker import BROKER_CONFIG_DEF
from kafkapy.config.config_def import UpdateMode
from kafkapy.errors import ErrorCode
from kafkapy.log.cleaner import Cleaner, CleanerSettings
from kafkapy.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkapy.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

TOPIC, BROKER, BROKER_LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
Request = IncrementalAlterConfigsRequest


def alter(
    client: Any, kind: int, name: str, *changes: tuple[str, int, str | None], version: int = 1, **fields: bool
) -> Any:
    configs = [Request.Resource.Config(name=key, config_operation=op, value=value) for key, op, value in changes]
    resource = Request.Resource(resource_type=kind, resource_name=name, configs=configs)
    return client(Request(resources=[resource], **{"validate_only": False} | fields), version).responses[0]


def entry(client: Any, kind: int, name: str, key: str) -> Any:
    resource = DescribeConfigsRequest.Resource(resource_type=kind, resource_name=name, configuration_keys=[key])
    return client(DescribeConfigsRequest(resources=[resource]), 4).results[0].configs[0]


@pytest.mark.parametrize("version", range(2))
def test_every_version_sets_and_deletes_single_keys(client: Any, topic_name: str, version: int) -> None:
    client.create_topic(topic_name, retention_ms="5000")
    result = alter(client, TOPIC, topic_name, ("segment.bytes", SET, "1048576"), version=version)
    assert result.error_code == ErrorCode.NONE, result.error_message
    assert entry(client, TOPIC, topic_name, "segment.bytes").value == "1048576"
    assert entry(client, TOPIC, topic_name, "retention.ms").value == "5000", "what is not named stays"
    alter(client, TOPIC, topic_name, ("retention.ms", DELETE, None), version=version)
    assert entry(client, TOPIC, topic_name, "retention.ms").value == "604800000"


def test_lists_can_be_appended_to_and_subtracted_from(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    alter(client, TOPIC, topic_name, ("cleanup.policy", APPEND, "compact"))
    assert entry(client, TOPIC, topic_name, "cleanup.policy").value == "delete,compact"
    alter(client, TOPIC, topic_name, ("cleanup.policy", SUBTRACT, "delete"))
    assert entry(client, TOPIC, topic_name, "cleanup.policy").value == "compact"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (("no.such.key", SUBTRACT, "1"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        (("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (("no.such.key", SET, "1"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_bad_changes_are_refused_with_a_message(client: Any, topic_name: str, change: Any, error: ErrorCode) -> None:
    client.create_topic(topic_name)
    result = alter(client, TOPIC, topic_name, change)
    assert result.error_code == error
    assert change[0] in result.error_message


def test_a_cleanup_policy_may_be_empty(client: Any, topic_name: str) -> None:
    """Then nothing is ever deleted (KIP-1161)."""
    client.create_topic(topic_name)
    assert alter(client, TOPIC, topic_name, ("cleanup.policy", SUBTRACT, "delete")).error_code == ErrorCode.NONE
    assert entry(client, TOPIC, topic_name, "cleanup.policy").value == ""


def test_what_every_broker_has_for_itself_is_not_set_for_all(client: Any) -> None:
    result = alter(client, BROKER, "", ("listeners", SET, "PLAINTEXT://:1"))
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert "listeners" in result.error_message


def test_a_key_changed_twice_is_refused(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    changes = (("retention.ms", SET, "1"), ("retention.ms", DELETE, None))
    assert alter(client, TOPIC, topic_name, *changes).error_code == ErrorCode.INVALID_REQUEST


def test_a_broker_key_takes_effect_at_once_and_can_be_taken_back(client: Any, broker: Any) -> None:
    assert alter(client, BROKER, "1", ("broker.rack", SET, "a")).error_code == ErrorCode.INVALID_REQUEST
    result = alter(client, BROKER, "1", ("max.connections", SET, "5000"))
    assert result.error_code == ErrorCode.NONE, result.error_message
    found = entry(client, BROKER, "1", "max.connections")
    assert (found.value, found.config_source) == ("5000", 2)
    assert broker.config.get_int("max.connections") == 5000
    alter(client, BROKER, "1", ("max.connections", DELETE, None))
    assert broker.config.get_int("max.connections") == 2**31 - 1


def test_a_cluster_wide_default_is_seen_by_topics(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    result = alter(client, BROKER, "", ("log.retention.ms", SET, "123456"))
    assert result.error_code == ErrorCode.NONE, result.error_message
    try:
        found = entry(client, TOPIC, topic_name, "retention.ms")
        assert (found.value, found.config_source) == ("123456", 3)
        assert entry(client, BROKER, "", "log.retention.ms").value == "123456"
    finally:
        alter(client, BROKER, "", ("log.retention.ms", DELETE, None))
    assert entry(client, TOPIC, topic_name, "retention.ms").value == "604800000"


def test_a_loggers_level_can_be_set_and_taken_back(client: Any) -> None:
    logger = logging.getLogger("kafka.request.logger")
    before = logger.level
    try:
        assert alter(client, BROKER_LOGGER, "1", ("kafka.request.logger", SET, "ERROR")).error_code == ErrorCode.NONE
        assert logger.level == logging.ERROR
        assert entry(client, BROKER_LOGGER, "1", "kafka.request.logger").value == "ERROR"
        alter(client, BROKER_LOGGER, "1", ("kafka.request.logger", DELETE, None))
        assert logger.level == logging.NOTSET
    finally:
        logger.setLevel(before)
    for change in (("no.such.logger", SET, "INFO"), ("root", SET, "LOUD")):
        assert alter(client, BROKER_LOGGER, "1", change).error_code == ErrorCode.INVALID_CONFIG
    assert alter(client, BROKER_LOGGER, "1", ("root", DELETE, None)).error_code == ErrorCode.INVALID_REQUEST


def test_groups_have_keys_of_their_own_over_those_of_the_broker(client: Any, broker: Any) -> None:
    key, broker_key = "consumer.session.timeout.ms", "group.consumer.session.timeout.ms"
    assert (entry(client, GROUP, "g", key).value, entry(client, GROUP, "g", key).config_source) == ("45000", 5)
    changed = alter(client, GROUP, "g", (key, SET, "50000"))
    assert changed.error_code == ErrorCode.NONE, changed.error_message
    assert (entry(client, GROUP, "g", key).value, entry(client, GROUP, "g", key).config_source) == ("50000", 8)
    assert entry(client, GROUP, "other", key).value == "45000"
    assert entry(client, BROKER, "1", broker_key).value == "45000"
    assert broker.context.coordinators.group.overrides.session_timeout_ms("g") == 50_000
    alter(client, GROUP, "g", (key, DELETE, None))
    assert entry(client, GROUP, "g", key).value == "45000"
    assert broker.context.coordinators.group.overrides.session_timeout_ms("g") == 45_000


@pytest.mark.parametrize(
    ("name", "change", "error"),
    [
        ("g", ("consumer.session.timeout.ms", SET, "60001"), ErrorCode.INVALID_CONFIG),
        ("g", ("consumer.session.timeout.ms", SET, "44999"), ErrorCode.INVALID_CONFIG),
        ("g", ("consumer.heartbeat.interval.ms", SET, "4999"), ErrorCode.INVALID_CONFIG),
        ("g", ("consumer.heartbeat.interval.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        ("g", ("session.timeout.ms", SET, "50000"), ErrorCode.INVALID_CONFIG),
        ("g", ("consumer.session.timeout.ms", APPEND, "50000"), ErrorCode.INVALID_CONFIG),
        ("", ("consumer.session.timeout.ms", SET, "50000"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_keys_of_groups_that_are_not_allowed(
    client: Any, name: str, change: tuple[str, int, str], error: ErrorCode
) -> None:
    assert alter(client, GROUP, name, change).error_code == error


@pytest.mark.parametrize("kind", [TOPIC, GROUP])
def test_concurrent_changes_of_one_resource_are_all_kept(client: Any, connect: Any, topic_name: str, kind: int) -> None:
    if kind == TOPIC:
        client.create_topic(topic_name)
        changes = {"retention.ms": "100001", "segment.ms": "100002", "max.message.bytes": "100003"}
    else:
        changes = {"consumer.session.timeout.ms": "46000", "consumer.heartbeat.interval.ms": "6000"}
    barrier = threading.Barrier(len(changes))
    connections = {key: connect() for key in changes}

    def change(item: tuple[str, str]) -> Any:
        barrier.wait()
        return alter(connections[item[0]], kind, topic_name, (item[0], SET, item[1])).error_code

    with ThreadPoolExecutor(len(changes)) as pool:
        for _ in range(10):
            for key in changes:
                alter(client, kind, topic_name, (key, DELETE, None))
            assert list(pool.map(change, changes.items())) == [ErrorCode.NONE] * len(changes)
            assert {key: entry(client, kind, topic_name, key).value for key in changes} == changes


@pytest.mark.parametrize("key", THREAD_COUNTS)
def test_thread_counts_change_at_most_by_half_or_to_double(client: Any, broker: Any, key: str) -> None:
    current = broker.config.get_int(key)
    for wanted in (2 * current + 1, 1_000_000, *([current // 2 - 1] if current >= 4 else [])):
        refused = alter(client, BROKER, "", (key, SET, str(wanted)))
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert str(current) in refused.error_message
    for wanted in (max(current // 2, 1), 2 * current):
        assert alter(client, BROKER, "", (key, SET, str(wanted)), validate_only=True).error_code == ErrorCode.NONE
    try:
        assert alter(client, BROKER, "", (key, SET, str(2 * current))).error_code == ErrorCode.NONE
        assert alter(client, BROKER, "", (key, SET, str(4 * current))).error_code == ErrorCode.NONE, "in steps"
        assert alter(client, BROKER, "", (key, SET, str(2 * current))).error_code == ErrorCode.NONE
    finally:
        assert alter(client, BROKER, "", (key, DELETE, None)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("key", THREAD_COUNTS)
@pytest.mark.parametrize("wanted", ["0", "-1"])
def test_a_thread_count_is_at_least_one(client: Any, key: str, wanted: str) -> None:
    refused = alter(client, BROKER, "", (key, SET, wanted))
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert key in refused.error_message


@pytest.mark.parametrize("value", ["-1", "0", "1", "2147483647", "9223372036854775807", "1.5", "NaN", "-Infinity"])
def test_the_broker_can_use_and_describe_whatever_a_dynamic_key_accepts(
    client: Any, broker: Any, caplog: pytest.LogCaptureFixture, value: str
) -> None:
    """One odd value for every dynamic key that takes it; thread counts have tests of their own."""
    keys = [key.name for key in BROKER_CONFIG_DEF if key.update_mode is UpdateMode.CLUSTER_WIDE]
    accepted = []
    try:
        for key in sorted({*keys} - {*THREAD_COUNTS, "log.cleaner.threads"}):
            answer = alter(client, BROKER, "", (key, SET, value))
            assert answer.error_code in (ErrorCode.NONE, ErrorCode.INVALID_REQUEST), (key, answer.error_message)
            if answer.error_code == ErrorCode.NONE:
                accepted.append(key)
        for name in ("1", ""):
            everything = DescribeConfigsRequest.Resource(resource_type=BROKER, resource_name=name)
            described = client(DescribeConfigsRequest(resources=[everything]), 4).results[0]
            assert described.error_code == ErrorCode.NONE, described.error_message
            assert {each.name for each in described.configs} >= {*accepted}
        settings = CleanerSettings.of(broker.config)
        Cleaner(settings.memory, settings.load_factor)
    finally:
        assert alter(client, BROKER, "", *((key, DELETE, None) for key in accepted)).error_code == ErrorCode.NONE
    assert accepted
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("name", ["1", ""])
@pytest.mark.parametrize("validate_only", [False, True])
def test_cleaner_threads_change_in_steps_only(client: Any, name: str, validate_only: bool) -> None:
    """Of this broker, and of all brokers (""); what is refused is not stored."""
    result = alter(client, BROKER, name, ("log.cleaner.threads", SET, "7"), validate_only=validate_only)
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert result.error_message == ("Log cleaner threads cannot be increased to more than double the current value 1")
    assert entry(client, BROKER, "1", "log.cleaner.threads").value == "1"
    result = alter(client, BROKER, name, ("log.cleaner.threads", SET, "2"), validate_only=True)
    assert result.error_code == ErrorCode.NONE, result.error_message
