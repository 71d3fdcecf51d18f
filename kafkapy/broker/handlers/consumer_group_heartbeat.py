"""ConsumerGroupHeartbeat, API key 68: versions 0 to 1.

A member of a consumer group joins, stays alive, changes its subscription, revokes and receives partitions, and
leaves, all by heartbeats.

Versions:
0: the API (KIP-848).
1: subscription by regular expression (KIP-848); the client makes the member id (KIP-1082).

Known gaps: none.
"""

from __future__ import annotations

from collections.abc import Coroutine
from collections.abc import Set as AbstractSet
from typing import Any, Final

from kafkapy.broker.context import DECISIONS, RequestContext
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
NO_NAMES: Final[frozenset[str]] = frozenset()


def handle(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> Later[ConsumerGroupHeartbeatResponse] | Coroutine[Any, Any, ConsumerGroupHeartbeatResponse]:
    """The member's epoch, and its assignment where that is new to it.

    The topics of a large subscription are authorized in slices, those of any other without a task.
    """
    _check_group(context, request)
    if not request.subscribed_topic_names:
        return _beat(context, request, NO_NAMES, NO_NAMES)
    names = set(request.subscribed_topic_names)
    if len(names) > DECISIONS and not context.allows_all:
        return _handle_large(context, request, names)
    return _beat(context, request, names, context.authorized_names(AclOperation.DESCRIBE, ResourceType.TOPIC, names))


async def _handle_large(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest, names: set[str]
) -> ConsumerGroupHeartbeatResponse:
    allowed = await context.authorized_names_in_slices(AclOperation.DESCRIBE, ResourceType.TOPIC, names)
    return await _beat(context, request, names, allowed).wait()


def _check_group(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> None:
    if not context.broker.coordinators.group.serves_consumer_protocol:
        raise error_for(ErrorCode.UNSUPPORTED_VERSION)
    if not context.authorize(AclOperation.READ, ResourceType.GROUP, request.group_id):
        raise error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED)


def _beat(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest, names: AbstractSet[str], allowed: AbstractSet[str]
) -> Later[ConsumerGroupHeartbeatResponse]:
    if names - allowed:
        raise error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    client = ConsumerClient(
        context.client_id or "",
        f"/{context.client_address}",
        lambda topics: context.authorized_names(AclOperation.DESCRIBE, ResourceType.TOPIC, topics, log_if_denied=False),
    )
    return context.broker.coordinators.group.consumer_heartbeat(client, request, context.api_version)


def error_response(
    request: ConsumerGroupHeartbeatRequest, error: ErrorCode, message: str
) -> ConsumerGroupHeartbeatResponse:
    """The error with its message."""
    del request
    return ConsumerGroupHeartbeatResponse(
        error_code=error, error_message=message, member_epoch=0, heartbeat_interval_ms=0
    )
