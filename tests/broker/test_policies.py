"""Policies of a plugin refuse topics and changes of configurations in a running broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.conftest import Client, config
from broker.dynamic_changes import alter as alter_broker

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.plugins import PluginManager, hookimpl
from kafkapy.policies import AlteredConfigs, PolicyViolationError, RequestedTopic
from kafkapy.protocol.messages.alter_configs import AlterConfigsRequest
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

SET, DELETE, APPEND = 0, 1, 2
TOPIC, GROUP, METRICS = 2, 32, 16


class Policies:
    """A plugin whose policies keep what they were asked, and refuse names that begin with "no"."""

    def __init__(self) -> None:
        self.topics: list[RequestedTopic] = []
        self.changes: list[AlteredConfigs] = []
        self.closed = 0

    @hookimpl
    def register_create_topic_policies(self):
        return {"names": lambda config: _Topics(self)}

    @hookimpl
    def register_alter_config_policies(self):
        return {"names": lambda config: _Changes(self)}


class _Topics:
    def __init__(self, plugin: Policies) -> None:
        self.plugin = plugin

    def validate(self, topic: RequestedTopic) -> None:
        self.plugin.topics.append(topic)
        if topic.name.startswith("no"):
            raise PolicyViolationError(f"{topic.name} is not wanted.")
        if topic.name.startswith("broken"):
            raise ZeroDivisionError

    def close(self) -> None:
        self.plugin.closed += 1


class _Changes:
    def __init__(self, plugin: Policies) -> None:
        self.plugin = plugin

    def validate(self, change: AlteredConfigs) -> None:
        self.plugin.changes.append(change)
        if "7" in change.configs.values():
            raise PolicyViolationError("Seven is not wanted.")

    def close(self) -> None:
        self.plugin.closed += 1


@pytest.fixture
def plugin() -> Policies:
    return Policies()


@pytest.fixture
def server(tmp_path: Path, plugin: Policies) -> Iterator[KafkaServer]:
    plugins = PluginManager.load()
    plugins.register(plugin, "policies")
    keys = {"create.topic.policy.class.name": "names", "alter.config.policy.class.name": "names"}
    with KafkaServer(config(tmp_path, **keys), plugins) as made:
        yield made
    assert plugin.closed == 2


@pytest.fixture
def client(server: KafkaServer, connect: Any) -> Client:
    made: Client = connect(server)
    return made


def create(client: Client, name: str, validate_only: bool = False, **fields: Any) -> Any:
    topic = CreateTopicsRequest.Topic(
        name=name, **{"num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []} | fields
    )
    return client(CreateTopicsRequest(topics=[topic], validate_only=validate_only), 7).topics[0]


def alter(client: Client, kind: int, name: str, *changes: tuple[str, int, str | None], check: bool = False) -> Any:
    Resource = IncrementalAlterConfigsRequest.Resource
    configs = [Resource.Config(name=key, config_operation=what, value=value) for key, what, value in changes]
    resource = Resource(resource_type=kind, resource_name=name, configs=configs)
    return client(IncrementalAlterConfigsRequest(resources=[resource], validate_only=check), 1).responses[0]


def test_a_policy_sees_and_refuses_topics(client: Client, plugin: Policies) -> None:
    for validate_only in (True, False):
        refused = create(client, "no", validate_only)
        assert (refused.error_code, refused.error_message) == (ErrorCode.POLICY_VIOLATION, "no is not wanted.")
    assert create(client, "broken").error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    Topic = CreateTopicsRequest.Topic
    assert create(client, "yes", configs=[Topic.Config(name="retention.ms", value="5")]).error_code == ErrorCode.NONE
    given = [Topic.Assignment(partition_index=0, broker_ids=[1])]
    made = create(client, "given", num_partitions=-1, replication_factor=-1, assignments=given)
    assert made.error_code == ErrorCode.NONE
    assert plugin.topics[-2:] == [
        RequestedTopic("yes", 2, 1, None, {"retention.ms": "5"}),
        RequestedTopic("given", None, None, {0: (1,)}, {}),
    ]
    asked = len(plugin.topics)
    assert create(client, "yes").error_code == ErrorCode.TOPIC_ALREADY_EXISTS, "the broker's checks come first"
    assert len(plugin.topics) == asked


def test_a_policy_sees_and_refuses_changes(client: Client, plugin: Policies) -> None:
    create(client, "t")
    for check in (True, False):
        refused = alter(client, TOPIC, "t", ("retention.ms", SET, "7"), ("segment.ms", SET, "8"), check=check)
        assert (refused.error_code, refused.error_message) == (ErrorCode.POLICY_VIOLATION, "Seven is not wanted.")
    changes = (("retention.ms", SET, "9"), ("cleanup.policy", APPEND, "compact"))
    assert alter(client, TOPIC, "t", *changes).error_code == ErrorCode.NONE
    assert plugin.changes[-1] == AlteredConfigs(TOPIC, "t", {"retention.ms": "9", "cleanup.policy": "delete,compact"})
    alter(client, TOPIC, "t", ("retention.ms", DELETE, None), ("cleanup.policy", SET, "delete,compact"))
    assert plugin.changes[-1] == AlteredConfigs(TOPIC, "t", {"retention.ms": None}), "an equal value is no change"
    asked = len(plugin.changes)
    assert alter(client, TOPIC, "t", ("retention.ms", SET, "x")).error_code == ErrorCode.INVALID_CONFIG
    assert len(plugin.changes) == asked, "the broker's checks come first"


def test_a_policy_sees_every_kind_of_resource(client: Client, plugin: Policies) -> None:
    assert alter(client, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")).error_code == ErrorCode.NONE
    assert alter(client, METRICS, "m", ("interval.ms", SET, "1000")).error_code == ErrorCode.NONE
    assert alter_broker(client, {"log.retention.ms": "7"}).error_code == ErrorCode.POLICY_VIOLATION
    assert alter_broker(client, {"log.retention.ms": "8"}, "").error_code == ErrorCode.NONE
    Resource = AlterConfigsRequest.Resource
    resource = Resource(resource_type=METRICS, resource_name="m", configs=[Resource.Config(name="metrics", value="7")])
    answer = client(AlterConfigsRequest(resources=[resource]), 2).responses[0]
    assert answer.error_code == ErrorCode.POLICY_VIOLATION
    assert [(each.resource_type, each.resource_name) for each in plugin.changes] == [
        (GROUP, "g"), (METRICS, "m"), (4, "1"), (4, ""), (METRICS, "m")
    ]  # fmt: skip
