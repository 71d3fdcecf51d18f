"""ListConfigResources as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkapy.protocol.messages.list_config_resources import ListConfigResourcesRequest
from kafkapy.types import ConfigResourceType, ResourceType

TOPIC, BROKER, LOGGER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER
METRICS, GROUP = ConfigResourceType.CLIENT_METRICS, ConfigResourceType.GROUP


def names(client: Any, *types: int) -> set[tuple[int, str]]:
    response = client(ListConfigResourcesRequest(resource_types=list(types)), 1)
    assert response.error_code == ErrorCode.NONE
    found = [(each.resource_type, each.resource_name) for each in response.config_resources]
    assert len(found) == len(set(found))
    return set(found)


def configure_group(client: Any, group: str, operation: int) -> None:
    key = IncrementalAlterConfigsRequest.Resource.Config(
        name="consumer.session.timeout.ms", config_operation=operation, value="46000"
    )
    resource = IncrementalAlterConfigsRequest.Resource(resource_type=GROUP, resource_name=group, configs=[key])
    answer = client(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    assert answer.responses[0].error_code == ErrorCode.NONE


def test_every_type_is_listed_by_name(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    configure_group(client, f"of-{topic_name}", 0)
    assert (TOPIC, topic_name) in names(client, TOPIC)
    assert names(client, BROKER) == {(BROKER, "1")}
    assert names(client, LOGGER) == {(LOGGER, "1")}
    assert names(client, GROUP) == {(GROUP, f"of-{topic_name}")}
    assert names(client, METRICS) == set()
    assert names(client) == names(client, TOPIC, BROKER, LOGGER, GROUP, METRICS, TOPIC)
    configure_group(client, f"of-{topic_name}", 1)
    assert names(client, GROUP) == set()


def test_version_0_asks_for_client_metrics(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    response = client(ListConfigResourcesRequest(), 0)
    assert (response.error_code, response.config_resources) == (ErrorCode.NONE, [])


@pytest.mark.parametrize("kind", [0, 1, 99, -1])
def test_a_type_that_there_is_not(client: Any, kind: int) -> None:
    response = client(ListConfigResourcesRequest(resource_types=[TOPIC, kind]), 1)
    assert (response.error_code, response.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


def test_one_who_may_not_look_is_told_so(group_client: Any, deny: Any) -> None:
    deny((ResourceType.CLUSTER, "kafka-cluster"))
    assert group_client(ListConfigResourcesRequest(), 1).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
