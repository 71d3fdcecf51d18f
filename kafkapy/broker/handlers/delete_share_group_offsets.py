"""DeleteShareGroupOffsets, API key 92: version 0.

The request deletes the start offsets of a share group without members in some topics.

Versions:
0: the API (KIP-932).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.coordinator.group.share.offsets import TopicOutcome
from kafkapy.errors import ErrorCode, error_for
from kafkapy.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from kafkapy.slices import filled, in_slices
from kafkapy.types import ZERO_UUID, AclOperation, ResourceType

REQUEST = DeleteShareGroupOffsetsRequest
RESPONSE = DeleteShareGroupOffsetsResponse

Topic = DeleteShareGroupOffsetsResponse.Topic


async def handle(context: RequestContext, request: DeleteShareGroupOffsetsRequest) -> DeleteShareGroupOffsetsResponse:
    """One outcome for each topic, in the order asked."""
    coordinator = context.broker.coordinators.group.share
    if not coordinator.are_served:
        raise error_for(ErrorCode.UNSUPPORTED_VERSION)
    if not context.authorize(AclOperation.DELETE, ResourceType.GROUP, request.group_id):
        raise error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    names = [topic.topic_name async for topic in in_slices(request.topics)]
    allowed = await context.authorized_names_in_slices(AclOperation.READ, ResourceType.TOPIC, names)
    refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    denied = TopicOutcome(None, refusal, refusal.message)
    outcomes = {name: denied async for name in in_slices(names) if name not in allowed}
    wanted = [name async for name in in_slices(names) if name in allowed]
    context.leave(names, outcomes, wanted)
    if wanted or not names:
        outcomes |= await coordinator.delete_offsets(request.group_id, wanted)
    return DeleteShareGroupOffsetsResponse(
        responses=[_topic(name, outcomes[name]) async for name in in_slices(await filled(names, None))]
    )


def error_response(
    request: DeleteShareGroupOffsetsRequest, error: ErrorCode, message: str
) -> DeleteShareGroupOffsetsResponse:
    """The error for the whole request."""
    del request
    return DeleteShareGroupOffsetsResponse(error_code=error, error_message=message, responses=[])


def _topic(name: str, outcome: TopicOutcome) -> Topic:
    return Topic(
        topic_name=name,
        topic_id=outcome.topic_id or ZERO_UUID,
        error_code=outcome.error,
        error_message=outcome.message,
    )
