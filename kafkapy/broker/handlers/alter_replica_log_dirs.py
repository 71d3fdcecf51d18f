"""AlterReplicaLogDirs, API key 34: versions 0 to 2.

The broker begins to move replicas to another of its log directories, whose paths are written as DescribeLogDirs shows
them. A new move replaces one under way; a move back to the present directory only ends it. The response does not wait
for the moves: DescribeLogDirs shows their progress. A cordoned directory takes none: INVALID_REPLICA_ASSIGNMENT.

Versions:
0: the API (KIP-113).
1: the response leaves before the pause of a throttled client (KIP-219).
2: flexible encoding with tagged fields (KIP-482).

Known gaps: none.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from kafkapy.slices import filled, in_slices
from kafkapy.types import AclOperation, ResourceType, TopicPartition

REQUEST = AlterReplicaLogDirsRequest
RESPONSE = AlterReplicaLogDirsResponse

Result = AlterReplicaLogDirsResponse.Result


async def handle(context: RequestContext, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """One result for each partition.

    The directory named last counts when a partition is there twice.
    """
    wanted = {partition: path async for partition, path in in_slices(_asked(request))}
    context.leave(wanted)
    if not context.authorize(AclOperation.ALTER, ResourceType.CLUSTER):
        outcomes = await filled(wanted, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    else:
        outcomes = await context.broker.replica_manager.log_dirs.alter(wanted)
    context.leave(outcomes)
    topics: dict[str, Result] = {}
    async for (topic, index), error in in_slices(outcomes.items()):
        _add(topics, topic, index, error)
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def error_response(request: AlterReplicaLogDirsRequest, error: ErrorCode, message: str) -> AlterReplicaLogDirsResponse:
    """The error for every partition."""
    del message
    topics: dict[str, Result] = {}
    for topic, index in dict(_asked(request)):
        _add(topics, topic, index, error)
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def _asked(request: AlterReplicaLogDirsRequest) -> Iterator[tuple[TopicPartition, str]]:
    return (
        (TopicPartition(topic.name, index), each.path)
        for each in request.dirs
        for topic in each.topics
        for index in topic.partitions
    )


def _add(topics: dict[str, Result], topic: str, index: int, error: ErrorCode) -> None:
    result = topics.get(topic)
    if result is None:
        result = topics[topic] = Result(topic_name=topic, partitions=[])
    result.partitions.append(Result.Partition(partition_index=index, error_code=error))
