"""LeaveGroup as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.types import ResourceType


@pytest.mark.parametrize("version", range(6))
def test_every_version_lets_a_member_go(group_client: Any, group_name: str, version: int) -> None:
    joined = group_client.stable(group_name)
    answer = group_client.leave(group_name, joined.member_id, version=version)
    assert answer.error_code == ErrorCode.NONE
    assert [each.error_code for each in answer.members] == ([0] if version >= 3 else [])
    assert group_client.heartbeat(group_name, joined) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
def test_a_stranger_is_told_where_its_version_looks_for_it(group_client: Any, group_name: str, version: int) -> None:
    group_client.stable(group_name)
    answer = group_client.leave(group_name, "nobody", version=version)
    if version < 3:
        assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    else:
        assert (answer.error_code, answer.members[0].error_code) == (0, ErrorCode.UNKNOWN_MEMBER_ID)


@pytest.mark.parametrize("version", [0, 5])
def test_errors_of_the_whole_request(group_client: Any, group_name: str, deny: Any, version: int) -> None:
    joined = group_client.stable(group_name)
    assert group_client.leave("", joined.member_id, version=version).error_code == ErrorCode.INVALID_GROUP_ID
    deny((ResourceType.GROUP, group_name))
    answer = group_client.leave(group_name, joined.member_id, version=version)
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
