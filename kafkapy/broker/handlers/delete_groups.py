"""DeleteGroups, API key 42: versions 0 to 3.

The request deletes groups without members, with their offsets.

Versions:
0: the API (KIP-229).
1: the response leaves before the pause of a throttled client (KIP-219).
2: flexible encoding with tagged fields (KIP-482).
3: error message for each group.

Known gaps: the error message of a group is null.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kafkapy.slices import in_chunks, in_slices
from kafkapy.types import AclOperation, ResourceType

REQUEST = DeleteGroupsRequest
RESPONSE = DeleteGroupsResponse

Result = DeleteGroupsResponse.Result


async def handle(context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """One outcome for each group."""
    errors: dict[str, ErrorCode] = {}
    context.leave(errors)
    async for chunk in in_chunks(request.groups_names):
        names = [name for name in dict.fromkeys(chunk) if name not in errors]
        allowed = await context.authorized_names_in_slices(AclOperation.DELETE, ResourceType.GROUP, names)
        errors |= dict.fromkeys(names, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        errors |= await context.broker.coordinators.group.delete_groups(name for name in names if name in allowed)
    return DeleteGroupsResponse(
        results=[Result(group_id=group_id, error_code=error) async for group_id, error in in_slices(errors.items())]
    )


def error_response(request: DeleteGroupsRequest, error: ErrorCode, message: str) -> DeleteGroupsResponse:
    """The error for every group."""
    del message
    return DeleteGroupsResponse(
        results=[Result(group_id=name, error_code=error) for name in dict.fromkeys(request.groups_names)]
    )
