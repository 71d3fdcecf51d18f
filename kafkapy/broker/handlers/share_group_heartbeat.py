"""ShareGroupHeartbeat, API key 76: version 1.

A member of a share group joins, stays alive, changes its subscription and leaves, all by heartbeats.

Versions:
1: the API (KIP-932). Version 0 of Apache Kafka's early access is not served.

Known gaps: none. A member whose assignment is under way is told a short heartbeat interval, so that it gets its
partitions at once; Apache Kafka lets it wait for the configured interval.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from kafkapy.broker.context import DECISIONS, RequestContext
from kafkapy.coordinator.group.share.requests import ShareClient
from kafkapy.coordinator.result import Later
from kafkapy.errors import ErrorCode, error_for
from kafkapy.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kafkapy.types import AclOperation, ResourceType

REQUEST = ShareGroupHeartbeatRequest
RESPONSE = ShareGroupHeartbeatResponse


def handle(
    context: RequestContext, request: ShareGroupHeartbeatRequest
) -> Later[ShareGroupHeartbeatResponse] | Coroutine[Any, Any, ShareGroupHeartbeatResponse]:
    """The member's epoch, and its assignment where that is new to it.

    The topics of a large subscription are authorized in slices, those of any other without a task.
    """
    if not context.broker.coordinators.group.share.are_served:
        raise error_for(ErrorCode.UNSUPPORTED_VERSION)
    if not context.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id):
        raise error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    names = set(request.subscribed_topic_names or ())
    if len(names) > DECISIONS and not context.allows_all:
        return _handle_large(context, request, names)
    return _beat(context, request, names, context.authorized_names(AclOperation.DESCRIBE, ResourceType.TOPIC, names))


async def _handle_large(
    context: RequestContext, request: ShareGroupHeartbeatRequest, names: set[str]
) -> ShareGroupHeartbeatResponse:
    allowed = await context.authorized_names_in_slices(AclOperation.DESCRIBE, ResourceType.TOPIC, names)
    return await _beat(context, request, names, allowed)


def _beat(
    context: RequestContext, request: ShareGroupHeartbeatRequest, names: set[str], allowed: set[str]
) -> Later[ShareGroupHeartbeatResponse]:
    if names - allowed:
        raise error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    client = ShareClient(context.client_id or "", f"/{context.client_address}")
    return context.broker.coordinators.group.share.heartbeat(client, request)


def error_response(request: ShareGroupHeartbeatRequest, error: ErrorCode, message: str) -> ShareGroupHeartbeatResponse:
    """The error with its message."""
    del request
    return ShareGroupHeartbeatResponse(error_code=error, error_message=message, member_epoch=0, heartbeat_interval_ms=0)
