"""DescribeTopicPartitions, API key 75: version 0.

The response lists topics in order of their names, page by page: at most max.request.partition.size.limit partitions,
then a cursor. No topics in the request means all topics. A topic that the client may not describe is left out of "all
topics" and is an error otherwise.

Versions:
0: the API (KIP-966).

Known gaps: eligible leader replicas belong to KRaft; both lists are empty.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.broker.topic_view import view
from kafkapy.errors import ErrorCode, error_for
from kafkapy.metadata.topic_names import invalid_reason, is_internal
from kafkapy.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from kafkapy.protocol.schema import ZERO_UUID
from kafkapy.slices import in_order, in_slices
from kafkapy.types import AclOperation, ResourceType

REQUEST = DescribeTopicPartitionsRequest
RESPONSE = DescribeTopicPartitionsResponse

Topic = DescribeTopicPartitionsResponse.Topic


async def handle(context: RequestContext, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """One page of topics.

    INVALID_REQUEST for a cursor that names a topic outside of the list or a negative partition.
    """
    snapshot = context.broker.metadata_cache.snapshot
    cursor = request.cursor
    everything = not request.topics
    asked = set(snapshot.topics) if everything else {topic.name async for topic in in_slices(request.topics)}
    if cursor is not None and not everything and cursor.topic_name not in asked:
        raise error_for(
            ErrorCode.INVALID_REQUEST, f"the list of topics does not hold the cursor's, {cursor.topic_name}"
        )
    if cursor is not None and cursor.partition_index < 0:
        raise error_for(ErrorCode.INVALID_REQUEST, f"the cursor's partition, {cursor.partition_index}, is negative")
    names = [name async for name in in_order(name for name in asked if cursor is None or name >= cursor.topic_name)]
    context.leave(asked, names)
    allowed = await context.authorized_names_in_slices(
        AclOperation.DESCRIBE, ResourceType.TOPIC, names, log_if_denied=not everything
    )

    limit = min(context.broker.config.get_int("max.request.partition.size.limit"), request.response_partition_limit)
    left = max(limit, 1)
    topics: list[Topic] = []
    next_cursor = None
    async for name in in_slices(names):
        if name not in allowed:
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        if left <= 0:
            next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=first)
            break
        topic = snapshot.topics.get(name)
        if topic is None:
            if everything or cursor is None or name != cursor.topic_name or first == 0:
                invalid = invalid_reason(name) is not None
                error = ErrorCode.INVALID_TOPIC_EXCEPTION if invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                topics.append(
                    Topic(
                        error_code=error,
                        name=name,
                        topic_id=ZERO_UUID,
                        is_internal=is_internal(name),
                        partitions=[],
                        topic_authorized_operations=context.authorized_operations(ResourceType.TOPIC, name),
                    )
                )
            continue
        numbers = [number for number in topic.partitions if number >= first]
        page = numbers[:left]
        left -= len(page)
        partitions = []
        for number in page:
            seen = view(snapshot, topic.partitions[number], context.listener_name)
            partitions.append(
                Topic.Partition(
                    error_code=seen.error,
                    partition_index=seen.partition,
                    leader_id=seen.leader,
                    leader_epoch=seen.leader_epoch,
                    replica_nodes=seen.replicas,
                    isr_nodes=seen.isr,
                    eligible_leader_replicas=[],
                    last_known_elr=[],
                    offline_replicas=seen.offline_replicas,
                )
            )
        topics.append(
            Topic(
                name=name,
                topic_id=topic.topic_id,
                is_internal=topic.is_internal,
                partitions=partitions,
                topic_authorized_operations=context.authorized_operations(ResourceType.TOPIC, name),
            )
        )
        if len(page) < len(numbers):
            next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=numbers[len(page)])
            break
    if not everything:
        topics += [
            Topic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, topic_id=ZERO_UUID, partitions=[])
            for name in names
            if name not in allowed
        ]
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=next_cursor)


def error_response(
    request: DescribeTopicPartitionsRequest, error: ErrorCode, message: str
) -> DescribeTopicPartitionsResponse:
    """The error for every topic that was asked for."""
    del message
    return DescribeTopicPartitionsResponse(
        topics=[Topic(error_code=error, name=topic.name, topic_id=ZERO_UUID, partitions=[]) for topic in request.topics]
    )
