"""OffsetDelete as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.offset_delete import OffsetDeleteRequest
from kafkapy.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkapy.types import ResourceType

Topic = OffsetDeleteRequest.Topic


@pytest.fixture
def committed(group_client: Any, group_name: str, topic_name: str) -> str:
    group_client.client.create_topic(topic_name, partitions=3)
    group_client.coordinate(group_name)
    assert group_client.commit(group_name, topic_name, {0: 5, 2: 7}) == [0, 0]
    return topic_name


def delete(client: Any, group: str, **topics: list[int]) -> Any:
    asked = [
        Topic(name=name, partitions=[Topic.Partition(partition_index=index) for index in partitions])
        for name, partitions in topics.items()
    ]
    return client(OffsetDeleteRequest(group_id=group, topics=asked), 0)


def test_offsets_are_forgotten(group_client: Any, group_name: str, committed: str) -> None:
    answer = delete(group_client, group_name, **{committed: [0, 3], "unknown": [0]})
    assert answer.error_code == 0
    assert [[each.error_code for each in topic.partitions] for topic in answer.topics] == [
        [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    ]
    left = group_client(OffsetFetchRequest(group_id=group_name, topics=None), 7)
    assert [each.partition_index for each in left.topics[0].partitions] == [2]


def test_errors_of_the_whole_request(group_client: Any, group_name: str, committed: str, deny: Any) -> None:
    answer = delete(group_client, "nothing", **{committed: [0]})
    assert (answer.error_code, answer.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    deny((ResourceType.GROUP, group_name))
    assert delete(group_client, group_name, **{committed: [0]}).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_topics_one_may_not_read(group_client: Any, group_name: str, committed: str, deny: Any) -> None:
    deny((ResourceType.TOPIC, committed))
    answer = delete(group_client, group_name, **{committed: [0]})
    assert answer.topics[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
