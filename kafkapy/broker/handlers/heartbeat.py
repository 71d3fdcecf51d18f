"""Heartbeat, API key 12: versions 0 to 4.

A member of a classic group stays alive; REBALANCE_IN_PROGRESS tells it to join again.

Versions:
0: the API.
1: throttle time in the response.
2: the response leaves before the pause of a throttled client (KIP-219).
3: group.instance.id of static members (KIP-345).
4: flexible encoding with tagged fields (KIP-482).

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
    """The error code that tells the member what to do, or none."""
    if not context.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id):
        raise error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    answer = context.broker.coordinators.group.heartbeat(request)
    return answer.map(lambda done: HeartbeatResponse(error_code=done.result()))
