"""ConsumerGroupDescribe, API key 69: versions 0 to 1.

The response gives the state of consumer groups with their members, their current and their target assignments. A
group of another protocol is GROUP_ID_NOT_FOUND, as in Kafka.

Versions:
0: the API (KIP-848).
1: the protocol that each member uses (KIP-1099).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.coordinator.group.consumer.requests import describe_error
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation, ResourceType

REQUEST = ConsumerGroupDescribeRequest
RESPONSE = ConsumerGroupDescribeResponse

Group = ConsumerGroupDescribeResponse.Group


async def handle(context: RequestContext, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    """One description for each group.

    Groups that the client may not describe stand first, as in Kafka.
    """
    coordinator = context.broker.coordinators.group
    if not coordinator.serves_consumer_protocol:
        return error_response(request, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_VERSION.message)
    allowed = await context.authorized_names_in_slices(AclOperation.DESCRIBE, ResourceType.GROUP, request.group_ids)
    denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
    groups = [
        describe_error(group_id, denied, None)
        async for group_id in in_slices(request.group_ids)
        if group_id not in allowed
    ]
    async for group_id in in_slices(request.group_ids):
        if group_id not in allowed:
            continue
        group = await coordinator.describe_consumer(group_id)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = context.authorized_operations(ResourceType.GROUP, group.group_id)
        groups.append(await _visible(context, group))
    return ConsumerGroupDescribeResponse(groups=groups)


def error_response(
    request: ConsumerGroupDescribeRequest, error: ErrorCode, message: str
) -> ConsumerGroupDescribeResponse:
    """The error for every group."""
    return ConsumerGroupDescribeResponse(
        groups=[describe_error(group_id, error, message) for group_id in request.group_ids]
    )


async def _visible(context: RequestContext, group: Group) -> Group:
    """The group, unless it holds topics that the principal may not describe."""
    topics = {
        each.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for each in assignment.topic_partitions
    }
    if not topics - await context.authorized_names_in_slices(AclOperation.DESCRIBE, ResourceType.TOPIC, topics):
        return group
    message = "The group has described topic(s) that the client is not authorized to describe."
    return describe_error(group.group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)
