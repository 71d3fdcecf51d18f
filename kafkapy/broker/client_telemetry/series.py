"""The latest pushed metrics of each client, as series for Prometheus.

`org.apache.kafka.producer.connection.count` becomes `kafka_client_producer_connection_count`; labels tell the client.
The number of series is bounded. Clients push differences (delta temporality) of counters and histograms, which are
added up here.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable
from itertools import accumulate, islice
from typing import Any, Final
from uuid import UUID

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from kafkapy.broker.client_telemetry.instances import Client
from kafkapy.broker.client_telemetry.points import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    SUMMARY,
    Buckets,
    Labels,
    Point,
    Quantiles,
    client_labels,
    points_of,
)
from kafkapy.broker.metric_samples import REST_S, SLICE

__all__ = ["ClientSeries"]

MOST_FAMILIES: Final = 1000
SUFFIXES: Final = {
    GAUGE: ("",),
    COUNTER: ("", "_total", "_created"),
    HISTOGRAM: ("", "_bucket", "_count", "_sum", "_created"),
    SUMMARY: ("", "_count", "_sum", "_created"),
}
"""The names that a family of each kind has in an exposition."""

Key = tuple[str, Labels]
Value = float | Buckets | Quantiles


class ClientSeries(Collector):
    """Owns the series. The telemetry thread writes, scrapes read, the control loop forgets."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._families: dict[str, tuple[str, int]] = {}
        """Kind of each family, and the number of its points."""
        self._names: dict[str, str] = {}
        """The family of each name in an exposition."""
        self._clients: dict[UUID, tuple[Labels, dict[Key, Value]]] = {}
        self._count = 0
        self.dropped = 0

    def __len__(self) -> int:
        return self._count

    def take(self, client: Client, metrics: Any) -> None:
        """Take over a push, a MetricsData of OTLP."""
        labels = client_labels(client, metrics)
        points = points_of(metrics)
        while some := list(islice(points, SLICE)):
            with self._lock:
                series = self._clients.setdefault(client.instance_id, (labels, {}))[1]
                self._clients[client.instance_id] = labels, series
                for point in some:
                    self._put(series, point)
            if len(some) == SLICE:
                time.sleep(REST_S)

    def _put(self, series: dict[Key, Value], point: Point) -> None:
        key = point.name, point.labels
        kind, used = self._families.get(point.name, (point.kind, 0))
        before = series.get(key)
        value = point.value if point.replaces or before is None else _added(before, point.value)
        more = _size(value) - (0 if before is None else _size(before))
        if kind != point.kind or (more > 0 and self._count + more > self._most):
            self.dropped += 1
            return
        if before is None:
            if not used and not self._name(point.name, kind):
                self.dropped += 1
                return
            self._families[point.name] = kind, used + 1
        self._count += more
        series[key] = value

    def _name(self, family: str, kind: str) -> bool:
        """Take the names of a new family, if all of them are free."""
        names = [family + suffix for suffix in SUFFIXES[kind]]
        if len(self._families) >= MOST_FAMILIES or any(name in self._names for name in names):
            return False
        self._names.update(dict.fromkeys(names, family))
        return True

    def forget(self, instance_id: UUID) -> None:
        """Drop a client's series. Any thread."""
        with self._lock:
            _, series = self._clients.pop(instance_id, ((), {}))
            for (name, _), value in series.items():
                self._count -= _size(value)
                kind, used = self._families[name]
                if used == 1:
                    del self._families[name]
                    for suffix in SUFFIXES[kind]:
                        del self._names[name + suffix]
                else:
                    self._families[name] = kind, used - 1

    # --- reading ------------------------------------------------------------------------------------------------------

    def collect(self) -> Iterable[Metric]:
        """The present series by family."""
        with self._lock:
            clients = [(labels, dict(series)) for labels, series in self._clients.values()]
            families = {name: kind for name, (kind, _) in self._families.items()}
        metrics = {name: Metric(name, "Pushed by clients (KIP-714).", kind) for name, kind in sorted(families.items())}
        for own, series in clients:
            items = iter(series.items())
            while some := list(islice(items, SLICE)):
                for (name, labels), value in some:
                    _show(metrics[name], {**dict(labels), **dict(own)}, value)
                if len(some) == SLICE:
                    time.sleep(REST_S)
        return metrics.values()

    def describe(self) -> Iterable[Metric]:
        """Nothing: the names come from clients."""
        return ()


def _size(value: Value) -> int:
    return 1 if isinstance(value, float) else value.size


def _added(before: Value, value: Value) -> Value:
    """Both together. The value alone after an overflow, as if the client had begun again."""
    if isinstance(before, Buckets) and isinstance(value, Buckets):
        return before.plus(value)
    if isinstance(before, float) and isinstance(value, float):
        return before + value if math.isfinite(before + value) else value
    return value


def _show(metric: Metric, labels: dict[str, str], value: Value) -> None:
    name = metric.name
    if isinstance(value, float):
        metric.add_sample(f"{name}_total" if metric.type == COUNTER else name, labels, value)
        return
    if isinstance(value, Buckets):
        count = 0
        for bound, count in zip((*value.bounds, math.inf), accumulate(value.counts), strict=True):
            metric.add_sample(f"{name}_bucket", {**labels, "le": _go(bound)}, count)
    else:
        count = value.observed
        for quantile, number in value.values:
            metric.add_sample(name, {**labels, "quantile": _go(quantile)}, number)
    if value.sum is not None:  # OpenMetrics has both or none
        metric.add_sample(f"{name}_count", labels, count)
        metric.add_sample(f"{name}_sum", labels, value.sum)


def _go(number: float) -> str:
    text: str = floatToGoString(number)  # type: ignore[no-untyped-call]
    return text
