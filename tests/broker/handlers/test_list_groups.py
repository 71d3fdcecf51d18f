"""ListGroups as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.broker.context import CLUSTER_NAME
from kafkapy.protocol.messages.list_groups import ListGroupsRequest
from kafkapy.types import ResourceType


def listed(client: Any, version: int, **filters: Any) -> dict[str, Any]:
    answer = client(ListGroupsRequest(**filters), version)
    assert answer.error_code == 0
    return {group.group_id: group for group in answer.groups}


@pytest.mark.parametrize("version", range(6))
def test_every_version_lists_the_groups(group_client: Any, group_name: str, version: int) -> None:
    group_client.stable(group_name)
    group = listed(group_client, version)[group_name]
    assert group.protocol_type == "consumer"
    assert group.group_state == ("Stable" if version >= 4 else "")
    assert group.group_type == ("classic" if version >= 5 else "")


def test_groups_are_filtered_by_state_and_type(group_client: Any, group_name: str) -> None:
    group_client.stable(group_name)
    assert group_name in listed(group_client, 5, states_filter=["stable", "Empty"], types_filter=["CLASSIC"])
    assert group_name not in listed(group_client, 5, states_filter=["Empty"])
    assert group_name not in listed(group_client, 5, types_filter=["consumer"])


def test_groups_one_may_not_describe_are_left_out(group_client: Any, group_name: str, deny: Any) -> None:
    group_client.stable(group_name)
    deny((ResourceType.GROUP, group_name))
    assert group_name in listed(group_client, 5)
    deny((ResourceType.GROUP, group_name), (ResourceType.CLUSTER, CLUSTER_NAME))
    assert group_name not in listed(group_client, 5)
