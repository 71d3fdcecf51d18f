"""AlterPartitionReassignments, API key 45: versions 0 to 1.

The one broker of the cluster holds every replica. A partition that already has the replicas asked for succeeds, and
so does the part of kafka-reassign-partitions that moves replicas between log directories. Other assignments name a
broker twice or an unregistered one: INVALID_REPLICA_ASSIGNMENT. No move can be cancelled:
NO_REASSIGNMENT_IN_PROGRESS.

Versions:
0: the API (KIP-455).
1: a client may forbid a change of the replication factor (KIP-860).

Known gaps: replicas do not move between brokers.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.metadata.cache import MetadataSnapshot, TopicMetadata
from kafkapy.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation

REQUEST = AlterPartitionReassignmentsRequest
RESPONSE = AlterPartitionReassignmentsResponse

TopicResponse = AlterPartitionReassignmentsResponse.TopicResponse
Asked = AlterPartitionReassignmentsRequest.Topic.Partition


async def handle(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """One result for each partition, in the order asked.

    CLUSTER_AUTHORIZATION_FAILED without ALTER on the cluster.
    """
    context.authorize_cluster(AclOperation.ALTER)
    snapshot = context.broker.metadata_cache.snapshot
    any_number = request.allow_replication_factor_change
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=any_number,
        responses=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _result(snapshot, topic.name, snapshot.topic(topic.name), each, any_number)
                    async for each in in_slices(topic.partitions)
                ],
            )
            async for topic in in_slices(request.topics)
        ],
    )


def _result(
    snapshot: MetadataSnapshot, name: str, topic: TopicMetadata | None, asked: Asked, any_number: bool
) -> TopicResponse.Partition:
    try:
        _check(snapshot, name, topic, asked, any_number)
    except KafkaError as error:
        return TopicResponse.Partition(
            partition_index=asked.partition_index, error_code=error.code, error_message=error.message
        )
    return TopicResponse.Partition(partition_index=asked.partition_index)


def _check(snapshot: MetadataSnapshot, name: str, topic: TopicMetadata | None, asked: Asked, any_number: bool) -> None:
    """KafkaError unless the partition has the replicas that are asked for."""
    if topic is None:
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name}.")
    partition = topic.partitions.get(asked.partition_index)
    if partition is None:
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {name}-{asked.partition_index}.")
    if asked.replicas is None:
        raise error_for(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    _check_replicas(snapshot, asked.replicas)
    if not any_number and len(asked.replicas) != len(partition.replicas):
        raise error_for(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The partition has {len(partition.replicas)} replicas and would have {len(asked.replicas)}.",
        )
    if tuple(asked.replicas) != partition.replicas:
        raise error_for(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The replicas are {list(partition.replicas)}; replicas do not move between brokers here.",
        )


def _check_replicas(snapshot: MetadataSnapshot, replicas: Sequence[int]) -> None:
    """KafkaError unless these are registered brokers, each once; looks at no more replicas than there are brokers."""
    if not replicas:
        raise error_for(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The assignment has no replicas.")
    seen: set[int] = set()
    for replica in replicas:
        if replica not in snapshot.brokers:
            raise error_for(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"There is no broker {replica} in the cluster.")
        if replica in seen:
            raise error_for(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The assignment has broker {replica} twice.")
        seen.add(replica)
