"""AlterShareGroupOffsets as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest
from broker.handlers.share_groups import alter_offsets, codes, describe, describe_offsets, join, leave

from kafkapy.errors import ErrorCode
from kafkapy.types import ZERO_UUID, ResourceType


@pytest.fixture
def topic(group_client: Any, topic_name: str) -> str:
    """A topic of two partitions."""
    group_client.client.create_topic(topic_name, partitions=2)
    return topic_name


def starts(client: Any, group: str, topic: str) -> list[int]:
    [found] = describe_offsets(client, group, {topic: [0, 1]}).topics
    return [each.start_offset for each in found.partitions]


def test_offsets_of_a_new_group_and_of_one_without_members(group_client: Any, group_name: str, topic: str) -> None:
    group_client.coordinate(group_name)
    answer = alter_offsets(group_client, group_name, {topic: {0: 7, 9: 1}, "nowhere": {0: 1}})
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.error_code == ErrorCode.NONE
    assert codes(answer) == {topic: {0: ErrorCode.NONE, 9: unknown}, "nowhere": {0: unknown}}
    assert {each.topic_name: each.topic_id == ZERO_UUID for each in answer.responses} == {topic: False, "nowhere": True}
    assert starts(group_client, group_name, topic) == [7, -1]
    [group] = describe(group_client, group_name)
    assert (group.error_code, group.group_state) == (ErrorCode.NONE, "Empty")
    join(group_client, group_name, topic)
    assert alter_offsets(group_client, group_name, {topic: {0: 8}}).error_code == ErrorCode.NON_EMPTY_GROUP
    assert leave(group_client, group_name) == ErrorCode.NONE
    assert codes(alter_offsets(group_client, group_name, {topic: {0: 3, 1: 4}})) == {topic: {0: 0, 1: 0}}
    assert starts(group_client, group_name, topic) == [3, 4]


def test_groups_of_other_protocols_are_not_found(group_client: Any, group_name: str, topic: str) -> None:
    group_client.stable(group_name)
    assert alter_offsets(group_client, group_name, {topic: {0: 8}}).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert alter_offsets(group_client, "", {topic: {0: 8}}).error_code == ErrorCode.INVALID_GROUP_ID


def test_groups_and_topics_one_may_not_read(group_client: Any, group_name: str, topic: str, deny: Any) -> None:
    group_client.coordinate(group_name)
    deny((ResourceType.TOPIC, topic))
    answer = alter_offsets(group_client, group_name, {topic: {0: 7}})
    assert codes(answer) == {topic: {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}}
    deny((ResourceType.GROUP, group_name))
    answer = alter_offsets(group_client, group_name, {topic: {0: 7}})
    assert (answer.error_code, answer.responses) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, [])
    deny()
    assert starts(group_client, group_name, topic) == [-1, -1]


def test_a_cluster_may_have_no_share_groups_yet(
    group_client: Any, group_name: str, groups_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups_broker.context.coordinators.group.share, "_share_version", lambda: 0)
    assert alter_offsets(group_client, group_name, {"t": {0: 1}}).error_code == ErrorCode.UNSUPPORTED_VERSION
