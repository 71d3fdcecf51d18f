"""PushTelemetry, API key 72."""

from uuid import UUID

from kafkapy.protocol.schema import Request, Response, boolean, bytes_, int8, int16, int32, uuid


class PushTelemetryRequest(Request, key=72, versions="0", flexible="0+"):
    """A client pushes its metrics as an OTLP message (KIP-714)."""

    client_instance_id: UUID = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = bytes_()


class PushTelemetryResponse(Response, key=72, versions="0", flexible="0+"):
    """Whether the metrics were taken."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
