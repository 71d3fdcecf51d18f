"""WriteShareGroupState, API key 85: versions 0 to 1.

The leader of share-partitions stores start offsets and state batches that have changed. Partitions have
FENCED_LEADER_EPOCH and FENCED_STATE_EPOCH for a leader that was replaced, or whose share-partition was begun again.

Versions:
0: the API (KIP-932).
1: the number of records that are delivered no more (KIP-1226).

Known gaps: none.
"""

from __future__ import annotations

from typing import Any

from kafkapy.broker.context import RequestContext
from kafkapy.broker.share_state_requests import answer, refuse
from kafkapy.coordinator.result import Later
from kafkapy.coordinator.share.shard import MOST_BATCHES
from kafkapy.coordinator.share.state import ShareKey, from_wire
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)

REQUEST = WriteShareGroupStateRequest
RESPONSE = WriteShareGroupStateResponse


async def handle(context: RequestContext, request: WriteShareGroupStateRequest) -> WriteShareGroupStateResponse:
    """The outcome for each partition."""
    share = context.broker.coordinators.share

    def write(key: ShareKey, each: Any) -> Later[None]:
        # One batch too many is enough for the coordinator to refuse them all.
        batches = from_wire(each.state_batches[: MOST_BATCHES + 1])
        return share.write(
            key, each.state_epoch, each.leader_epoch, each.start_offset, each.delivery_complete_count, batches
        )

    response: WriteShareGroupStateResponse = await answer(context, request, RESPONSE, write)
    return response


def error_response(
    request: WriteShareGroupStateRequest, error: ErrorCode, message: str
) -> WriteShareGroupStateResponse:
    """The error for every partition."""
    response: WriteShareGroupStateResponse = refuse(request, RESPONSE, error, message)
    return response
