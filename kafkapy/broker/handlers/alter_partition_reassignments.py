"""AlterPartitionReassignments, API key 45: versions 0 to 1.

The request moves partitions to other replicas, replaces a move that runs, or cancels it where `replicas` is null. The
response comes when the moves have begun; ListPartitionReassignments says which ones still run. Only the controller
serves it. Target replicas must be live brokers, or hold the partition already: INVALID_REPLICA_ASSIGNMENT.

Versions:
0: the API (KIP-455).
1: a client may forbid a change of the replication factor (KIP-860).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation, TopicPartition

REQUEST = AlterPartitionReassignmentsRequest
RESPONSE = AlterPartitionReassignmentsResponse

TopicResponse = AlterPartitionReassignmentsResponse.TopicResponse


async def handle(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """One result for each partition, in the order asked.

    CLUSTER_AUTHORIZATION_FAILED without ALTER on the cluster; NOT_CONTROLLER.
    """
    context.authorize_cluster(AclOperation.ALTER)
    asked = (
        (TopicPartition(topic.name, each.partition_index), each.replicas)
        for topic in request.topics
        for each in topic.partitions
    )
    wanted = {partition: replicas async for partition, replicas in in_slices(asked)}
    outcomes = await context.broker.controller.alter_reassignments(wanted, request.allow_replication_factor_change)
    context.leave(wanted, outcomes)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _result(each.partition_index, outcomes[TopicPartition(topic.name, each.partition_index)])
                    async for each in in_slices(topic.partitions)
                ],
            )
            async for topic in in_slices(request.topics)
        ],
    )


def error_response(
    request: AlterPartitionReassignmentsRequest, error: ErrorCode, message: str
) -> AlterPartitionReassignmentsResponse:
    """The error for the whole request."""
    del request
    return AlterPartitionReassignmentsResponse(error_code=error, error_message=message, responses=[])


def _result(index: int, error: KafkaError | None) -> TopicResponse.Partition:
    if error is None:
        return TopicResponse.Partition(partition_index=index)
    return TopicResponse.Partition(partition_index=index, error_code=error.code, error_message=error.message)
