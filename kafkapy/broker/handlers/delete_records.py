"""DeleteRecords, API key 21: versions 0 to 2.

The request moves the log start offset of partitions forward: clients do not see records before the given offset (-1:
the high watermark) any more. The response waits, up to the request's timeout, until all live replicas have done so.

Versions:
0: the API (KIP-107).
1: the response leaves before the pause of a throttled client (KIP-219).
2: flexible encoding with tagged fields (KIP-482).

Known gaps: none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode, KafkaError, code_of
from kafkapy.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from kafkapy.replica.record_deletions import DeletedRecords
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
    topics: list[Topic] = []
    waiting: dict[TopicPartition, tuple[int, Topic.Partition]] = {}
    async for name, offsets in in_slices(wanted.items()):
        results = []
        async for index, offset in in_slices(offsets.items()):
            partition = TopicPartition(name, index)
            result, deleted = await _delete(context, partition, offset, name in allowed)
            results.append(result)
            if deleted is not None and deleted.low_watermark < deleted.offset:
                waiting[partition] = (deleted.offset, result)
        topics.append(Topic(name=name, partitions=results))
    if waiting:
        await _wait_for_replicas(context, waiting, request.timeout_ms)
    return DeleteRecordsResponse(topics=topics)


async def _delete(
    context: RequestContext, partition: TopicPartition, offset: int, allowed: bool
) -> tuple[Topic.Partition, DeletedRecords | None]:
    deleted, error = None, ErrorCode.NONE
    if not allowed:
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif not context.broker.metadata_cache.contains(partition):
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        try:
            deleted = await context.broker.replica_manager.delete_records(partition, offset)
        except KafkaError as failure:
            error = code_of(failure)
    low_watermark = INVALID_LOW_WATERMARK if deleted is None else deleted.low_watermark
    return _result(partition.partition, low_watermark, error), deleted


async def _wait_for_replicas(
    context: RequestContext, waiting: Mapping[TopicPartition, tuple[int, Topic.Partition]], timeout_ms: int
) -> None:
    """Put the low watermarks into the results, or REQUEST_TIMED_OUT."""
    replicas = context.broker.replica_manager

    async def wait(partition: TopicPartition, offset: int, result: Topic.Partition) -> None:
        try:
            result.low_watermark = await replicas.low_watermark_reached(partition, offset)
            result.error_code = ErrorCode.NONE
        except KafkaError as failure:
            result.low_watermark, result.error_code = INVALID_LOW_WATERMARK, code_of(failure)

    for _, result in waiting.values():
        result.error_code = ErrorCode.REQUEST_TIMED_OUT
    tasks = [asyncio.ensure_future(wait(partition, *each)) for partition, each in waiting.items()]
    try:
        await asyncio.wait(tasks, timeout=max(timeout_ms, 0) / 1000)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


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
