"""ReadShareGroupStateSummary, API key 87: versions 0 to 1.

A group coordinator gets the start offsets of share-partitions, for DescribeShareGroupOffsets. A partition without state
has the start offset -1.

Versions:
0: the API (KIP-932).
1: the number of records that are delivered no more (KIP-1226).

Known gaps: none.
"""

from __future__ import annotations

from typing import Any

from kafkapy.broker.context import RequestContext
from kafkapy.broker.share_state_requests import answer, refuse
from kafkapy.coordinator.share.state import ShareSummary
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)

REQUEST = ReadShareGroupStateSummaryRequest
RESPONSE = ReadShareGroupStateSummaryResponse


async def handle(
    context: RequestContext, request: ReadShareGroupStateSummaryRequest
) -> ReadShareGroupStateSummaryResponse:
    """The state of each partition without its batches."""
    share = context.broker.coordinators.share
    response: ReadShareGroupStateSummaryResponse = await answer(
        context, request, RESPONSE, lambda key, each: share.summary(key, each.leader_epoch), _fields
    )
    return response


def error_response(
    request: ReadShareGroupStateSummaryRequest, error: ErrorCode, message: str
) -> ReadShareGroupStateSummaryResponse:
    """The error for every partition."""
    response: ReadShareGroupStateSummaryResponse = refuse(request, RESPONSE, error, message)
    return response


def _fields(summary: ShareSummary) -> dict[str, Any]:
    return {
        "state_epoch": summary.state_epoch,
        "leader_epoch": summary.leader_epoch,
        "start_offset": summary.start_offset,
        "delivery_complete_count": summary.delivery_complete,
    }
