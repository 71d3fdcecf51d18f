"""Heartbeat as a client sees it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.heartbeat import HeartbeatRequest
from kafkapy.types import ResourceType


@pytest.mark.parametrize("version", range(5))
def test_every_version_says_that_all_is_well(group_client: Any, group_name: str, version: int) -> None:
    joined = group_client.stable(group_name)
    assert group_client.heartbeat(group_name, joined, version) == ErrorCode.NONE


def test_a_rebalance_is_told(group_client: Any, other_client: Any, group_name: str) -> None:
    joined = group_client.stable(group_name)
    newcomer = threading.Thread(target=other_client.join, args=(group_name,))
    newcomer.start()
    while group_client.heartbeat(group_name, joined) != ErrorCode.REBALANCE_IN_PROGRESS:
        pass
    assert group_client.join(group_name, joined.member_id).generation_id == 2
    newcomer.join()


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "nothing"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 7}, ErrorCode.ILLEGAL_GENERATION),
        ({"group_instance_id": "static"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_what_is_wrong_is_said(group_client: Any, group_name: str, fields: dict[str, Any], error: ErrorCode) -> None:
    joined = group_client.stable(group_name)
    request = HeartbeatRequest(
        **{"group_id": group_name, "generation_id": joined.generation_id, "member_id": joined.member_id, **fields}
    )
    assert group_client(request, 4).error_code == error


def test_the_group_must_be_readable(group_client: Any, group_name: str, deny: Any) -> None:
    joined = group_client.stable(group_name)
    deny((ResourceType.GROUP, group_name))
    assert group_client.heartbeat(group_name, joined) == ErrorCode.GROUP_AUTHORIZATION_FAILED
