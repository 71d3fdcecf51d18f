"""The template's policy refuses topics with too many partitions."""

from __future__ import annotations

import pytest
from kafkapy_template import plugin

from kafkapy.config.broker import BrokerConfig
from kafkapy.plugins import PluginManager
from kafkapy.policies import PolicyViolationError, RequestedTopic


def test_a_topic_has_at_most_so_many_partitions() -> None:
    manager = PluginManager()
    manager.register(plugin, "template")
    keys = {"create.topic.policy.class.name": "most_partitions", "template.most.partitions": "3"}
    policy = manager.create_create_topic_policy(BrokerConfig(keys, definition=manager.broker_config_def()))
    assert policy is not None
    policy.validate(RequestedTopic("t", 3, 1, None, {}))
    policy.validate(RequestedTopic("t", None, None, {0: [1], 1: [1]}, {}))
    with pytest.raises(PolicyViolationError, match="at most 3 partitions here, not 4"):
        policy.validate(RequestedTopic("t", 4, 1, None, {}))
