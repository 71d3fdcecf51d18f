"""A consumer's metrics of fetches and polls, under Kafka's names.

Sources: org.apache.kafka.clients.consumer.internals.FetchMetricsRegistry (4.1) and KafkaConsumerMetrics. The buffer
counts the records, so nothing happens per record.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kafkapy.clients.metrics import Meter

if TYPE_CHECKING:
    from kafkapy._speedups.clients.consumer.record_iterator import FetchBuffer
    from kafkapy.clients.consumer.subscription import SubscriptionState

__all__ = ["FetchMetrics", "PollMetrics"]

GROUP = "consumer-fetch-manager-metrics"


class FetchMetrics:
    """The metrics of one consumer since its creation. On the loop's thread."""

    def __init__(self, buffer: FetchBuffer, subscription: SubscriptionState, read_committed: bool) -> None:
        self._buffer = buffer
        self._subscription = subscription
        self._read_committed = read_committed
        self._started = time.monotonic()
        self._latency_ms = Meter()
        self._throttle_ms = Meter()
        self._bytes = Meter()

    def fetched(self, latency_s: float, throttle_ms: int) -> None:
        """Counts a response."""
        now = time.monotonic()
        self._latency_ms.record(latency_s * 1000, now)
        self._throttle_ms.record(throttle_ms, now)

    def received(self, size: int) -> None:
        """Counts the bytes in memory of one partition's records in a response."""
        self._bytes.record(size, time.monotonic())

    def read(self) -> dict[str, dict[str, Any]]:
        """Values by group and name.

        Rates are per second, rates of records since the consumer's creation; times are in ms.
        """
        now = time.monotonic()
        fetches = self._latency_ms.count
        records = self._buffer.records
        groups: dict[str, dict[str, Any]] = {}
        lags = []
        for state in self._subscription.all_states:
            lag = state.lag(self._read_committed)
            position, start = state.buffer.position, state.log_start_offset
            topic, number = state.topic_partition
            groups[f"{GROUP}.{topic.replace('.', '_')}-{number}"] = {
                "records-lag": lag,
                "records-lead": None if start is None or position < 0 else position - start,
                "preferred-read-replica": state.preferred_read_replica,
            }
            if lag is not None:
                lags.append(lag)
        groups[GROUP] = {
            "fetch-total": fetches,
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
            "records-per-request-avg": records / max(fetches, 1),
            "records-lag-max": max(lags, default=None),
            "buffered-bytes": self._buffer.bytes,
        }
        return groups


class PollMetrics:
    """The polls of one consumer. On the user's thread; others read.

    A step of an iteration counts as a poll when it finds no fetched record.
    """

    __slots__ = ("_apart_ms", "_began", "_ended", "_idle", "_outside")

    def __init__(self) -> None:
        self._apart_ms = Meter()
        self._idle = Meter()
        self._began = self._ended = self._outside = 0.0

    def begin(self) -> None:
        """A poll begins."""
        now = time.monotonic()
        self._apart_ms.record((now - self._began) * 1000 if self._began else 0.0, now)
        self._outside = now - self._ended if self._ended else 0.0
        self._began = now

    def end(self) -> None:
        """The poll ends."""
        now = self._ended = time.monotonic()
        inside = now - self._began
        whole = inside + self._outside
        self._idle.record(inside / whole if whole > 0 else 1.0, now)

    def read(self) -> dict[str, float]:
        """Values by name.

        Times are in ms; the idle ratio is the share of time inside polls.
        """
        now = time.monotonic()
        return {
            "last-poll-seconds-ago": float(int(now - self._began)) if self._began else -1.0,
            "time-between-poll-avg": self._apart_ms.average(now),
            "time-between-poll-max": self._apart_ms.maximum(now),
            "poll-idle-ratio-avg": self._idle.average(now),
        }
