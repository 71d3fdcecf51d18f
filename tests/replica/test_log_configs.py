"""A topic's settings as its logs have them, also when the store holds some that this broker does not take."""

from __future__ import annotations

import logging

import pytest

from kafkapy.config.broker import BrokerConfig
from kafkapy.replica.log_configs import effective_log_config

CONFIG = BrokerConfig({"log.dirs": "/x", "log.retention.ms": "5000", "message.max.bytes": "6000"})


def test_a_topics_settings_go_before_the_brokers(caplog: pytest.LogCaptureFixture) -> None:
    config = effective_log_config("t", {"retention.ms": "7000"}, CONFIG)
    assert (config.retention_ms, config.max_message_bytes) == (7000, 6000)
    assert effective_log_config("t", {}, CONFIG).retention_ms == 5000
    assert caplog.records == []


def test_a_setting_that_is_not_taken_is_left_out_and_told(caplog: pytest.LogCaptureFixture) -> None:
    settings = {"retention.ms": "soon", "max.message.bytes": "777", "no.such.key": "1"}
    config = effective_log_config("t", settings, CONFIG)
    assert (config.retention_ms, config.max_message_bytes) == (5000, 777)
    told = [(each.name, each.levelno, each.getMessage()) for each in caplog.records]
    assert len(told) == 2
    for (name, level, message), key in zip(told, ("retention.ms", "no.such.key"), strict=True):
        assert (name, level) == ("kafka.server.TopicConfigHandler", logging.ERROR)
        assert message.startswith("Topic t has an invalid configuration value, which the broker ignores: ")
        assert key in message
