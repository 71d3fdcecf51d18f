"""OffsetDelete, API key 47: version 0.

The request deletes a group's offsets of topics that no member subscribes to.

Versions:
0: the API (KIP-496).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode, error_for
from kafkapy.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation, ResourceType, TopicPartition

REQUEST = OffsetDeleteRequest
RESPONSE = OffsetDeleteResponse

Topic = OffsetDeleteResponse.Topic


async def handle(context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """One outcome for each partition, in the order asked."""
    if not context.authorize(AclOperation.DELETE, ResourceType.GROUP, request.group_id):
        raise error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    allowed = await context.authorized_names_in_slices(
        AclOperation.READ, ResourceType.TOPIC, (topic.name for topic in request.topics)
    )
    snapshot = context.broker.metadata_cache.snapshot
    errors: dict[TopicPartition, ErrorCode] = {}
    wanted: list[TopicPartition] = []
    context.leave(errors, wanted)
    async for topic in in_slices(request.topics):
        async for each in in_slices(topic.partitions):
            partition = TopicPartition(topic.name, each.partition_index)
            if topic.name not in allowed:
                errors[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif snapshot.partition(*partition) is None:
                errors[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                wanted.append(partition)
    errors |= await context.broker.coordinators.group.delete_offsets(request.group_id, wanted)
    return OffsetDeleteResponse(
        topics=[
            Topic(
                name=topic.name,
                partitions=[
                    Topic.Partition(
                        partition_index=each.partition_index,
                        error_code=errors[TopicPartition(topic.name, each.partition_index)],
                    )
                    async for each in in_slices(topic.partitions)
                ],
            )
            async for topic in in_slices(request.topics)
        ]
    )


def error_response(request: OffsetDeleteRequest, error: ErrorCode, message: str) -> OffsetDeleteResponse:
    """The error for the whole request."""
    del request, message
    return OffsetDeleteResponse(error_code=error, topics=[])
