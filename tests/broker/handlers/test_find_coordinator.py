"""FindCoordinator as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.coordinator.share.state import ShareKey
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkapy.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkapy.types import ONE_UUID, uuid_to_string

GROUP, TRANSACTION, SHARE = 0, 1, 2
RESOURCE = DescribeConfigsRequest.Resource(
    resource_type=2, resource_name="__share_group_state", configuration_keys=None
)
OF_THE_TOPIC = 1


def ask(client: Any, version: int, key_type: int, key: str = "k") -> Any:
    if version < 4:
        return client(FindCoordinatorRequest(key=key, key_type=key_type), version)
    return client(FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type), version).coordinators[0]


@pytest.mark.parametrize("version", range(7))
def test_groups_are_coordinated_here(client: Any, broker: Any, version: int) -> None:
    answer = ask(client, version, GROUP)
    endpoint = broker.endpoints[0]
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, endpoint.host, endpoint.port)


@pytest.mark.parametrize("version", range(1, 7))
def test_transactional_ids_are_coordinated_here(client: Any, broker: Any, version: int) -> None:
    answer = ask(client, version, TRANSACTION)
    endpoint = broker.endpoints[0]
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, endpoint.host, endpoint.port)


def test_many_keys_have_an_answer_each(client: Any) -> None:
    response = client(FindCoordinatorRequest(coordinator_keys=["a", "b"], key_type=GROUP), 4)
    assert [(each.key, each.error_code) for each in response.coordinators] == [("a", 0), ("b", 0)]


def test_share_partitions_are_coordinated_here(client: Any, broker: Any, topic_name: str) -> None:
    key = ShareKey("a:group", client.create_topic(topic_name), 0).text
    answer = ask(client, 6, SHARE, key)
    endpoint = broker.endpoints[0]
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, endpoint.host, endpoint.port)
    entries = client(DescribeConfigsRequest(resources=[RESOURCE], include_synonyms=False), 4).results[0].configs
    configs = {each.name: each.value for each in entries if each.config_source == OF_THE_TOPIC}
    assert configs == {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": "1",
        "retention.ms": "-1",
        "segment.bytes": "104857600",
    }


@pytest.mark.parametrize("key", ["group", "group:topic:0", f"{ONE_UUID}:0", f"group:{uuid_to_string(ONE_UUID)}:x"])
def test_a_text_that_names_no_share_partition_is_refused(client: Any, key: str) -> None:
    assert ask(client, 6, SHARE, key).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("version", "key_type"), [(5, SHARE), (6, 9)])
def test_what_is_not_coordinated_here_is_refused(client: Any, version: int, key_type: int) -> None:
    assert ask(client, version, key_type).error_code == ErrorCode.INVALID_REQUEST
