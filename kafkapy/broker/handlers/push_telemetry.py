"""PushTelemetry, API key 72: version 0.

A client pushes its metrics, an OTLP message (MetricsData), compressed as GetTelemetrySubscriptions allows. The broker
shows them at `metrics.listeners` and passes them to `kafkapy.client.telemetry.receivers`. Errors: INVALID_REQUEST for a
reserved client instance id and after the last push, THROTTLING_QUOTA_EXCEEDED before a push is due,
UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE, and INVALID_RECORD for metrics that the
broker cannot read or a receiver refuses.

Versions:
0: the API (KIP-714).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.broker.handlers.get_telemetry_subscriptions import client_of
from kafkapy.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

REQUEST = PushTelemetryRequest
RESPONSE = PushTelemetryResponse


async def handle(context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Take one push."""
    await context.broker.client_telemetry.push(
        client_of(context, request.client_instance_id),
        request.subscription_id,
        request.terminating,
        request.compression_type,
        request.metrics,
    )
    return PushTelemetryResponse()
