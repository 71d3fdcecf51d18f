"""The latest pushed metrics of each client, as series for Prometheus.

`org.apache.kafka.producer.connection.count` becomes `kafka_client_producer_connection_count`; labels tell the client.
Names and labels come from clients, so their characters, lengths and numbers are bounded. Clients push differences
(delta temporality) of counters, which are added up here.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple
from uuid import UUID

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from kafkapy.broker.client_telemetry.instances import Client, id_text

__all__ = ["ClientSeries"]

PREFIX: Final = "kafka_client_"
KAFKA: Final = "org.apache.kafka."
MOST_FAMILIES: Final = 1000
MOST_PARTS: Final = 10_000
"""Resources, scopes, metrics and points of one push; a client of the standard metrics has some hundred."""
MOST_LABELS: Final = 8
LONGEST_NAME: Final = 200
LONGEST_VALUE: Final = 128
RESOURCE_LABELS: Final = ("client_rack", "group_id", "group_instance_id", "group_member_id", "transactional_id")
"""Attributes of a client that become labels."""
GAUGE: Final = "gauge"
COUNTER: Final = "counter"
CUMULATIVE: Final = 2
"""OTLP's AGGREGATION_TEMPORALITY_CUMULATIVE."""
_OTHER: Final = re.compile(r"[^a-zA-Z0-9_]")

Labels = tuple[tuple[str, str], ...]
Key = tuple[str, Labels]


class Point(NamedTuple):
    """One number of a push.

    `replaces`: the value takes the place of the previous one, else it is added.
    """

    name: str
    kind: str
    replaces: bool
    labels: Labels
    value: float


class ClientSeries(Collector):
    """Owns the series. The telemetry thread writes, scrapes read, the control loop forgets."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._families: dict[str, tuple[str, int]] = {}
        """Kind of each family, and the number of its series."""
        self._clients: dict[UUID, tuple[Labels, dict[Key, float]]] = {}
        self._count = 0
        self.dropped = 0

    def __len__(self) -> int:
        return self._count

    def take(self, client: Client, metrics: Any) -> None:
        """Take over a push, a MetricsData of OTLP."""
        points = list(points_of(metrics))
        labels = _client_labels(client, metrics)
        with self._lock:
            series = self._clients.setdefault(client.instance_id, (labels, {}))[1]
            self._clients[client.instance_id] = labels, series
            for point in points:
                self._put(series, point)

    def _put(self, series: dict[Key, float], point: Point) -> None:
        key = point.name, point.labels
        family = self._families.get(point.name)
        if family is not None and family[0] != point.kind:
            self.dropped += 1
            return
        before = series.get(key)
        if before is None:
            if self._count >= self._most or (family is None and len(self._families) >= MOST_FAMILIES):
                self.dropped += 1
                return
            self._count += 1
            self._families[point.name] = point.kind, (0 if family is None else family[1]) + 1
        series[key] = point.value if point.replaces or before is None else before + point.value

    def forget(self, instance_id: UUID) -> None:
        """Drop a client's series. Any thread."""
        with self._lock:
            _, series = self._clients.pop(instance_id, ((), {}))
            self._count -= len(series)
            for name, _ in series:
                kind, count = self._families[name]
                if count == 1:
                    del self._families[name]
                else:
                    self._families[name] = kind, count - 1

    # --- reading ------------------------------------------------------------------------------------------------------

    def collect(self) -> Iterable[Metric]:
        """The present series by family."""
        with self._lock:
            clients = [(labels, dict(series)) for labels, series in self._clients.values()]
            families = {name: kind for name, (kind, _) in self._families.items()}
        metrics = {name: Metric(name, "Pushed by clients (KIP-714).", kind) for name, kind in sorted(families.items())}
        for client_labels, series in clients:
            for (name, labels), value in series.items():
                metric = metrics[name]
                suffix = "_total" if metric.type == COUNTER else ""
                metric.add_sample(f"{name}{suffix}", {**dict(labels), **dict(client_labels)}, value)
        return metrics.values()

    def describe(self) -> Iterable[Metric]:
        """Nothing: the names come from clients."""
        return ()


def points_of(metrics: Any) -> Iterator[Point]:
    """The gauges and sums of a MetricsData with finite numbers, in Prometheus's names.

    MOST_PARTS parts of the tree are looked at: an empty one takes two bytes of a push.
    """
    left = MOST_PARTS
    for resource in metrics.resource_metrics:
        left -= 1
        if left <= 0:
            return
        for scope in resource.scope_metrics:
            left -= 1
            if left <= 0:
                return
            for metric in scope.metrics:
                left -= 1
                if left <= 0:
                    return
                kind = metric.WhichOneof("data")
                if kind == "gauge":
                    data, replaces, shown = metric.gauge, True, GAUGE
                elif kind == "sum":
                    data = metric.sum
                    replaces = data.aggregation_temporality == CUMULATIVE
                    shown = COUNTER if data.is_monotonic else GAUGE
                else:
                    continue
                name = _name(metric.name, shown)
                for point in data.data_points:
                    left -= 1
                    if left <= 0:
                        return
                    value = point.as_double if point.WhichOneof("value") == "as_double" else float(point.as_int)
                    if value - value == 0 and (shown is GAUGE or value >= 0):
                        yield Point(name, shown, replaces, _labels(point.attributes), value)


def _name(name: str, kind: str) -> str:
    text = _OTHER.sub("_", name.removeprefix(KAFKA)[:LONGEST_NAME])
    return PREFIX + (text.removesuffix("_total") if kind == COUNTER else text)


def _labels(attributes: Any) -> Labels:
    labels: dict[str, str] = {}
    for attribute in attributes[:MOST_LABELS]:
        key = _OTHER.sub("_", attribute.key[:LONGEST_VALUE])
        if key and not key[0].isdigit() and not key.startswith("__"):
            labels[key] = _text(attribute.value)
    return tuple(sorted(labels.items()))


def _text(value: Any) -> str:
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return str(value.string_value)[:LONGEST_VALUE]
    if kind in ("int_value", "bool_value", "double_value"):
        return str(getattr(value, kind))
    return ""


def _client_labels(client: Client, metrics: Any) -> Labels:
    labels = {
        "client_instance_id": id_text(client.instance_id),
        "client_id": client.client_id[:LONGEST_VALUE],
        "client_software_name": client.software_name[:LONGEST_VALUE],
        "client_software_version": client.software_version[:LONGEST_VALUE],
    }
    for resource in metrics.resource_metrics[:1]:
        for attribute in resource.resource.attributes[:MOST_LABELS]:
            if attribute.key in RESOURCE_LABELS:
                labels[attribute.key] = _text(attribute.value)
    return tuple(labels.items())
