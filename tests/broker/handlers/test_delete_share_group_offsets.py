"""DeleteShareGroupOffsets as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest
from broker.handlers.share_groups import alter_offsets, delete_offsets, describe_offsets, join, leave

from kafkapy.errors import ErrorCode
from kafkapy.types import ResourceType


@pytest.fixture
def topic(group_client: Any, topic_name: str) -> str:
    """A topic of two partitions."""
    group_client.client.create_topic(topic_name, partitions=2)
    return topic_name


def test_offsets_of_a_topic_are_deleted(group_client: Any, group_name: str, topic: str) -> None:
    group_client.coordinate(group_name)
    alter_offsets(group_client, group_name, {topic: {0: 7, 1: 8}})
    answer = delete_offsets(group_client, group_name, topic, "nowhere")
    assert answer.error_code == ErrorCode.NONE
    assert [(each.topic_name, each.error_code) for each in answer.responses] == [
        (topic, ErrorCode.NONE),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert describe_offsets(group_client, group_name).topics == []
    [found] = describe_offsets(group_client, group_name, {topic: [0, 1]}).topics
    assert [each.start_offset for each in found.partitions] == [-1, -1]
    [again] = delete_offsets(group_client, group_name, topic).responses
    assert (again.error_code, again.error_message) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "There is no offset information to delete.",
    )


def test_a_group_with_members_keeps_its_offsets(group_client: Any, group_name: str, topic: str) -> None:
    join(group_client, group_name, topic)
    assert delete_offsets(group_client, group_name, topic).error_code == ErrorCode.NON_EMPTY_GROUP
    assert leave(group_client, group_name) == ErrorCode.NONE
    [deleted] = delete_offsets(group_client, group_name, topic).responses
    assert deleted.error_code == ErrorCode.NONE


def test_groups_that_are_no_share_groups_are_not_found(group_client: Any, group_name: str, topic: str) -> None:
    group_client.coordinate(group_name)
    assert delete_offsets(group_client, group_name, topic).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    group_client.stable(group_name)
    assert delete_offsets(group_client, group_name, topic).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_groups_and_topics_one_may_not_touch(group_client: Any, group_name: str, topic: str, deny: Any) -> None:
    group_client.coordinate(group_name)
    alter_offsets(group_client, group_name, {topic: {0: 7}})
    deny((ResourceType.TOPIC, topic))
    [refused] = delete_offsets(group_client, group_name, topic).responses
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    deny((ResourceType.GROUP, group_name))
    answer = delete_offsets(group_client, group_name, topic)
    assert (answer.error_code, answer.responses) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, [])
    deny()
    [kept] = describe_offsets(group_client, group_name).topics
    assert kept.topic_name == topic


def test_a_cluster_may_have_no_share_groups_yet(
    group_client: Any, group_name: str, groups_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups_broker.context.coordinators.group.share, "_share_version", lambda: 0)
    assert delete_offsets(group_client, group_name, "t").error_code == ErrorCode.UNSUPPORTED_VERSION
