"""GetTelemetrySubscriptions, API key 71."""

from uuid import UUID

from kafkapy.protocol.schema import Request, Response, array, boolean, int8, int16, int32, string, uuid


class GetTelemetrySubscriptionsRequest(Request, key=71, versions="0", flexible="0+"):
    """A client asks which of its metrics to push (KIP-714)."""

    client_instance_id: UUID = uuid()


class GetTelemetrySubscriptionsResponse(Response, key=71, versions="0", flexible="0+"):
    """Which metrics to push, how often in ms and in which compression."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    client_instance_id: UUID = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(int8)
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array(string)
