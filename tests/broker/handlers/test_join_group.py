"""JoinGroup as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.join_group import JoinGroupRequest
from kafkapy.types import ResourceType


@pytest.mark.parametrize("version", range(10))
def test_every_version_forms_a_generation(group_client: Any, group_name: str, version: int) -> None:
    group_client.coordinate(group_name)
    joined = group_client.join(group_name, version=version)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.leader == joined.member_id and joined.member_id.startswith("test-")
    assert [(each.member_id, each.metadata[:2]) for each in joined.members] == [(joined.member_id, b"\0\0")]
    assert joined.protocol_type == ("consumer" if version >= 7 else None)


@pytest.mark.parametrize("version", [4, 9])
def test_a_new_member_is_given_an_id(group_client: Any, group_name: str, version: int) -> None:
    group_client.coordinate(group_name)
    request = JoinGroupRequest(
        group_id=group_name,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequest.Protocol(name="range", metadata=b"")],
    )
    answer = group_client(request, version)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("test-")
    assert answer.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", [0, 5, 9])
@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_what_is_wrong_is_said(
    group_client: Any, group_name: str, fields: dict[str, Any], error: ErrorCode, version: int
) -> None:
    group_client.coordinate(group_name)
    answer = group_client.join(group_name, version=version, **fields)
    assert (answer.error_code, answer.generation_id, answer.members) == (error, -1, [])


@pytest.mark.parametrize("version", [0, 9])
def test_the_group_must_be_readable(group_client: Any, group_name: str, deny: Any, version: int) -> None:
    group_client.coordinate(group_name)
    deny((ResourceType.GROUP, group_name))
    assert group_client.join(group_name, version=version).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
