"""DeleteTopics as a client sees it."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.create_topics import CreateTopicsRequest
from kafkapy.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.types import ZERO_UUID


def create(client: Any, name: str) -> UUID:
    topic = CreateTopicsRequest.Topic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
    result = client(CreateTopicsRequest(topics=[topic]), 7).topics[0]
    assert result.error_code == ErrorCode.NONE, result.error_message
    return result.topic_id


def by_name(version: int, name: str | None, topic_id: UUID = ZERO_UUID) -> DeleteTopicsRequest:
    if version < 6:
        return DeleteTopicsRequest(topic_names=[name or ""], timeout_ms=10_000)
    return DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name=name, topic_id=topic_id)], timeout_ms=10_000)


def exists(client: Any, name: str) -> bool:
    request = MetadataRequest(topics=[MetadataRequest.Topic(name=name)], allow_auto_topic_creation=False)
    return bool(client(request, 12).topics[0].error_code == ErrorCode.NONE)


@pytest.mark.parametrize("version", range(7))
def test_every_version_deletes_by_name(client: Any, topic_name: str, version: int) -> None:
    create(client, topic_name)
    (result,) = client(by_name(version, topic_name), version).responses
    assert (result.error_code, result.name) == (ErrorCode.NONE, topic_name)
    assert not exists(client, topic_name)


def test_a_topic_is_deleted_by_its_id(client: Any, topic_name: str) -> None:
    topic_id = create(client, topic_name)
    (result,) = client(by_name(6, None, topic_id), 6).responses
    assert (result.error_code, result.name, result.topic_id) == (ErrorCode.NONE, topic_name, topic_id)
    assert not exists(client, topic_name)


def test_a_deleted_topic_can_be_created_again_with_another_id(client: Any, topic_name: str) -> None:
    first = create(client, topic_name)
    client(by_name(6, topic_name), 6)
    assert create(client, topic_name) != first


def test_unknown_names_and_ids_have_their_errors(client: Any, topic_name: str) -> None:
    (result,) = client(by_name(6, topic_name), 6).responses
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (result,) = client(by_name(6, None, uuid4()), 6).responses
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_topic_with_name_and_id_or_neither_is_refused(client: Any, topic_name: str) -> None:
    (result,) = client(by_name(6, topic_name, uuid4()), 6).responses
    assert result.error_code == ErrorCode.INVALID_REQUEST
    (result,) = client(by_name(6, None), 6).responses
    assert result.error_code == ErrorCode.INVALID_REQUEST


def test_a_topic_meant_twice_is_not_deleted(client: Any, topic_name: str) -> None:
    topic_id = create(client, topic_name)
    Topic = DeleteTopicsRequest.Topic
    for twice in (
        [Topic(name=topic_name, topic_id=ZERO_UUID)] * 2,
        [Topic(name=None, topic_id=topic_id)] * 2,
        [Topic(name=topic_name, topic_id=ZERO_UUID), Topic(name=None, topic_id=topic_id)],
    ):
        (result,) = client(DeleteTopicsRequest(topics=twice, timeout_ms=10_000), 6).responses
        assert (result.error_code, bool(result.error_message)) == (ErrorCode.INVALID_REQUEST, True)
    assert exists(client, topic_name)


def test_the_answer_tells_the_id_of_a_topic_deleted_by_name(client: Any, topic_name: str) -> None:
    topic_id = create(client, topic_name)
    assert client(by_name(6, topic_name), 6).responses[0].topic_id == topic_id
