"""LeaveGroup, API key 13: versions 0 to 5.

Members leave a classic group at once, before their session timeout. A static member leaves by its group.instance.id.

Versions:
0: the API.
1: throttle time in the response.
2: the response leaves before the pause of a throttled client (KIP-219).
3: several members, static ones too (KIP-345).
4: flexible encoding with tagged fields (KIP-482).
5: the reason why a member leaves (KIP-800).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode, error_for
from kafkapy.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation, ResourceType

REQUEST = LeaveGroupRequest
RESPONSE = LeaveGroupResponse

FIRST_BATCHED = 3


async def handle(context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """The outcome for each member.

    Below version 3 there is one member, and its outcome is the response's.
    """
    if not context.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id):
        raise error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    batched = context.api_version >= FIRST_BATCHED
    if not batched:
        request.members = [LeaveGroupRequest.Member(member_id=request.member_id)]
    outcomes = await context.broker.coordinators.group.leave(request).wait()
    if not batched:
        return LeaveGroupResponse(error_code=outcomes[0])
    members = [
        LeaveGroupResponse.Member(
            member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=outcome
        )
        async for each, outcome in in_slices(zip(request.members, outcomes, strict=True))
    ]
    return LeaveGroupResponse(members=members)
