"""DescribeShareGroupOffsets as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest
from broker.handlers.share_groups import alter_offsets, codes, describe_offsets, join

from kafkapy.errors import ErrorCode
from kafkapy.types import ZERO_UUID, ResourceType


@pytest.fixture
def topic(group_client: Any, topic_name: str) -> str:
    """A topic of two partitions, with three records in the first."""
    group_client.client.create_topic(topic_name, partitions=2)
    group_client.client.produce(topic_name, [(1, b"a"), (2, b"b"), (3, b"c")])
    return topic_name


def offsets(topic: Any) -> dict[int, tuple[int, int, int]]:
    return {each.partition_index: (each.start_offset, each.lag, each.error_code) for each in topic.partitions}


@pytest.mark.parametrize("version", range(2))
def test_every_version_describes_offsets(group_client: Any, group_name: str, topic: str, version: int) -> None:
    group_client.coordinate(group_name)
    assert codes(alter_offsets(group_client, group_name, {topic: {0: 1}})) == {topic: {0: ErrorCode.NONE}}
    group = describe_offsets(group_client, group_name, {topic: [0, 1], "nowhere": [0]}, version)
    assert (group.error_code, group.error_message) == (ErrorCode.NONE, None)
    found, nowhere = group.topics
    lag = 2 if version else -1
    assert (found.topic_name, offsets(found)) == (topic, {0: (1, lag, 0), 1: (-1, -1, 0)})
    assert (nowhere.topic_name, nowhere.topic_id, offsets(nowhere)) == ("nowhere", ZERO_UUID, {0: (-1, -1, 0)})


def test_all_topics_are_those_with_a_state(group_client: Any, group_name: str, topic: str) -> None:
    group_client.coordinate(group_name)
    assert describe_offsets(group_client, group_name).topics == []
    join(group_client, group_name, topic)
    [found] = describe_offsets(group_client, group_name).topics
    assert (found.topic_name, offsets(found)) == (topic, {0: (-1, -1, 0), 1: (-1, -1, 0)})


def test_groups_and_topics_one_may_not_describe(group_client: Any, group_name: str, topic: str, deny: Any) -> None:
    group_client.coordinate(group_name)
    alter_offsets(group_client, group_name, {topic: {0: 1}})
    deny((ResourceType.TOPIC, topic))
    [refused] = describe_offsets(group_client, group_name, {topic: [0]}).topics
    assert [each.error_code for each in refused.partitions] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert describe_offsets(group_client, group_name).topics == []
    deny((ResourceType.GROUP, group_name))
    group = describe_offsets(group_client, group_name)
    assert (group.error_code, group.topics) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, [])


def test_a_cluster_may_have_no_share_groups_yet(
    group_client: Any, group_name: str, groups_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups_broker.context.coordinators.group.share, "_share_version", lambda: 0)
    assert describe_offsets(group_client, group_name).error_code == ErrorCode.UNSUPPORTED_VERSION
