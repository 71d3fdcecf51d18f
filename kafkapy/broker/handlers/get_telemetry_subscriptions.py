"""GetTelemetrySubscriptions, API key 71: version 0.

A client asks which metrics to push, how often and in which compression. A zero client instance id gets a new one. The
API is served where somebody reads the metrics (`metrics.listeners` or `kafkapy.client.telemetry.receivers`) and the
extra `telemetry` is installed. A request before the next push is due is THROTTLING_QUOTA_EXCEEDED.

Versions:
0: the API (KIP-714).

Known gaps: none.
"""

from __future__ import annotations

from uuid import UUID, uuid4

from kafkapy.broker.client_telemetry.instances import ACCEPTED_COMPRESSION, Client, is_reserved
from kafkapy.broker.context import RequestContext
from kafkapy.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

REQUEST = GetTelemetrySubscriptionsRequest
RESPONSE = GetTelemetrySubscriptionsResponse


async def handle(
    context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """The client's subscription."""
    telemetry = context.broker.client_telemetry
    instance_id = request.client_instance_id if request.client_instance_id.int else _new_id()
    instance = telemetry.instances.get(client_of(context, instance_id))
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=[int(codec) for codec in ACCEPTED_COMPRESSION],
        push_interval_ms=instance.interval_ms,
        telemetry_max_bytes=telemetry.max_bytes(),
        delta_temporality=True,
        requested_metrics=list(instance.metrics),
    )


def client_of(context: RequestContext, instance_id: UUID) -> Client:
    """The client of a request."""
    request = context.request
    return Client(
        instance_id,
        context.client_id or "",
        request.client_software_name,
        request.client_software_version,
        request.peer_host,
        request.peer_port,
    )


def _new_id() -> UUID:
    while is_reserved(made := uuid4()):
        pass
    return made
