"""OffsetCommit as a client sees it."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest
from kafkapy.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkapy.types import ResourceType


@pytest.fixture
def topic(group_client: Any, topic_name: str) -> str:
    """A topic of three partitions."""
    group_client.client.create_topic(topic_name, partitions=3)
    return topic_name


def id_of(groups_broker: Any, name: str) -> Any:
    return groups_broker.context.metadata_cache.topic_id(name)


@pytest.mark.parametrize("version", range(11))
def test_every_version_stores_offsets(
    group_client: Any, groups_broker: Any, group_name: str, topic: str, version: int
) -> None:
    group_client.coordinate(group_name)
    named = {"topic_id": id_of(groups_broker, topic)} if version >= 10 else {}
    errors = group_client.commit(group_name, topic, {0: 5, 2: 7, 3: 1}, version, **named)
    assert errors == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_members_commit_with_their_generation(group_client: Any, group_name: str, topic: str) -> None:
    joined = group_client.stable(group_name)
    member = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
    assert group_client.commit(group_name, topic, {0: 5}, **member) == [0]
    stale = {**member, "generation_id_or_member_epoch": 7}
    assert group_client.commit(group_name, topic, {0: 5}, **stale) == [ErrorCode.ILLEGAL_GENERATION]
    assert group_client.commit(group_name, topic, {0: 5}) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_each_partition_has_its_own_error(
    group_client: Any, groups_broker: Any, group_name: str, topic: str, deny: Any
) -> None:
    group_client.coordinate(group_name)
    deny((ResourceType.TOPIC, "secret"))
    partition = OffsetCommitRequest.Topic.Partition
    topics = [
        OffsetCommitRequest.Topic(
            name=name,
            partitions=[partition(partition_index=0, committed_offset=1, committed_metadata="x" * size)],
        )
        for name, size in ((topic, 4096), (topic, 4097), ("secret", 0), ("unknown", 0))
    ]
    answer = group_client(OffsetCommitRequest(group_id=group_name, topics=topics[1:]), 8)
    assert [(each.name, each.partitions[0].error_code) for each in answer.topics] == [
        (topic, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("secret", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    answer = group_client(OffsetCommitRequest(group_id=group_name, topics=topics[:1]), 8)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


def test_more_than_fits_into_a_batch_is_refused_as_a_whole(group_client: Any, group_name: str, topic_name: str) -> None:
    group_client.coordinate(group_name)
    group_client.client.create_topic(topic_name, partitions=260)
    partition = OffsetCommitRequest.Topic.Partition

    def commit(partitions: int) -> set[int]:
        parts = [
            partition(partition_index=index, committed_offset=1, committed_metadata="x" * 4096)
            for index in (*range(partitions), 1000)
        ]
        request = OffsetCommitRequest(
            group_id=group_name, topics=[OffsetCommitRequest.Topic(name=topic_name, partitions=parts)]
        )
        *answers, unknown = group_client(request, 8).topics[0].partitions
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return {each.error_code for each in answers}

    assert commit(260) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert commit(200) == {ErrorCode.NONE}


def test_an_unknown_topic_id_is_said(group_client: Any, group_name: str) -> None:
    group_client.coordinate(group_name)
    errors = group_client.commit(group_name, "", {0: 1}, 10, topic_id=uuid4())
    assert errors == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_the_group_must_be_readable(group_client: Any, group_name: str, topic: str, deny: Any) -> None:
    group_client.coordinate(group_name)
    deny((ResourceType.GROUP, group_name))
    assert group_client.commit(group_name, topic, {0: 1}) == [ErrorCode.GROUP_AUTHORIZATION_FAILED]


@pytest.mark.parametrize("commit_version", range(6, 10))
@pytest.mark.parametrize("fetch_version", range(5, 10))
def test_the_leader_epoch_of_a_committed_offset_comes_back(
    group_client: Any, group_name: str, topic: str, commit_version: int, fetch_version: int
) -> None:
    """Without it a consumer does not find out that its records were lost (KIP-320)."""
    group_client.coordinate(group_name)
    partition = OffsetCommitRequest.Topic.Partition
    parts = [
        partition(partition_index=0, committed_offset=5, committed_leader_epoch=3, committed_metadata="note"),
        partition(partition_index=1, committed_offset=6, committed_metadata=""),
    ]
    request = OffsetCommitRequest(group_id=group_name, topics=[OffsetCommitRequest.Topic(name=topic, partitions=parts)])
    answer = group_client(request, commit_version)
    assert [each.error_code for each in answer.topics[0].partitions] == [0, 0]
    if fetch_version >= 8:
        group = OffsetFetchRequest.Group(
            group_id=group_name, topics=[OffsetFetchRequest.Group.Topic(name=topic, partition_indexes=[0, 1])]
        )
        found = group_client(OffsetFetchRequest(groups=[group]), fetch_version).groups[0].topics[0].partitions
    else:
        named = [OffsetFetchRequest.Topic(name=topic, partition_indexes=[0, 1])]
        found = group_client(OffsetFetchRequest(group_id=group_name, topics=named), fetch_version).topics[0].partitions
    rows = [(each.committed_offset, each.committed_leader_epoch, each.metadata) for each in found]
    assert sorted(rows) == [(5, 3, "note"), (6, -1, "")]
