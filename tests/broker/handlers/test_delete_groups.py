"""DeleteGroups as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.delete_groups import DeleteGroupsRequest
from kafkapy.types import ResourceType


def delete(client: Any, version: int, *groups: str) -> dict[str, int]:
    answer = client(DeleteGroupsRequest(groups_names=list(groups)), version)
    return {each.group_id: each.error_code for each in answer.results}


@pytest.mark.parametrize("version", range(4))
def test_every_version_deletes_empty_groups_only(group_client: Any, group_name: str, version: int) -> None:
    joined = group_client.stable(group_name)
    assert delete(group_client, version, group_name, "nothing") == {
        group_name: ErrorCode.NON_EMPTY_GROUP,
        "nothing": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    group_client.leave(group_name, joined.member_id)
    assert delete(group_client, version, group_name, group_name) == {group_name: ErrorCode.NONE}
    assert delete(group_client, version, group_name) == {group_name: ErrorCode.GROUP_ID_NOT_FOUND}


def test_groups_one_may_not_delete(group_client: Any, group_name: str, deny: Any) -> None:
    group_client.coordinate(group_name)
    deny((ResourceType.GROUP, group_name))
    assert delete(group_client, 2, group_name) == {group_name: ErrorCode.GROUP_AUTHORIZATION_FAILED}
