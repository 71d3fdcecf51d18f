"""InitializeShareGroupState, API key 83: version 0.

A group coordinator begins share-partitions, or sets them to other start offsets, by a higher state epoch. Partitions
have FENCED_STATE_EPOCH for a lower one.

Versions:
0: the API (KIP-932).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.broker.share_state_requests import answer, refuse
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)

REQUEST = InitializeShareGroupStateRequest
RESPONSE = InitializeShareGroupStateResponse


async def handle(
    context: RequestContext, request: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse:
    """The outcome for each partition."""
    share = context.broker.coordinators.share
    response: InitializeShareGroupStateResponse = await answer(
        context,
        request,
        RESPONSE,
        lambda key, each: share.initialize(key, each.state_epoch, each.start_offset),
        skips_empty_topics=True,
    )
    return response


def error_response(
    request: InitializeShareGroupStateRequest, error: ErrorCode, message: str
) -> InitializeShareGroupStateResponse:
    """The error for every partition."""
    response: InitializeShareGroupStateResponse = refuse(request, RESPONSE, error, message)
    return response
