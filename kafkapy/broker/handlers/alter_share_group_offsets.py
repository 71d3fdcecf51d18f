"""AlterShareGroupOffsets, API key 91: version 0.

The request sets the start offsets of a share group without members. It creates a group that does not exist.

Versions:
0: the API (KIP-932).

Known gaps: none.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode, error_for
from kafkapy.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from kafkapy.slices import filled, in_slices
from kafkapy.types import ZERO_UUID, AclOperation, ResourceType

REQUEST = AlterShareGroupOffsetsRequest
RESPONSE = AlterShareGroupOffsetsResponse

Topic = AlterShareGroupOffsetsResponse.Topic


async def handle(context: RequestContext, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse:
    """One outcome for each partition.

    Of a partition that stands there twice, the last offset counts."""
    coordinator = context.broker.coordinators.group.share
    if not coordinator.are_served:
        raise error_for(ErrorCode.UNSUPPORTED_VERSION)
    if not context.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id):
        raise error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    allowed = await context.authorized_names_in_slices(
        AclOperation.READ, ResourceType.TOPIC, (topic.topic_name for topic in request.topics)
    )
    wanted: dict[str, dict[int, int]] = {}
    denied: dict[str, dict[int, ErrorCode]] = {}
    context.leave(wanted, denied)
    async for topic in in_slices(request.topics):
        if topic.topic_name not in allowed:
            refused = denied.setdefault(topic.topic_name, {})
            numbers = (each.partition_index for each in topic.partitions)
            refused |= await filled(numbers, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            continue
        offsets = wanted.setdefault(topic.topic_name, {})
        async for each in in_slices(topic.partitions):
            offsets[each.partition_index] = each.start_offset
    altered = await coordinator.alter_offsets(request.group_id, wanted)
    responses = [await _topic(name, ZERO_UUID, errors) async for name, errors in in_slices(denied.items())]
    responses += [await _topic(*each) async for each in in_slices(altered)]
    return AlterShareGroupOffsetsResponse(responses=responses)


def error_response(
    request: AlterShareGroupOffsetsRequest, error: ErrorCode, message: str
) -> AlterShareGroupOffsetsResponse:
    """The error for the whole request."""
    del request
    return AlterShareGroupOffsetsResponse(error_code=error, error_message=message, responses=[])


async def _topic(name: str, topic_id: UUID, errors: Mapping[int, ErrorCode]) -> Topic:
    return Topic(
        topic_name=name,
        topic_id=topic_id,
        partitions=[
            Topic.Partition(partition_index=number, error_code=error, error_message=error.message or None)
            async for number, error in in_slices(errors.items())
        ],
    )
