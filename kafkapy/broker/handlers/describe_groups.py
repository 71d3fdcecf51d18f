"""DescribeGroups, API key 15: versions 0 to 6.

The response gives the state of classic groups with their members. A group of another protocol is unknown, as in
Kafka.

Versions:
0: the API.
1: throttle time in the response.
2: the response leaves before the pause of a throttled client (KIP-219).
3: operations that the client may do on the group (KIP-430).
4: group.instance.id of members (KIP-345).
5: flexible encoding with tagged fields (KIP-482).
6: error message; GROUP_ID_NOT_FOUND for an unknown group, which was Dead before (KIP-1043).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import NO_AUTHORIZED_OPERATIONS, RequestContext
from kafkapy.errors import ErrorCode, KafkaError, code_of
from kafkapy.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation, ResourceType

REQUEST = DescribeGroupsRequest
RESPONSE = DescribeGroupsResponse

Group = DescribeGroupsResponse.Group
FIRST_WITH_GROUP_ID_NOT_FOUND = 6
DEAD = "Dead"


async def handle(context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """One description for each group, in the order asked."""
    allowed = await context.authorized_names_in_slices(AclOperation.DESCRIBE, ResourceType.GROUP, request.groups)
    groups = []
    async for group_id in in_slices(request.groups):
        if group_id not in allowed:
            groups.append(_failed(context, group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
            continue
        group = await _describe(context, group_id)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = context.authorized_operations(ResourceType.GROUP, group_id)
        groups.append(group)
    return DescribeGroupsResponse(groups=groups)


def error_response(request: DescribeGroupsRequest, error: ErrorCode, message: str) -> DescribeGroupsResponse:
    """The error for every group."""
    del message
    return DescribeGroupsResponse(groups=[_empty(group_id, error) for group_id in request.groups])


async def _describe(context: RequestContext, group_id: str) -> Group:
    try:
        found = await context.broker.coordinators.group.describe_classic(group_id)
    except KafkaError as error:
        return _failed(context, group_id, code_of(error))
    if found is not None:
        return found
    if context.api_version >= FIRST_WITH_GROUP_ID_NOT_FOUND:
        group = _failed(context, group_id, ErrorCode.GROUP_ID_NOT_FOUND)
    else:
        group = _empty(group_id, ErrorCode.NONE)
    group.group_state = DEAD
    return group


def _failed(context: RequestContext, group_id: str, error: ErrorCode) -> Group:
    group = _empty(group_id, error)
    if context.api_version >= FIRST_WITH_GROUP_ID_NOT_FOUND:
        group.error_message = error.message
    return group


def _empty(group_id: str, error: ErrorCode) -> Group:
    return Group(
        error_code=error,
        group_id=group_id,
        group_state="",
        protocol_type="",
        protocol_data="",
        members=[],
        authorized_operations=NO_AUTHORIZED_OPERATIONS,
    )
