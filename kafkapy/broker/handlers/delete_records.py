"""DeleteRecords, API key 21: versions 0 to 2.

The request moves the log start offset of partitions forward: clients do not see records before the given offset (-1:
the high watermark) any more.

Versions:
0: the API (KIP-107).
1: the response leaves before the pause of a throttled client (KIP-219).
2: flexible encoding with tagged fields (KIP-482).

Known gaps: with several replicas the response does not wait for the followers' low watermarks.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode, KafkaError, code_of
from kafkapy.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation, ResourceType, TopicPartition

REQUEST = DeleteRecordsRequest
RESPONSE = DeleteRecordsResponse

INVALID_LOW_WATERMARK = -1
Topic = DeleteRecordsResponse.Topic


async def handle(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """One result for each partition, in the order asked.

    The offset named last counts when a partition is there twice.
    """
    allowed = await context.authorized_names_in_slices(
        AclOperation.DELETE, ResourceType.TOPIC, (topic.name for topic in request.topics)
    )
    wanted: dict[str, dict[int, int]] = {}
    context.leave(wanted)
    async for topic in in_slices(request.topics):
        offsets = wanted.setdefault(topic.name, {})
        async for each in in_slices(topic.partitions):
            offsets[each.partition_index] = each.offset
    return DeleteRecordsResponse(
        topics=[
            Topic(
                name=name,
                partitions=[
                    await _delete(context, TopicPartition(name, index), offset, name in allowed)
                    async for index, offset in in_slices(offsets.items())
                ],
            )
            async for name, offsets in in_slices(wanted.items())
        ]
    )


async def _delete(context: RequestContext, partition: TopicPartition, offset: int, allowed: bool) -> Topic.Partition:
    low_watermark, error = INVALID_LOW_WATERMARK, ErrorCode.NONE
    if not allowed:
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif not context.broker.metadata_cache.contains(partition):
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        try:
            low_watermark = await context.broker.replica_manager.delete_records(partition, offset)
        except KafkaError as failure:
            error = code_of(failure)
    return _result(partition.partition, low_watermark, error)


def error_response(request: DeleteRecordsRequest, error: ErrorCode, message: str) -> DeleteRecordsResponse:
    """The error for every partition."""
    del message
    return DeleteRecordsResponse(
        topics=[
            Topic(
                name=topic.name,
                partitions=[_result(each.partition_index, INVALID_LOW_WATERMARK, error) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _result(partition: int, low_watermark: int, error: ErrorCode) -> Topic.Partition:
    return Topic.Partition(partition_index=partition, low_watermark=low_watermark, error_code=error)
