"""ConsumerGroupDescribe as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafkapy.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkapy.types import ResourceType

NOT_ASKED = -(2**31)


@pytest.fixture
def topic(group_client: Any, topic_name: str) -> str:
    """A topic of two partitions."""
    group_client.client.create_topic(topic_name, partitions=2)
    return topic_name


def join(client: Any, group: str, topic: str) -> None:
    client.coordinate(group)
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="member",
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    assert client(request, 1).error_code == ErrorCode.NONE


def describe(client: Any, *groups: str, version: int = 1, operations: bool = False) -> Any:
    request = ConsumerGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=operations)
    return client(request, version).groups


@pytest.mark.parametrize("version", range(2))
def test_every_version_describes_a_group_and_one_that_is_not_there(
    group_client: Any, group_name: str, topic: str, version: int
) -> None:
    join(group_client, group_name, topic)
    group, nothing = describe(group_client, group_name, "nothing", version=version)
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "uniform")
    assert (group.group_epoch, group.assignment_epoch, group.authorized_operations) == (1, 1, NOT_ASKED)
    (member,) = group.members
    assert (member.member_id, member.member_epoch, member.client_id) == ("member", 1, "test")
    assert member.client_host == "/127.0.0.1"
    assert member.subscribed_topic_names == [topic]
    assert [(each.topic_name, each.partitions) for each in member.assignment.topic_partitions] == [(topic, [0, 1])]
    assert member.target_assignment == member.assignment
    assert member.member_type == (1 if version >= 1 else -1)
    assert (nothing.error_code, nothing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group nothing not found.")


def test_classic_groups_are_not_found(group_client: Any, group_name: str) -> None:
    group_client.stable(group_name)
    (group,) = describe(group_client, group_name)
    assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.error_message == f"Group {group_name} is not a consumer group."


def test_authorized_operations_come_when_asked_for(group_client: Any, group_name: str, topic: str) -> None:
    join(group_client, group_name, topic)
    (group,) = describe(group_client, group_name, operations=True)
    assert group.authorized_operations == sum(1 << bit for bit in (3, 6, 8, 10, 11))


def test_groups_and_topics_one_may_not_describe(group_client: Any, group_name: str, topic: str, deny: Any) -> None:
    join(group_client, group_name, topic)
    deny((ResourceType.TOPIC, topic))
    (group,) = describe(group_client, group_name)
    assert (group.error_code, group.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
    deny((ResourceType.GROUP, group_name))
    (group,) = describe(group_client, group_name)
    assert (group.error_code, group.members) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, [])
