"""DescribeShareGroupOffsets, API key 90: versions 0 to 1.

The response gives the start offsets of share groups. A partition without a state has start offset -1, which is no
error.

Versions:
0: the API (KIP-932).
1: the lag of each partition (KIP-1226).

Known gaps: none. Where a share coordinator cannot be asked, the partition has that error; Apache Kafka says that there
is no offset.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.coordinator.group.share.coordinator import TopicOffsets
from kafkapy.coordinator.group.share.offsets import ShareOffset
from kafkapy.errors import ErrorCode, KafkaError, code_of
from kafkapy.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from kafkapy.slices import filled, in_slices
from kafkapy.types import ZERO_UUID, AclOperation, ResourceType

REQUEST = DescribeShareGroupOffsetsRequest
RESPONSE = DescribeShareGroupOffsetsResponse

Group = DescribeShareGroupOffsetsResponse.Group
Topic = Group.Topic
Asked = DescribeShareGroupOffsetsRequest.Group


async def handle(
    context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """The offsets of each group, in the order asked."""
    served = context.broker.coordinators.group.share.are_served
    allowed = await context.authorized_names_in_slices(
        AclOperation.DESCRIBE, ResourceType.GROUP, (group.group_id for group in request.groups)
    )
    groups = []
    async for group in in_slices(request.groups):
        if not served:
            groups.append(_failed(group, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_VERSION.message))
        elif group.group_id not in allowed:
            denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
            groups.append(_failed(group, denied, denied.message))
        else:
            groups.append(await _described(context, group))
    return DescribeShareGroupOffsetsResponse(groups=groups)


def error_response(
    request: DescribeShareGroupOffsetsRequest, error: ErrorCode, message: str
) -> DescribeShareGroupOffsetsResponse:
    """The error for every group."""
    return DescribeShareGroupOffsetsResponse(groups=[_failed(group, error, message) for group in request.groups])


async def _described(context: RequestContext, group: Asked) -> Group:
    try:
        if group.topics is None:
            return await _all_topics(context, group.group_id)
        return await _some_topics(context, group.group_id, group.topics)
    except KafkaError as error:
        return _failed(group, code_of(error), error.message)


async def _all_topics(context: RequestContext, group_id: str) -> Group:
    """All topics of the group that the client may describe; of others it does not even hear."""
    found = await context.broker.coordinators.group.share.describe_offsets(group_id, None)
    allowed = await context.authorized_names_in_slices(
        AclOperation.DESCRIBE, ResourceType.TOPIC, (each.name for each in found), log_if_denied=False
    )
    topics = [await _topic(each) async for each in in_slices(found) if each.name in allowed]
    return Group(group_id=group_id, topics=topics)


async def _some_topics(context: RequestContext, group_id: str, topics: list[Asked.Topic]) -> Group:
    allowed = await context.authorized_names_in_slices(
        AclOperation.DESCRIBE, ResourceType.TOPIC, (topic.topic_name for topic in topics)
    )
    wanted: dict[str, dict[int, None]] = {}
    async for topic in in_slices(topics):
        if topic.topic_name in allowed:
            wanted.setdefault(topic.topic_name, {}).update(await filled(topic.partitions, None))
    context.leave(wanted)
    found = await context.broker.coordinators.group.share.describe_offsets(
        group_id, {name: list(numbers) async for name, numbers in in_slices(wanted.items())}
    )
    described = [await _topic(each) async for each in in_slices(found)]
    refused = ShareOffset(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    async for topic in in_slices(topics):
        if topic.topic_name not in allowed:
            denied = await filled(topic.partitions, refused)
            described.append(await _topic(TopicOffsets(topic.topic_name, ZERO_UUID, denied)))
    return Group(group_id=group_id, topics=described)


async def _topic(topic: TopicOffsets) -> Topic:
    return Topic(
        topic_name=topic.name,
        topic_id=topic.topic_id,
        partitions=[_partition(number, offset) async for number, offset in in_slices(topic.offsets.items())],
    )


def _partition(number: int, offset: ShareOffset) -> Topic.Partition:
    return Topic.Partition(
        partition_index=number,
        start_offset=offset.start_offset,
        leader_epoch=offset.leader_epoch,
        lag=offset.lag,
        error_code=offset.error,
        error_message=offset.error.message or None,
    )


def _failed(group: Asked, error: ErrorCode, message: str | None) -> Group:
    return Group(group_id=group.group_id, topics=[], error_code=error, error_message=message)
