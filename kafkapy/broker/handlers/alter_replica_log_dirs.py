"""AlterReplicaLogDirs, API key 34: versions 0 to 2.

Begins to move replicas of this broker to another of its log directories, which have to be written as DescribeLogDirs
shows them; a move under way is given up for a new one, and a move back to where the replica is only ends it. The answer
does not wait for the moves: DescribeLogDirs shows how far they are.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from kafkapy.types import AclOperation, ResourceType, TopicPartition

REQUEST = AlterReplicaLogDirsRequest
RESPONSE = AlterReplicaLogDirsResponse

Result = AlterReplicaLogDirsResponse.Result


async def handle(context: RequestContext, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """One result for each partition. The directory named last counts when a partition is there twice."""
    wanted = _wanted(request)
    if not context.authorize(AclOperation.ALTER, ResourceType.CLUSTER):
        return _response(dict.fromkeys(wanted, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    return _response(await context.broker.replica_manager.alter_replica_log_dirs(wanted))


def error_response(request: AlterReplicaLogDirsRequest, error: ErrorCode, message: str) -> AlterReplicaLogDirsResponse:
    """The error for every partition."""
    del message
    return _response(dict.fromkeys(_wanted(request), error))


def _wanted(request: AlterReplicaLogDirsRequest) -> dict[TopicPartition, str]:
    return {
        TopicPartition(topic.name, index): each.path
        for each in request.dirs
        for topic in each.topics
        for index in topic.partitions
    }


def _response(outcomes: Mapping[TopicPartition, ErrorCode]) -> AlterReplicaLogDirsResponse:
    topics: dict[str, Result] = {}
    for (topic, index), error in outcomes.items():
        result = topics.setdefault(topic, Result(topic_name=topic, partitions=[]))
        result.partitions.append(Result.Partition(partition_index=index, error_code=error))
    return AlterReplicaLogDirsResponse(results=list(topics.values()))
