"""A client's connection and request metrics, in kafka-python's form of `metrics()`.

The loop's thread counts. Other threads may read a number; several numbers need not be consistent. Source of the names:
org.apache.kafka.common.network.Selector.SelectorMetrics.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

__all__ = ["ClientMetrics", "Meter", "NodeMetrics"]

SAMPLES: Final = 2
WINDOW_S: Final = 30.0


class Meter:
    """A sum with count, maximum and rates over the last samples.

    It keeps metrics.num.samples windows of metrics.sample.window.ms.
    """

    __slots__ = ("_samples", "_window_s", "count", "total")

    def __init__(self, samples: int = SAMPLES, window_s: float = WINDOW_S) -> None:
        self.total = 0.0
        self.count = 0
        self._window_s = window_s
        # [start of the window, sum, count, maximum], newest first
        self._samples = [[0.0, 0.0, 0.0, 0.0] for _ in range(max(samples, 1))]

    def record(self, value: float, now_s: float) -> None:
        """Adds a value; `now_s` is monotonic time in seconds."""
        self.total += value
        self.count += 1
        sample = self._samples[0]
        if now_s - sample[0] >= self._window_s:
            sample = self._samples.pop()
            sample[:] = (now_s, 0.0, 0.0, 0.0)
            self._samples.insert(0, sample)
        sample[1] += value
        sample[2] += 1
        if value > sample[3]:
            sample[3] = value

    def _recent(self, now_s: float) -> tuple[float, float, float, float]:
        """(seconds, sum, count, maximum) of the windows that have not expired."""
        oldest, total, count, most = now_s, 0.0, 0.0, 0.0
        for start, sum_, number, highest in self._samples:
            if start and now_s - start < self._window_s * len(self._samples):
                oldest = min(oldest, start)
                total += sum_
                count += number
                most = max(most, highest)
        # As in Kafka's Rate: windows count as whole, so that the first value is no burst.
        return max(now_s - oldest, self._window_s * (len(self._samples) - 1) or self._window_s), total, count, most

    def rate(self, now_s: float) -> float:
        """The sum per second."""
        seconds, total, _, _ = self._recent(now_s)
        return total / seconds

    def count_rate(self, now_s: float) -> float:
        """The number of values per second."""
        seconds, _, count, _ = self._recent(now_s)
        return count / seconds

    def average(self, now_s: float) -> float:
        """The mean of the recent values; NaN without values."""
        _, total, count, _ = self._recent(now_s)
        return total / count if count else math.nan

    def maximum(self, now_s: float) -> float:
        """The largest recent value; NaN without values."""
        _, _, count, most = self._recent(now_s)
        return most if count else math.nan


class NodeMetrics:
    """The request metrics of one node.

    Each answered request has a latency, so the latency count is also the count of responses.
    """

    __slots__ = ("latency_ms", "requests")

    def __init__(self, samples: int, window_s: float) -> None:
        self.requests = Meter(samples, window_s)
        self.latency_ms = Meter(samples, window_s)

    def snapshot(self, now_s: float) -> dict[str, float]:
        """{name: value} at this time."""
        return {
            "request-rate": self.requests.rate(now_s),
            "request-total": self.requests.total,
            "response-rate": self.latency_ms.count_rate(now_s),
            "response-total": float(self.latency_ms.count),
            "request-latency-avg": self.latency_ms.average(now_s),
            "request-latency-max": self.latency_ms.maximum(now_s),
        }


AUTHENTICATIONS: Final = (
    "successful-authentication",
    "failed-authentication",
    "successful-reauthentication",
    "failed-reauthentication",
)
"""Kafka's names of the counts."""


class ClientMetrics:
    """The connection metrics of a client. Its NetworkClient counts; users read `snapshot`."""

    def __init__(self, samples: int = SAMPLES, window_s: float = WINDOW_S) -> None:
        self._samples = samples
        self._window_s = window_s
        self.started_s = time.monotonic()
        self.connections_created = Meter(samples, window_s)
        self.connections_closed = Meter(samples, window_s)
        self.throttle_ms = Meter(samples, window_s)
        self.authentications = {name: Meter(samples, window_s) for name in AUTHENTICATIONS}
        self.reauthentication_ms = Meter(samples, window_s)
        self.nodes: dict[int, NodeMetrics] = {}
        self.connection_count = 0
        self.in_flight = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.refresh: Callable[[], object] | None = None
        """Updates the two byte counts of the I/O thread; None after the client is closed."""

    def node(self, node_id: int) -> NodeMetrics:
        """The metrics of a node, created on first use."""
        found = self.nodes.get(node_id)
        if found is None:
            found = self.nodes[node_id] = NodeMetrics(self._samples, self._window_s)
        return found

    def connected(self, now_s: float) -> None:
        """Counts a new connection."""
        self.connections_created.record(1, now_s)
        self.connection_count += 1

    def disconnected(self, now_s: float) -> None:
        """Counts a closed connection."""
        self.connections_closed.record(1, now_s)
        self.connection_count -= 1

    def authenticated(self, now_s: float, latency_s: float, *, successful: bool, again: bool) -> None:
        """Counts an authentication, or a re-authentication, of a connection."""
        outcome, what = "successful" if successful else "failed", "reauthentication" if again else "authentication"
        self.authentications[f"{outcome}-{what}"].record(1, now_s)
        if again and successful:
            self.reauthentication_ms.record(latency_s * 1000, now_s)

    def submitted(self, node_id: int, now_s: float) -> None:
        """Counts a request to the I/O thread."""
        self.in_flight += 1
        self.node(node_id).requests.record(1, now_s)

    def answered(self, node_id: int, now_s: float, latency_s: float) -> None:
        """Counts a response, or the write of a request without response."""
        self.in_flight -= 1
        self.node(node_id).latency_ms.record(latency_s * 1000, now_s)

    def snapshot(self, prefix: str) -> dict[str, dict[str, float]]:
        """{group: {name: value}} of all metrics.

        The groups are "<prefix>-metrics", and "<prefix>-node-metrics.node-<id>" per node; `prefix` is "producer",
        "consumer" or "admin-client". The I/O thread counts bytes; their rates are averages over the client's life.
        """
        refresh = self.refresh
        if refresh is not None:
            refresh()
        now_s = time.monotonic()
        seconds = max(now_s - self.started_s, 1e-9)
        nodes = {node_id: node.snapshot(now_s) for node_id, node in list(self.nodes.items())}

        def total(name: str) -> float:
            return math.fsum(node[name] for node in nodes.values())

        responses = total("response-total")
        latency_ms = math.fsum(node.latency_ms.total for node in list(self.nodes.values()))
        slowest = [node["request-latency-max"] for node in nodes.values() if node["request-latency-max"] >= 0]
        client = {
            "connection-count": float(self.connection_count),
            "connection-creation-rate": self.connections_created.count_rate(now_s),
            "connection-creation-total": float(self.connections_created.count),
            "connection-close-rate": self.connections_closed.count_rate(now_s),
            "connection-close-total": float(self.connections_closed.count),
            **{f"{name}-rate": meter.count_rate(now_s) for name, meter in self.authentications.items()},
            **{f"{name}-total": float(meter.count) for name, meter in self.authentications.items()},
            "reauthentication-latency-avg": self.reauthentication_ms.average(now_s),
            "reauthentication-latency-max": self.reauthentication_ms.maximum(now_s),
            "request-rate": total("request-rate"),
            "request-total": total("request-total"),
            "response-rate": total("response-rate"),
            "response-total": responses,
            "network-io-rate": total("request-rate") + total("response-rate"),
            "network-io-total": total("request-total") + responses,
            "request-latency-avg": latency_ms / responses if responses else math.nan,
            "request-latency-max": max(slowest, default=math.nan),
            "requests-in-flight": float(self.in_flight),
            "throttle-time-avg": self.throttle_ms.average(now_s),
            "throttle-time-max": self.throttle_ms.maximum(now_s),
            "incoming-byte-rate": self.bytes_in / seconds,
            "incoming-byte-total": float(self.bytes_in),
            "outgoing-byte-rate": self.bytes_out / seconds,
            "outgoing-byte-total": float(self.bytes_out),
        }
        groups = {f"{prefix}-metrics": client}
        groups.update({f"{prefix}-node-metrics.node-{node_id}": node for node_id, node in nodes.items()})
        return groups
