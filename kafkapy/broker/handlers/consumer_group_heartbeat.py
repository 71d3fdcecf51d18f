"""ConsumerGroupHeartbeat, API key 68: versions 0 to 1.

A member of a consumer group joins, stays alive, changes its subscription, revokes and receives partitions, and
leaves, all by heartbeats.

Versions:
0: the API (KIP-848).
1: subscription by regular expression (KIP-848); the client makes the member id (KIP-1082).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.coordinator.group.consumer.requests import ConsumerClient
from kafkapy.coordinator.result import Later
from kafkapy.errors import ErrorCode, error_for
from kafkapy.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kafkapy.types import AclOperation, ResourceType

REQUEST = ConsumerGroupHeartbeatRequest
RESPONSE = ConsumerGroupHeartbeatResponse


def handle(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Later[ConsumerGroupHeartbeatResponse]:
    """The member's epoch, and its assignment where that is new to it."""
    coordinator = context.broker.coordinators.group
    if not coordinator.serves_consumer_protocol:
        raise error_for(ErrorCode.UNSUPPORTED_VERSION)
    if not context.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id):
        raise error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    names = set(request.subscribed_topic_names or ())
    if names - context.authorized_names(AclOperation.DESCRIBE, ResourceType.TOPIC, names):
        raise error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    client = ConsumerClient(
        context.client_id or "",
        f"/{context.client_address}",
        lambda topics: context.authorized_names(AclOperation.DESCRIBE, ResourceType.TOPIC, topics, log_if_denied=False),
    )
    return coordinator.consumer_heartbeat(client, request, context.api_version)


def error_response(
    request: ConsumerGroupHeartbeatRequest, error: ErrorCode, message: str
) -> ConsumerGroupHeartbeatResponse:
    """The error with its message."""
    del request
    return ConsumerGroupHeartbeatResponse(
        error_code=error, error_message=message, member_epoch=0, heartbeat_interval_ms=0
    )
