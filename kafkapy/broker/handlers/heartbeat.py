"""Heartbeat, API key 12: versions 0 to 4.

A member of a classic group is alive; REBALANCE_IN_PROGRESS tells it to join again.

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.coordinator.result import Later
from kafkapy.errors import ErrorCode, error_for
from kafkapy.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkapy.types import AclOperation, ResourceType

REQUEST = HeartbeatRequest
RESPONSE = HeartbeatResponse


def handle(context: RequestContext, request: HeartbeatRequest) -> Later[HeartbeatResponse]:
    """What the member has to do, if anything."""
    if not context.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id):
        raise error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    answer = context.broker.coordinators.group.heartbeat(request)
    return answer.map(lambda done: HeartbeatResponse(error_code=done.result()))
