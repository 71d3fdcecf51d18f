"""ShareGroupDescribe as a client sees it; and share groups among all groups."""

from __future__ import annotations

from typing import Any

import pytest
from broker.handlers.share_groups import beat, describe, join, leave

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.delete_groups import DeleteGroupsRequest
from kafkapy.protocol.messages.list_groups import ListGroupsRequest
from kafkapy.types import ResourceType

NOT_ASKED = -(2**31)


@pytest.fixture
def topic(group_client: Any, topic_name: str) -> str:
    """A topic of two partitions."""
    group_client.client.create_topic(topic_name, partitions=2)
    return topic_name


def test_a_group_is_described_and_one_that_is_not_there(group_client: Any, group_name: str, topic: str) -> None:
    joined = join(group_client, group_name, topic)
    group, nothing = describe(group_client, group_name, "nothing")
    assert (group.error_code, group.group_id, group.group_state) == (ErrorCode.NONE, group_name, "Stable")
    assert (group.assignor_name, group.authorized_operations) == ("simple", NOT_ASKED)
    assert group.group_epoch == group.assignment_epoch == joined.member_epoch
    [member] = group.members
    assert (member.member_id, member.member_epoch, member.client_id) == ("member", joined.member_epoch, "test")
    assert (member.client_host, member.subscribed_topic_names) == ("/127.0.0.1", [topic])
    assert [(each.topic_name, each.partitions) for each in member.assignment.topic_partitions] == [(topic, [0, 1])]
    assert (nothing.error_code, nothing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group nothing not found.")


def test_groups_of_other_protocols_are_not_found(group_client: Any, group_name: str) -> None:
    group_client.stable(group_name)
    [group] = describe(group_client, group_name)
    assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.error_message == f"Group {group_name} is not a share group."


def test_authorized_operations_come_when_asked_for(group_client: Any, group_name: str, topic: str) -> None:
    join(group_client, group_name, topic)
    [group] = describe(group_client, group_name, operations=True)
    assert group.authorized_operations == sum(1 << bit for bit in (3, 6, 8, 10, 11))


def test_groups_and_topics_one_may_not_describe(group_client: Any, group_name: str, topic: str, deny: Any) -> None:
    join(group_client, group_name, topic)
    deny((ResourceType.TOPIC, topic))
    [group] = describe(group_client, group_name)
    assert (group.error_code, group.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
    deny((ResourceType.GROUP, group_name))
    [group] = describe(group_client, group_name)
    assert (group.error_code, group.members) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, [])


def test_share_groups_are_listed_with_their_type(group_client: Any, group_name: str, topic: str) -> None:
    join(group_client, group_name, topic)

    def listed(**filters: Any) -> dict[str, Any]:
        answer = group_client(ListGroupsRequest(**filters), 5)
        assert answer.error_code == ErrorCode.NONE
        return {group.group_id: group for group in answer.groups}

    group = listed()[group_name]
    assert (group.group_type, group.protocol_type, group.group_state) == ("share", "share", "Stable")
    assert group_name in listed(types_filter=["share"], states_filter=["stable"])
    assert group_name not in listed(types_filter=["consumer", "classic"])
    assert leave(group_client, group_name) == ErrorCode.NONE
    assert listed(types_filter=["Share"], states_filter=["Empty"])[group_name].group_state == "Empty"


def test_a_group_is_deleted_when_it_has_no_members(group_client: Any, group_name: str, topic: str) -> None:
    def delete() -> int:
        [result] = group_client(DeleteGroupsRequest(groups_names=[group_name]), 2).results
        code: int = result.error_code
        return code

    join(group_client, group_name, topic)
    assert delete() == ErrorCode.NON_EMPTY_GROUP
    assert leave(group_client, group_name) == ErrorCode.NONE
    assert delete() == ErrorCode.NONE
    assert delete() == ErrorCode.GROUP_ID_NOT_FOUND
    [group] = describe(group_client, group_name)
    assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    again = beat(group_client, group_name, subscribed_topic_names=[topic])
    assert (again.error_code, again.member_epoch) == (ErrorCode.NONE, 2)


def test_a_cluster_may_have_no_share_groups_yet(
    group_client: Any, group_name: str, groups_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups_broker.context.coordinators.group.share, "_share_version", lambda: 0)
    [group] = describe(group_client, group_name)
    assert group.error_code == ErrorCode.UNSUPPORTED_VERSION
