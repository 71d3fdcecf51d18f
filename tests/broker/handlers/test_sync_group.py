"""SyncGroup as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.types import ResourceType


@pytest.mark.parametrize("version", range(6))
def test_every_version_hands_out_the_assignment(group_client: Any, group_name: str, version: int) -> None:
    group_client.coordinate(group_name)
    joined = group_client.join(group_name)
    answer = group_client.sync(group_name, joined, version)
    assert (answer.error_code, answer.assignment) == (0, b"assigned")
    assert (answer.protocol_type, answer.protocol_name) == (("consumer", "range") if version >= 5 else (None, None))
    again = group_client.sync(group_name, joined, version, assignments=[])
    assert again.assignment == b"assigned"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 7}, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol_name": None}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_what_is_wrong_is_said(group_client: Any, group_name: str, fields: dict[str, Any], error: ErrorCode) -> None:
    group_client.coordinate(group_name)
    joined = group_client.join(group_name)
    answer = group_client.sync(group_name, joined, **fields)
    assert (answer.error_code, answer.assignment) == (error, b"")


def test_the_group_must_be_readable(group_client: Any, group_name: str, deny: Any) -> None:
    joined = group_client.stable(group_name)
    deny((ResourceType.GROUP, group_name))
    assert group_client.sync(group_name, joined).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
