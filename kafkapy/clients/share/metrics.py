"""A share consumer's metrics, under Kafka's names.

Source: org.apache.kafka.clients.consumer.internals.ShareFetchMetricsRegistry and ShareRebalanceMetricsManager (4.4).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kafkapy.clients.consumer.membership.metrics import CoordinatorMetrics
from kafkapy.clients.metrics import Meter

if TYPE_CHECKING:
    from kafkapy._speedups.clients.consumer.record_iterator import FetchBuffer

__all__ = ["ShareCoordinatorMetrics", "ShareMetrics"]

GROUP = "consumer-share-fetch-manager-metrics"
COORDINATOR_GROUP = "consumer-share-coordinator-metrics"
OF_THE_MEMBER = (
    "heartbeat-rate",
    "heartbeat-response-time-max",
    "heartbeat-total",
    "last-heartbeat-seconds-ago",
    "rebalance-rate-per-hour",
    "rebalance-total",
)


class ShareMetrics:
    """The metrics of one share consumer since its creation. On the loop's thread."""

    def __init__(self, buffer: FetchBuffer) -> None:
        self._buffer = buffer
        self._started = time.monotonic()
        self._latency_ms = Meter()
        self._throttle_ms = Meter()
        self._bytes = Meter()
        self._records = Meter()
        self._acknowledged = Meter()
        self._failed = Meter()

    def fetched(self, latency_s: float, throttle_ms: int) -> None:
        """Counts a response."""
        now = time.monotonic()
        self._latency_ms.record(latency_s * 1000, now)
        self._throttle_ms.record(throttle_ms, now)

    def received(self, size: int, records: int) -> None:
        """Counts the bytes and acquired offsets of one partition in a response."""
        now = time.monotonic()
        self._bytes.record(size, now)
        self._records.record(records, now)

    def acknowledged(self, records: int) -> None:
        """Counts acknowledgements that are sent."""
        self._acknowledged.record(records, time.monotonic())

    def not_acknowledged(self, records: int) -> None:
        """Counts acknowledgements that failed."""
        self._failed.record(records, time.monotonic())

    def read(self) -> dict[str, dict[str, Any]]:
        """Values by group and name. Rates are per second, times in ms."""
        now = time.monotonic()
        records = self._buffer.records
        return {
            GROUP: {
                "fetch-total": self._latency_ms.count,
                "fetch-rate": self._latency_ms.count_rate(now),
                "fetch-latency-avg": self._latency_ms.average(now),
                "fetch-latency-max": self._latency_ms.maximum(now),
                "fetch-throttle-time-avg": self._throttle_ms.average(now),
                "fetch-throttle-time-max": self._throttle_ms.maximum(now),
                "fetch-size-avg": self._bytes.average(now),
                "fetch-size-max": self._bytes.maximum(now),
                "bytes-consumed-total": int(self._bytes.total),
                "bytes-consumed-rate": self._bytes.rate(now),
                "records-consumed-total": records,
                "records-consumed-rate": records / max(now - self._started, 1e-9),
                "records-per-request-avg": self._records.average(now),
                "records-per-request-max": self._records.maximum(now),
                "acknowledgements-send-total": int(self._acknowledged.total),
                "acknowledgements-send-rate": self._acknowledged.rate(now),
                "acknowledgements-error-total": int(self._failed.total),
                "acknowledgements-error-rate": self._failed.rate(now),
            }
        }


class ShareCoordinatorMetrics(CoordinatorMetrics):
    """The metrics of a member of a share group."""

    def read(self, assigned_partitions: int) -> dict[str, dict[str, float]]:
        """Values by group and name."""
        [values] = super().read(assigned_partitions).values()
        return {COORDINATOR_GROUP: {name: values[name] for name in OF_THE_MEMBER}}
