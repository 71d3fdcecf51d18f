"""ReadShareGroupState, API key 84: version 0.

A new leader of share-partitions gets their state, and fences the leaders of earlier epochs. Partitions have
FENCED_LEADER_EPOCH for a leader that was replaced itself.

Versions:
0: the API (KIP-932).

Known gaps: none.
"""

from __future__ import annotations

from typing import Any

from kafkapy.broker.context import RequestContext
from kafkapy.broker.share_state_requests import answer, refuse
from kafkapy.coordinator.share.state import ShareState, to_wire
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.read_share_group_state import ReadShareGroupStateRequest, ReadShareGroupStateResponse

REQUEST = ReadShareGroupStateRequest
RESPONSE = ReadShareGroupStateResponse


async def handle(context: RequestContext, request: ReadShareGroupStateRequest) -> ReadShareGroupStateResponse:
    """The state of each partition."""
    share = context.broker.coordinators.share
    response: ReadShareGroupStateResponse = await answer(
        context, request, RESPONSE, lambda key, each: share.read(key, each.leader_epoch), _fields
    )
    return response


def error_response(request: ReadShareGroupStateRequest, error: ErrorCode, message: str) -> ReadShareGroupStateResponse:
    """The error for every partition."""
    response: ReadShareGroupStateResponse = refuse(request, RESPONSE, error, message)
    return response


def _fields(state: ShareState) -> dict[str, Any]:
    return {
        "state_epoch": state.state_epoch,
        "start_offset": state.start_offset,
        "state_batches": to_wire(RESPONSE.Topic.Partition.StateBatch, state.batches),
    }
