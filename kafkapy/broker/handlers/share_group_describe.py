"""ShareGroupDescribe, API key 77: version 1.

The response gives the state of share groups with their members and assignments. A group of another protocol is
GROUP_ID_NOT_FOUND.

Versions:
1: the API (KIP-932). Version 0 of Apache Kafka's early access is not served.

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.coordinator.group.share.requests import describe_share_error
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation, ResourceType

REQUEST = ShareGroupDescribeRequest
RESPONSE = ShareGroupDescribeResponse

Group = ShareGroupDescribeResponse.Group


async def handle(context: RequestContext, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    """One description for each group.

    Groups that the client may not describe stand first, as in Kafka.
    """
    coordinator = context.broker.coordinators.group.share
    if not coordinator.are_served:
        return error_response(request, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_VERSION.message)
    allowed = await context.authorized_names_in_slices(AclOperation.DESCRIBE, ResourceType.GROUP, request.group_ids)
    denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
    groups = [
        describe_share_error(group_id, denied, None)
        async for group_id in in_slices(request.group_ids)
        if group_id not in allowed
    ]
    async for group_id in in_slices(request.group_ids):
        if group_id not in allowed:
            continue
        group = await coordinator.describe(group_id)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = context.authorized_operations(ResourceType.GROUP, group.group_id)
        groups.append(await _visible(context, group))
    return ShareGroupDescribeResponse(groups=groups)


def error_response(request: ShareGroupDescribeRequest, error: ErrorCode, message: str) -> ShareGroupDescribeResponse:
    """The error for every group."""
    return ShareGroupDescribeResponse(
        groups=[describe_share_error(group_id, error, message) for group_id in request.group_ids]
    )


async def _visible(context: RequestContext, group: Group) -> Group:
    """The group, unless it holds topics that the principal may not describe."""
    topics = {each.topic_name for member in group.members for each in member.assignment.topic_partitions}
    if not topics - await context.authorized_names_in_slices(AclOperation.DESCRIBE, ResourceType.TOPIC, topics):
        return group
    message = "The group has described topic(s) that the client is not authorized to describe."
    return describe_share_error(group.group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)
