"""Pushes of clients' metrics (KIP-714) for tests: subscriptions, OTLP messages, and their exchange with a broker."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kafkapy.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from kafkapy.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkapy.protocol.messages.push_telemetry import PushTelemetryRequest
from kafkapy.types import ZERO_UUID, ConfigResourceType

DELTA, CUMULATIVE = 1, 2


def subscribe(client: Any, name: str, **keys: str | None) -> None:
    """Set keys of a subscription, written with underscores for dots; None deletes one."""
    Resource = IncrementalAlterConfigsRequest.Resource
    configs = [
        Resource.Config(name=key.replace("_", "."), config_operation=0 if value is not None else 1, value=value)
        for key, value in keys.items()
    ]
    kind = ConfigResourceType.CLIENT_METRICS
    request = IncrementalAlterConfigsRequest(
        resources=[Resource(resource_type=kind, resource_name=name, configs=configs)], validate_only=False
    )
    answer = client(request, 1).responses[0]
    assert answer.error_code == 0, answer.error_message


def get(client: Any, instance_id: UUID = ZERO_UUID, client_id: str = "test") -> Any:
    """GetTelemetrySubscriptions."""
    return client(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0, client_id)


def push(
    client: Any,
    instance_id: UUID,
    subscription_id: int,
    metrics: bytes = b"",
    *,
    compression: int = 0,
    terminating: bool = False,
    client_id: str = "test",
) -> int:
    """The error code of a PushTelemetry."""
    request = PushTelemetryRequest(
        client_instance_id=instance_id,
        subscription_id=subscription_id,
        terminating=terminating,
        compression_type=compression,
        metrics=metrics,
    )
    code: int = client(request, 0, client_id).error_code
    return code


def otlp(
    gauges: dict[str, float] | None = None,
    totals: dict[str, float] | None = None,
    *,
    temporality: int = DELTA,
    attributes: dict[str, str] | None = None,
    resource: dict[str, str] | None = None,
) -> bytes:
    """A MetricsData with these metrics by name."""
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    data = MetricsData()
    part = data.resource_metrics.add()
    for key, text in (resource or {}).items():
        part.resource.attributes.add(key=key).value.string_value = text
    scope = part.scope_metrics.add()
    for name, value in (gauges or {}).items():
        point = scope.metrics.add(name=name).gauge.data_points.add(as_double=value)
        for key, text in (attributes or {}).items():
            point.attributes.add(key=key).value.string_value = text
    for name, value in (totals or {}).items():
        total = scope.metrics.add(name=name).sum
        total.is_monotonic, total.aggregation_temporality = True, temporality
        total.data_points.add(as_int=int(value))
    payload: bytes = data.SerializeToString()
    return payload
