"""OffsetFetch as a client sees it."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkapy.types import ResourceType

Asked = OffsetFetchRequest.Group.Topic


@pytest.fixture
def committed(group_client: Any, group_name: str, topic_name: str) -> str:
    """A topic with offsets 5 and 7 of partitions 0 and 2."""
    group_client.client.create_topic(topic_name, partitions=3)
    group_client.coordinate(group_name)
    assert group_client.commit(group_name, topic_name, {0: 5, 2: 7}, 8) == [0, 0]
    return topic_name


def fetch(client: Any, group: str, topic: str, partitions: list[int] | None, version: int, **named: Any) -> Any:
    if version < 8:
        topics = None if partitions is None else [OffsetFetchRequest.Topic(name=topic, partition_indexes=partitions)]
        return client(OffsetFetchRequest(group_id=group, topics=topics), version)
    asked = None if partitions is None else [Asked(**(named or {"name": topic}), partition_indexes=partitions)]
    return client(OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id=group, topics=asked)]), version).groups[
        0
    ]


def found(answer: Any) -> list[tuple[int, int, str, int]]:
    return [
        (each.partition_index, each.committed_offset, each.metadata, each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    ]


@pytest.mark.parametrize("version", range(11))
def test_every_version_finds_what_was_committed(
    group_client: Any, groups_broker: Any, group_name: str, committed: str, version: int
) -> None:
    topic_id = groups_broker.context.metadata_cache.topic_id(committed)
    named = {"topic_id": topic_id} if version >= 10 else {}
    answer = fetch(group_client, group_name, committed, [0, 1, 2], version, **named)
    assert answer.error_code == 0
    assert found(answer) == [(0, 5, "note", 0), (1, -1, "", 0), (2, 7, "note", 0)]
    if version >= 2:
        everything = fetch(group_client, group_name, committed, None, version)
        assert found(everything) == [(0, 5, "note", 0), (2, 7, "note", 0)]
        (topic,) = everything.topics
        assert (topic.topic_id == topic_id) if version >= 10 else (topic.name == committed)


def test_many_groups_in_one_request(group_client: Any, group_name: str, committed: str) -> None:
    groups = [
        OffsetFetchRequest.Group(group_id=name, topics=[Asked(name=committed, partition_indexes=[0])])
        for name in (group_name, "unknown")
    ]
    answer = group_client(OffsetFetchRequest(groups=groups), 8)
    assert [(each.group_id, found(each)[0][1]) for each in answer.groups] == [(group_name, 5), ("unknown", -1)]


def test_an_unknown_topic_id_is_said(group_client: Any, group_name: str) -> None:
    group_client.coordinate(group_name)
    answer = fetch(group_client, group_name, "", [0], 10, topic_id=uuid4())
    assert found(answer) == [(0, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)]


@pytest.mark.parametrize("version", [1, 7, 8])
def test_topics_one_may_not_describe(
    group_client: Any, group_name: str, committed: str, deny: Any, version: int
) -> None:
    deny((ResourceType.TOPIC, committed))
    named = fetch(group_client, group_name, committed, [0], version)
    assert found(named)[0][::3] == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if version >= 2:
        assert found(fetch(group_client, group_name, committed, None, version)) == []


@pytest.mark.parametrize("version", [0, 1, 2, 7, 8, 10])
def test_groups_one_may_not_describe(
    group_client: Any, group_name: str, committed: str, deny: Any, version: int
) -> None:
    deny((ResourceType.GROUP, group_name))
    answer = fetch(group_client, group_name, committed, [0], version)
    if version < 2:
        assert found(answer)[0][3] == ErrorCode.GROUP_AUTHORIZATION_FAILED
    else:
        assert (answer.error_code, answer.topics) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, [])


def test_offsets_of_a_deleted_topic_are_forgotten(
    group_client: Any, groups_broker: Any, group_name: str, committed: str
) -> None:
    from kafkapy.protocol.messages.delete_topics import DeleteTopicsRequest

    group_client(DeleteTopicsRequest(topic_names=[committed], timeout_ms=10_000), 4)
    while found(fetch(group_client, group_name, committed, None, 7)):
        pass
