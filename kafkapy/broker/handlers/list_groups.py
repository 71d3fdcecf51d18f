"""ListGroups, API key 16: versions 0 to 5.

The response lists the groups that this broker coordinates.

Versions:
0: the API.
1: throttle time in the response.
2: the response leaves before the pause of a throttled client (KIP-219).
3: flexible encoding with tagged fields (KIP-482).
4: filter by state, and the state of each group (KIP-518).
5: filter by type, and the type of each group (KIP-848).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation, ResourceType

REQUEST = ListGroupsRequest
RESPONSE = ListGroupsResponse


async def handle(context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    """All groups that the principal may describe.

    DESCRIBE on the cluster covers every group.
    """
    groups = await context.broker.coordinators.group.list_groups(request.states_filter, request.types_filter)
    if not context.authorize(AclOperation.DESCRIBE, ResourceType.CLUSTER, log_if_denied=False):
        visible = await context.authorized_names_in_slices(
            AclOperation.DESCRIBE, ResourceType.GROUP, (group.group_id for group in groups), log_if_denied=False
        )
        groups = [group async for group in in_slices(groups) if group.group_id in visible]
    return ListGroupsResponse(groups=groups)
