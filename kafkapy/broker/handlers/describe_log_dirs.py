"""DescribeLogDirs, API key 35: versions 0 to 5.

The response lists the log directories of this broker with their free space, and the partitions asked for (null: all)
with their sizes in bytes. A partition on its way to a directory appears there as a future replica, with its lag. A
failed directory is KAFKA_STORAGE_ERROR.

Versions:
0: the API (KIP-113).
1: the response leaves before the pause of a throttled client (KIP-219).
2: flexible encoding with tagged fields (KIP-482).
3: error code of the whole response.
4: size and free space of the volume (KIP-827).
5: cordoned directories (KIP-1066).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation, ResourceType, TopicPartition

REQUEST = DescribeLogDirsRequest
RESPONSE = DescribeLogDirsResponse

Result = DescribeLogDirsResponse.Result


async def handle(context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """One result for each log directory."""
    if not context.authorize(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=[])
    wanted = None
    if request.topics is not None:
        wanted = {
            TopicPartition(topic.topic, index)
            async for topic in in_slices(request.topics)
            async for index in in_slices(topic.partitions)
        }
        context.leave(wanted)
    results = []
    for directory in await context.broker.replica_manager.log_dirs.describe():
        topics: dict[str, Result.Topic] = {}
        async for each in in_slices(directory.partitions):
            topic, partition = each.partition
            if wanted is None or each.partition in wanted:
                entry = topics.setdefault(topic, Result.Topic(name=topic, partitions=[]))
                entry.partitions.append(
                    Result.Topic.Partition(
                        partition_index=partition,
                        partition_size=each.size,
                        offset_lag=each.offset_lag,
                        is_future_key=each.is_future,
                    )
                )
        results.append(
            Result(
                error_code=directory.error,
                log_dir=directory.path,
                topics=list(topics.values()),
                total_bytes=directory.total_bytes,
                usable_bytes=directory.usable_bytes,
                is_cordoned=directory.is_cordoned,
            )
        )
    return DescribeLogDirsResponse(results=results)
