"""Heartbeat, API key 12: versions 0 to 4.

A member of a classic group is alive; REBALANCE_IN_PROGRESS tells it to join again.

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode, error_for
from kafkapy.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkapy.types import AclOperation, ResourceType

REQUEST = HeartbeatRequest
RESPONSE = HeartbeatResponse


async def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """What the member has to do, if anything."""
    if not context.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id):
        raise error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return HeartbeatResponse(error_code=await context.broker.coordinators.group.heartbeat(request))
