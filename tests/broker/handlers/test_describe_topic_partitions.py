"""DescribeTopicPartitions as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest

Request = DescribeTopicPartitionsRequest


@pytest.fixture
def topics(client: Any, topic_name: str) -> list[str]:
    """Two topics of three partitions."""
    names = [f"{topic_name}-a", f"{topic_name}-b"]
    wanted = [
        CreateTopicsRequest.Topic(name=name, num_partitions=3, replication_factor=1, assignments=[], configs=[])
        for name in names
    ]
    assert {each.error_code for each in client(CreateTopicsRequest(topics=wanted), 7).topics} == {ErrorCode.NONE}
    return names


def request(names: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None) -> Request:
    return Request(
        topics=[Request.Topic(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Request.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


def test_topics_come_in_order_with_their_partitions(client: Any, topics: list[str]) -> None:
    response = client(request(topics[::-1]), 0)
    assert [topic.name for topic in response.topics] == topics
    assert response.next_cursor is None
    for topic in response.topics:
        assert [each.partition_index for each in topic.partitions] == [0, 1, 2]
        assert {(each.leader_id, tuple(each.isr_nodes)) for each in topic.partitions} == {(1, (1,))}


@pytest.mark.parametrize("limit", range(1, 8))
def test_pages_hold_every_partition_once(client: Any, topics: list[str], limit: int) -> None:
    seen: list[tuple[str, int]] = []
    cursor: tuple[str, int] | None = None
    for _ in range(20):
        response = client(request(topics, limit, cursor), 0)
        page = [(topic.name, each.partition_index) for topic in response.topics for each in topic.partitions]
        assert len(page) <= limit
        seen += page
        if response.next_cursor is None:
            break
        cursor = (response.next_cursor.topic_name, response.next_cursor.partition_index)
    assert seen == [(name, index) for name in topics for index in range(3)]


def test_no_topics_mean_all(client: Any, topics: list[str]) -> None:
    assert {topic.name for topic in client(request([]), 0).topics} >= set(topics)


def test_an_unknown_topic_has_its_error(client: Any, topic_name: str) -> None:
    (topic,) = client(request([topic_name]), 0).topics
    assert (topic.name, topic.error_code) == (topic_name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_cursor_outside_of_the_list_is_refused(client: Any, topics: list[str]) -> None:
    response = client(request(topics[:1], cursor=(topics[1], 0)), 0)
    assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_REQUEST]
    response = client(request(topics[:1], cursor=(topics[0], -1)), 0)
    assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_REQUEST]


def test_what_may_be_done_is_said_of_missing_topics_too(client: Any, topics: list[str]) -> None:
    there, missing = client(request([topics[0], topics[0] + "-missing"]), 0).topics
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert missing.topic_authorized_operations == there.topic_authorized_operations
