"""ListOffsets, API key 2: versions 0 to 11.

The response gives the offset of a timestamp, or the earliest, the latest or the newest-stamped offset, of partitions
led here. Latest is the last stable offset for read_committed. A replica id outside the partition's assignment counts
as a consumer, which learns nothing beyond the high watermark (Kafka tells it the log end).

Versions:
0: a list of segment start offsets.
1: one offset with its timestamp (KIP-79).
2: isolation level (KIP-98); throttle time in the response.
3: the response leaves before the pause of a throttled client (KIP-219).
4: leader epochs in request and response (KIP-320).
5: OFFSET_NOT_AVAILABLE as an error (KIP-207).
6: flexible encoding with tagged fields (KIP-482).
7: -3: the offset of the largest timestamp (KIP-734).
8: -4: the earliest local offset (KIP-405).
9: -5: the latest tiered offset (KIP-1005).
10: timeout for offsets in remote storage (KIP-1075).
11: -6: the earliest offset that awaits its upload (KIP-1023).

Known gaps: without tiered storage -4 is the log start, and -5 and -6 are unknown (-1).
"""

from __future__ import annotations

from typing import Final

from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode, InvalidRequestError, KafkaError, OffsetNotAvailableError, code_of
from kafkapy.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafkapy.slices import counted, in_slices
from kafkapy.types import AclOperation, IsolationLevel, ListOffsetsTimestamp, ResourceType, TopicPartition

REQUEST = ListOffsetsRequest
RESPONSE = ListOffsetsResponse

CONSUMER: Final = -1
DEBUGGING: Final = -2
FIRST_WITH_OFFSET_NOT_AVAILABLE: Final = 5
"""Clients of older versions get LEADER_NOT_AVAILABLE, and ask again (KIP-207)."""
_OLDEST_VERSION: Final = {
    ListOffsetsTimestamp.LATEST: 0,
    ListOffsetsTimestamp.EARLIEST: 0,
    ListOffsetsTimestamp.MAX_TIMESTAMP: 7,
    ListOffsetsTimestamp.EARLIEST_LOCAL: 8,
    ListOffsetsTimestamp.LATEST_TIERED: 9,
    ListOffsetsTimestamp.EARLIEST_PENDING_UPLOAD: 11,
}
"""From which version on each of the negative timestamps may be asked for."""

Answer = ListOffsetsResponse.Topic.Partition


async def handle(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """One answer for each partition, in the order asked.

    A partition that is asked about twice is INVALID_REQUEST, once.
    """
    allowed = await context.authorized_names_in_slices(
        AclOperation.DESCRIBE, ResourceType.TOPIC, (topic.name for topic in request.topics)
    )
    counts = await counted((topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)
    context.leave(counts)
    topics = []
    async for topic in in_slices(request.topics):
        answers = []
        failed: set[int] = set()
        async for partition in in_slices(topic.partitions):
            index = partition.partition_index
            if index in failed:
                continue
            if topic.name not in allowed:
                answers.append(_failed(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            elif counts[topic.name, index] > 1 and context.api_version > 0:
                answers.append(_failed(index, ErrorCode.INVALID_REQUEST))
                failed.add(index)
            else:
                answers.append(await _answer(context, request, topic.name, partition))
        topics.append(ListOffsetsResponse.Topic(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def error_response(request: ListOffsetsRequest, error: ErrorCode, message: str) -> ListOffsetsResponse:
    """The error for every partition."""
    del message
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.Topic(
                name=topic.name, partitions=[_failed(each.partition_index, error) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _failed(partition: int, error: ErrorCode) -> Answer:
    return Answer(partition_index=partition, error_code=error, timestamp=-1, offset=-1)


def _isolation(level: int) -> IsolationLevel:
    try:
        return IsolationLevel(level)
    except ValueError:
        raise InvalidRequestError(f"isolation level {level} is neither 0 nor 1") from None


async def _answer(
    context: RequestContext, request: ListOffsetsRequest, topic: str, asked: ListOffsetsRequest.Topic.Partition
) -> Answer:
    index, timestamp = asked.partition_index, asked.timestamp
    if timestamp < 0:
        try:
            oldest = _OLDEST_VERSION[ListOffsetsTimestamp(timestamp)]
        except ValueError:
            oldest = context.api_version + 1
        if context.api_version < oldest:
            return _failed(index, ErrorCode.UNSUPPORTED_VERSION)
    replicas = context.broker.replica_manager
    partition = TopicPartition(topic, index)
    leader_only = request.replica_id != DEBUGGING
    from_consumer = request.replica_id == CONSUMER or (
        request.replica_id >= 0 and not replicas.is_assigned(partition, request.replica_id)
    )
    try:
        if context.api_version == 0:
            offsets = await replicas.legacy_list_offsets(
                partition,
                timestamp,
                asked.max_num_offsets,
                from_consumer=from_consumer,
                leader_only=leader_only,
            )
            return Answer(partition_index=index, error_code=ErrorCode.NONE, old_style_offsets=offsets)
        found = await replicas.list_offset(
            partition,
            timestamp,
            isolation=_isolation(request.isolation_level) if from_consumer else None,
            current_leader_epoch=asked.current_leader_epoch,
            leader_only=leader_only,
        )
    except OffsetNotAvailableError:
        known = context.api_version >= FIRST_WITH_OFFSET_NOT_AVAILABLE
        return _failed(index, ErrorCode.OFFSET_NOT_AVAILABLE if known else ErrorCode.LEADER_NOT_AVAILABLE)
    except KafkaError as error:
        return _failed(index, code_of(error))
    if found is None:
        return _failed(index, ErrorCode.NONE)
    leader_epoch = found.leader_epoch if context.api_version >= 4 else -1
    return Answer(
        partition_index=index,
        error_code=ErrorCode.NONE,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=leader_epoch,
    )
