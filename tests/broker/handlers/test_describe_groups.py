"""DescribeGroups as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.describe_groups import DescribeGroupsRequest
from kafkapy.types import ResourceType

NOT_ASKED = -(2**31)


@pytest.mark.parametrize("version", range(7))
def test_every_version_describes_a_group_and_one_that_is_not_there(
    group_client: Any, group_name: str, version: int
) -> None:
    joined = group_client.stable(group_name, group_instance_id="static")
    answer = group_client(DescribeGroupsRequest(groups=[group_name, "nothing"]), version)
    group, nothing = answer.groups
    assert (group.error_code, group.group_id, group.group_state) == (0, group_name, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "test", "/127.0.0.1")
    assert (member.member_metadata[:2], member.member_assignment) == (b"\0\0", b"assigned")
    assert member.group_instance_id == ("static" if version >= 4 else None)
    assert group.authorized_operations == NOT_ASKED
    assert (nothing.group_state, nothing.members) == ("Dead", [])
    assert nothing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)


def test_authorized_operations_come_when_asked_for(group_client: Any, group_name: str) -> None:
    group_client.stable(group_name)
    request = DescribeGroupsRequest(groups=[group_name], include_authorized_operations=True)
    operations = group_client(request, 5).groups[0].authorized_operations
    assert operations == sum(1 << bit for bit in (3, 6, 8, 10, 11))


@pytest.mark.parametrize("version", [0, 6])
def test_groups_one_may_not_describe(group_client: Any, group_name: str, deny: Any, version: int) -> None:
    group_client.stable(group_name)
    deny((ResourceType.GROUP, group_name))
    (group,) = group_client(DescribeGroupsRequest(groups=[group_name]), version).groups
    assert (group.error_code, group.members) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, [])
