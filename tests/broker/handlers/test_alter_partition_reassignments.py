"""AlterPartitionReassignments as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kafkapy.types import ResourceType

Topic = AlterPartitionReassignmentsRequest.Topic
Moves = list[tuple[str, int, list[int] | None]]


def alter(client: Any, moves: Moves, version: int = 1, **fields: Any) -> list[tuple[str, int, int]]:
    topics = [
        Topic(name=name, partitions=[Topic.Partition(partition_index=index, replicas=replicas)])
        for name, index, replicas in moves
    ]
    response = client(AlterPartitionReassignmentsRequest(topics=topics, **fields), version)
    assert response.error_code == ErrorCode.NONE
    for topic in response.responses:
        for each in topic.partitions:
            assert (each.error_message is None) == (each.error_code == ErrorCode.NONE)
    return [
        (topic.name, each.partition_index, each.error_code) for topic in response.responses for each in topic.partitions
    ]


@pytest.mark.parametrize("version", [0, 1])
def test_a_partition_may_have_the_replicas_that_it_has(client: Any, topic_name: str, version: int) -> None:
    client.create_topic(topic_name, 2)
    assert alter(client, [(topic_name, 0, [1]), (topic_name, 1, [1]), (topic_name, 0, [1])], version) == [
        (topic_name, 0, ErrorCode.NONE),
        (topic_name, 1, ErrorCode.NONE),
        (topic_name, 0, ErrorCode.NONE),
    ]


@pytest.mark.parametrize("replicas", [[], [2], [1, 2], [1, 1], [-1], [1] * 100_000])
def test_other_assignments_are_refused(client: Any, topic_name: str, replicas: list[int]) -> None:
    client.create_topic(topic_name)
    assert alter(client, [(topic_name, 0, replicas)]) == [(topic_name, 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT)]


def test_what_is_not_there_cannot_be_moved_or_cancelled(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    moves: Moves = [
        (topic_name, 0, None),
        (topic_name, 7, [1]),
        (topic_name, 7, None),
        ("nowhere", 0, [1]),
        ("", 0, [1]),
    ]
    assert [error for _, _, error in alter(client, moves)] == [
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 4,
    ]


def test_version_1_says_whether_the_number_of_replicas_may_change(client: Any, topic_name: str) -> None:
    client.create_topic(topic_name)
    assert alter(client, [(topic_name, 0, [1])], allow_replication_factor_change=False)[0][2] == ErrorCode.NONE


def test_one_who_may_not_alter_the_cluster_is_told_so(group_client: Any, deny: Any) -> None:
    deny((ResourceType.CLUSTER, "kafka-cluster"))
    response = group_client(AlterPartitionReassignmentsRequest(topics=[]), 1)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
