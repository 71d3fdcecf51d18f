"""SyncGroup, API key 14: versions 0 to 5.

A member of a classic group fetches its assignment in a generation; the leader brings the assignments of all members.

Versions:
0: the API.
1: throttle time in the response.
2: the response leaves before the pause of a throttled client (KIP-219).
3: group.instance.id of static members (KIP-345).
4: flexible encoding with tagged fields (KIP-482).
5: protocol type and name, which must match (KIP-559).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.coordinator.result import Later
from kafkapy.errors import ErrorCode, error_for
from kafkapy.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kafkapy.types import AclOperation, ResourceType

REQUEST = SyncGroupRequest
RESPONSE = SyncGroupResponse

FIRST_WITH_PROTOCOL = 5


def handle(context: RequestContext, request: SyncGroupRequest) -> Later[SyncGroupResponse]:
    """The assignment, once the leader has brought it."""
    if not context.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id):
        raise error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if context.api_version >= FIRST_WITH_PROTOCOL and (request.protocol_type is None or request.protocol_name is None):
        raise error_for(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return context.broker.coordinators.group.sync(request)


def error_response(request: SyncGroupRequest, error: ErrorCode, message: str) -> SyncGroupResponse:
    """The error and no assignment."""
    del request, message
    return SyncGroupResponse(error_code=error, assignment=b"")
