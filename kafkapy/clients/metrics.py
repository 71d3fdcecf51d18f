"""What a client counts about its connections and requests, in the shape of kafka-python's `metrics()`.

Everything is counted on the loop's thread; reading a number on another thread is safe, a set of numbers need not fit
together. Source of the names: org.apache.kafka.common.network.Selector.SelectorMetrics.
"""

from __future__ import annotations

import time
from typing import Final

__all__ = ["ClientMetrics", "Meter", "NodeMetrics"]

SAMPLES: Final = 2
WINDOW_S: Final = 30.0


class Meter:
    """A sum with its count, its largest value and its rates over the last samples (metrics.num.samples windows of
    metrics.sample.window.ms).
    """

    __slots__ = ("_samples", "_window_s", "count", "total")

    def __init__(self, samples: int = SAMPLES, window_s: float = WINDOW_S) -> None:
        self.total = 0.0
        self.count = 0
        self._window_s = window_s
        # [start of the window, sum, count, maximum], the newest first
        self._samples = [[0.0, 0.0, 0.0, 0.0] for _ in range(max(samples, 1))]

    def record(self, value: float, now_s: float) -> None:
        """Adds a value; `now_s` is monotonic."""
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
        """(seconds, sum, count, maximum) of the windows that are not too old."""
        oldest, total, count, most = now_s, 0.0, 0.0, 0.0
        for start, sum_, number, highest in self._samples:
            if start and now_s - start < self._window_s * len(self._samples):
                oldest = min(oldest, start)
                total += sum_
                count += number
                most = max(most, highest)
        # As Kafka's Rate: whole windows are assumed, so that the first value is no burst.
        return max(now_s - oldest, self._window_s * (len(self._samples) - 1) or self._window_s), total, count, most

    def rate(self, now_s: float) -> float:
        """Sum per second."""
        seconds, total, _, _ = self._recent(now_s)
        return total / seconds

    def count_rate(self, now_s: float) -> float:
        """Values per second."""
        seconds, _, count, _ = self._recent(now_s)
        return count / seconds

    def average(self, now_s: float) -> float:
        """Mean of the recent values; NaN when there is none."""
        _, total, count, _ = self._recent(now_s)
        return total / count if count else float("nan")

    def maximum(self, now_s: float) -> float:
        """Largest of the recent values; NaN when there is none."""
        _, _, count, most = self._recent(now_s)
        return most if count else float("nan")


class NodeMetrics:
    """The counts of one node."""

    __slots__ = ("latency_ms", "requests", "responses")

    def __init__(self, samples: int, window_s: float) -> None:
        self.requests = Meter(samples, window_s)
        self.responses = Meter(samples, window_s)
        self.latency_ms = Meter(samples, window_s)


class ClientMetrics:
    """Owned by a NetworkClient, which counts; `snapshot` is for users."""

    def __init__(self, samples: int = SAMPLES, window_s: float = WINDOW_S) -> None:
        self._samples = samples
        self._window_s = window_s
        self.started_s = time.monotonic()
        self.connections_created = Meter(samples, window_s)
        self.connections_closed = Meter(samples, window_s)
        self.requests = Meter(samples, window_s)
        self.responses = Meter(samples, window_s)
        self.latency_ms = Meter(samples, window_s)
        self.throttle_ms = Meter(samples, window_s)
        self.nodes: dict[int, NodeMetrics] = {}
        self.connection_count = 0
        self.in_flight = 0
        self.bytes_in = 0
        self.bytes_out = 0

    def node(self, node_id: int) -> NodeMetrics:
        """The counts of a node, made when they are first asked for."""
        found = self.nodes.get(node_id)
        if found is None:
            found = self.nodes[node_id] = NodeMetrics(self._samples, self._window_s)
        return found

    def snapshot(self, prefix: str) -> dict[str, dict[str, float]]:
        """{group: {name: value}}: "<prefix>-metrics", and "<prefix>-node-metrics.node-<id>" for every node; `prefix` is
        "producer", "consumer" or "admin-client". Bytes are counted by the I/O thread: rates over the client's life.
        """
        now_s = time.monotonic()
        seconds = max(now_s - self.started_s, 1e-9)
        groups = {
            f"{prefix}-metrics": {
                "connection-count": float(self.connection_count),
                "connection-creation-rate": self.connections_created.count_rate(now_s),
                "connection-creation-total": float(self.connections_created.count),
                "connection-close-rate": self.connections_closed.count_rate(now_s),
                "connection-close-total": float(self.connections_closed.count),
                "request-rate": self.requests.count_rate(now_s),
                "request-total": float(self.requests.count),
                "response-rate": self.responses.count_rate(now_s),
                "response-total": float(self.responses.count),
                "network-io-rate": self.requests.count_rate(now_s) + self.responses.count_rate(now_s),
                "network-io-total": float(self.requests.count + self.responses.count),
                "request-latency-avg": self.latency_ms.average(now_s),
                "request-latency-max": self.latency_ms.maximum(now_s),
                "requests-in-flight": float(self.in_flight),
                "throttle-time-avg": self.throttle_ms.average(now_s),
                "throttle-time-max": self.throttle_ms.maximum(now_s),
                "incoming-byte-rate": self.bytes_in / seconds,
                "incoming-byte-total": float(self.bytes_in),
                "outgoing-byte-rate": self.bytes_out / seconds,
                "outgoing-byte-total": float(self.bytes_out),
            }
        }
        for node_id, node in list(self.nodes.items()):
            groups[f"{prefix}-node-metrics.node-{node_id}"] = {
                "request-rate": node.requests.count_rate(now_s),
                "request-total": float(node.requests.count),
                "response-rate": node.responses.count_rate(now_s),
                "response-total": float(node.responses.count),
                "request-latency-avg": node.latency_ms.average(now_s),
                "request-latency-max": node.latency_ms.maximum(now_s),
            }
        return groups
