"""The broker's own numbers of client telemetry. Source: ClientMetricsManager.ClientMetricsStats."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkapy.broker.client_telemetry.telemetry import ClientTelemetry

__all__ = ["add_clients"]

PREFIX = "kafka_server_client_metrics"


def add_clients(add: Callable[[str, float], None], telemetry: ClientTelemetry | None) -> None:
    """Add the numbers of client instances, pushes and series; all are 0 without telemetry."""
    numbers: tuple[float, ...] = (0,) * 8
    if telemetry is not None:
        instances, series = telemetry.instances, telemetry.series
        numbers = (
            len(instances),
            instances.unknown_subscriptions,
            instances.throttled,
            telemetry.exports,
            telemetry.export_errors,
            telemetry.export_ms,
            len(series),
            series.dropped,
        )
    names = (
        f"{PREFIX}_instance_count",
        f"{PREFIX}_unknown_subscription_request",
        f"{PREFIX}_throttle",
        f"{PREFIX}_plugin_export",
        f"{PREFIX}_plugin_error",
        f"{PREFIX}_plugin_export_timems",
        "kafkapy_clienttelemetry_series",
        "kafkapy_clienttelemetry_pointsdropped",
    )
    for name, number in zip(names, numbers, strict=True):
        add(name, number)
