"""DeleteShareGroupState, API key 86: version 0.

A group coordinator removes the state of share-partitions. A partition without state is no error.

Versions:
0: the API (KIP-932).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.broker.share_state_requests import answer, refuse
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)

REQUEST = DeleteShareGroupStateRequest
RESPONSE = DeleteShareGroupStateResponse


async def handle(context: RequestContext, request: DeleteShareGroupStateRequest) -> DeleteShareGroupStateResponse:
    """The outcome for each partition."""
    share = context.broker.coordinators.share
    response: DeleteShareGroupStateResponse = await answer(context, request, RESPONSE, lambda key, _: share.delete(key))
    return response


def error_response(
    request: DeleteShareGroupStateRequest, error: ErrorCode, message: str
) -> DeleteShareGroupStateResponse:
    """The error for every partition."""
    response: DeleteShareGroupStateResponse = refuse(request, RESPONSE, error, message)
    return response
