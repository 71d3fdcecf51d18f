"""JoinGroup, API key 11: versions 0 to 9.

A member joins the next generation of a classic group. The response comes when all members have joined, or when the
rebalance timeout is over.

Versions:
0: the API; the session timeout is also the rebalance timeout.
1: rebalance timeout (KIP-62).
2: throttle time in the response.
3: the response leaves before the pause of a throttled client (KIP-219).
4: MEMBER_ID_REQUIRED: a new member joins twice, with its id (KIP-394).
5: group.instance.id of static members (KIP-345).
6: flexible encoding with tagged fields (KIP-482).
7: protocol type in the response (KIP-559).
8: the reason why a member joins (KIP-800).
9: the leader may keep the assignment of a static member's restart (KIP-814).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.coordinator.group.classic.requests import ClientInfo
from kafkapy.coordinator.result import Later
from kafkapy.errors import ErrorCode, error_for
from kafkapy.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kafkapy.types import AclOperation, ResourceType

REQUEST = JoinGroupRequest
RESPONSE = JoinGroupResponse

FIRST_WITH_NULL_PROTOCOL = 7


def handle(context: RequestContext, request: JoinGroupRequest) -> Later[JoinGroupResponse]:
    """The generation, or what keeps the member from joining it."""
    if not context.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id):
        raise error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if context.api_version == 0:
        # There was one timeout for both before KIP-62.
        request.rebalance_timeout_ms = request.session_timeout_ms
    client = ClientInfo(context.client_id or "", f"/{context.client_address}", context.api_version)
    joined = context.broker.coordinators.group.join(client, request)
    if context.api_version < FIRST_WITH_NULL_PROTOCOL:
        joined.then(_without_null)
    return joined


def _without_null(done: Later[JoinGroupResponse]) -> None:
    if done.error is None and done.result().protocol_name is None:
        done.result().protocol_name = ""


def error_response(request: JoinGroupRequest, error: ErrorCode, message: str) -> JoinGroupResponse:
    """The error, with the member's own id."""
    del message
    return JoinGroupResponse(error_code=error, member_id=request.member_id, protocol_name="", leader="", members=[])
