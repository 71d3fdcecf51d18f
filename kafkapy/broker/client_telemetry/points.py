"""The numbers of a push in Prometheus's names, labels and types.

Names, labels and numbers come from clients, so characters, lengths and counts are bounded. Exponential histograms get
the powers of two as bounds, whatever their scale: bounds stay the same when a client changes its scale.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from kafkapy.broker.client_telemetry.instances import Client, id_text

__all__ = ["COUNTER", "GAUGE", "HISTOGRAM", "SUMMARY", "Buckets", "Labels", "Point", "Quantiles", "points_of"]

PREFIX: Final = "kafka_client_"
KAFKA: Final = "org.apache.kafka."
MOST_PARTS: Final = 40_000
"""Resources, scopes, metrics, points and buckets of one push that are looked at.

A client of the standard metrics has some hundred points; Java's clients make four parts of each.
"""
MOST_LABELS: Final = 8
LONGEST_NAME: Final = 200
LONGEST_VALUE: Final = 128
MOST_BUCKETS: Final = 200
"""Buckets of a histogram that is read; the usual ones have 10 to 20, or 160 when they are exponential."""
MOST_QUANTILES: Final = 20
SCALES: Final = range(-11, 21)
EXPONENTS: Final = (-20, 43)
"""The powers of two that bound buckets of exponential histograms; smaller and larger numbers go into the outer ones."""
RESOURCE_LABELS: Final = ("client_rack", "group_id", "group_instance_id", "group_member_id", "transactional_id")
"""Attributes of a client that become labels."""
CLIENT_LABELS: Final = ("client_instance_id", "client_id", "client_software_name", "client_software_version")
TAKEN: Final = frozenset((*CLIENT_LABELS, *RESOURCE_LABELS, "le", "quantile"))
"""Labels with a meaning here: an attribute of a point with such a name gets the prefix `exported_`."""
GAUGE: Final = "gauge"
COUNTER: Final = "counter"
HISTOGRAM: Final = "histogram"
SUMMARY: Final = "summary"
CUMULATIVE: Final = 2
"""OTLP's AGGREGATION_TEMPORALITY_CUMULATIVE."""
NO_VALUE: Final = 1
"""OTLP's DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK."""
_OTHER: Final = re.compile(r"[^a-zA-Z0-9_]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

Labels = tuple[tuple[str, str], ...]


class Buckets(NamedTuple):
    """A histogram: the number of values in each bucket.

    A bucket ends with its bound; the last one has the values above all bounds.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float | None
    has_powers: bool = False
    """Whether the bounds are powers of two, so that others may join them."""

    def plus(self, other: Buckets) -> Buckets:
        """Both together; the other one alone when their bounds cannot be joined."""
        total = None if self.sum is None or other.sum is None else self.sum + other.sum
        if self.bounds == other.bounds:
            return other._replace(counts=tuple(map(int.__add__, self.counts, other.counts)), sum=total)
        if not (self.has_powers and other.has_powers):
            return other
        counts: dict[float, int] = {}
        for each in (self, other):
            for bound, count in zip((*each.bounds, math.inf), each.counts, strict=True):
                counts[bound] = counts.get(bound, 0) + count
        return _with_powers(counts, total)

    @property
    def size(self) -> int:
        """The number of series."""
        return len(self.bounds) + 3


class Quantiles(NamedTuple):
    """A summary."""

    values: tuple[tuple[float, float], ...]
    observed: int
    sum: float | None

    @property
    def size(self) -> int:
        """The number of series."""
        return len(self.values) + 2


class Point(NamedTuple):
    """One number, histogram or summary of a push.

    `replaces`: the value takes the place of the previous one, else it is added.
    """

    name: str
    kind: str
    replaces: bool
    labels: Labels
    value: float | Buckets | Quantiles


def points_of(metrics: Any) -> Iterator[Point]:
    """The points of a MetricsData with numbers that Prometheus can show.

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
                read = _READERS.get(metric.WhichOneof("data"))
                if left <= 0:
                    return
                if read is None:
                    continue
                data, shown, replaces, value_of = read(metric)
                name = _name(metric.name, shown)
                for point in data.data_points:
                    left -= 1
                    if left <= 0:
                        return
                    value = None if point.flags & NO_VALUE else value_of(point)
                    if value is None:
                        continue
                    if not isinstance(value, float):
                        left -= value.size
                    yield Point(name, shown, replaces, _labels(point.attributes), value)


def _gauge(metric: Any) -> tuple[Any, str, bool, Any]:
    return metric.gauge, GAUGE, True, _number


def _sum(metric: Any) -> tuple[Any, str, bool, Any]:
    data = metric.sum
    replaces = data.aggregation_temporality == CUMULATIVE
    return (data, COUNTER, replaces, _positive) if data.is_monotonic else (data, GAUGE, replaces, _number)


def _histogram(metric: Any) -> tuple[Any, str, bool, Any]:
    data = metric.histogram
    return data, HISTOGRAM, data.aggregation_temporality == CUMULATIVE, _buckets


def _exponential_histogram(metric: Any) -> tuple[Any, str, bool, Any]:
    data = metric.exponential_histogram
    return data, HISTOGRAM, data.aggregation_temporality == CUMULATIVE, _exponential_buckets


def _summary(metric: Any) -> tuple[Any, str, bool, Any]:
    return metric.summary, SUMMARY, True, _quantiles


_READERS: Final = {
    "gauge": _gauge,
    "sum": _sum,
    "histogram": _histogram,
    "exponential_histogram": _exponential_histogram,
    "summary": _summary,
}

# --- values; None for those that Prometheus cannot show ---------------------------------------------------------------


def _number(point: Any) -> float | None:
    value = point.as_double if point.WhichOneof("value") == "as_double" else float(point.as_int)
    return value if math.isfinite(value) else None


def _positive(point: Any) -> float | None:
    value = _number(point)
    return value if value is None or value >= 0 else None


def _total(point: Any, bounds: Sequence[float]) -> float | None:
    """The sum of a histogram or summary. A sum of negative values too is no counter and is left out."""
    total = point.sum
    return total if math.isfinite(total) and total >= 0 and not (bounds and bounds[0] < 0) else None


def _buckets(point: Any) -> Buckets | None:
    if len(point.bucket_counts) > MOST_BUCKETS or len(point.explicit_bounds) >= MOST_BUCKETS:
        return None
    counts, bounds = tuple(point.bucket_counts), tuple(point.explicit_bounds)
    if not counts and not bounds:
        counts = (point.count,)
    if len(counts) == len(bounds) and bounds and bounds[-1] == math.inf:
        bounds = bounds[:-1]
    elif len(counts) == len(bounds) + 1 and bounds and bounds[-1] == math.inf:
        bounds, counts = bounds[:-1], (*counts[:-2], counts[-2] + counts[-1])
    rising = all(low < high for low, high in pairwise(bounds))
    if len(counts) != len(bounds) + 1 or not rising or not all(map(math.isfinite, bounds)):
        return None
    return Buckets(bounds, counts, _total(point, bounds) if point.HasField("sum") else None)


def _exponential_buckets(point: Any) -> Buckets | None:
    if point.scale not in SCALES or not math.isfinite(point.zero_threshold) or point.zero_threshold < 0:
        return None
    if len(point.positive.bucket_counts) + len(point.negative.bucket_counts) > MOST_BUCKETS:
        return None
    counts: dict[float, int] = {}
    least, most = EXPONENTS
    for index, count in enumerate(point.negative.bucket_counts, point.negative.offset):
        if count:
            # Values from -base**(index + 1) to -base**index, without the latter.
            exponent = _lower(index, point.scale)
            bound = -(2.0 ** min(exponent, most)) if exponent >= least else 0.0
            counts[bound] = counts.get(bound, 0) + count
    if point.zero_count:
        threshold = point.zero_threshold
        bound = 0.0 if not threshold else _power(math.ceil(math.log2(threshold)))
        counts[bound] = counts.get(bound, 0) + point.zero_count
    for index, count in enumerate(point.positive.bucket_counts, point.positive.offset):
        if count:
            bound = _power(-_lower(-index - 1, point.scale))
            counts[bound] = counts.get(bound, 0) + count
    bounds = sorted(counts)
    return _with_powers(counts, _total(point, bounds) if point.HasField("sum") else None)


def _lower(index: int, scale: int) -> int:
    """The exponent of the power of two at or below base ** index."""
    return index >> scale if scale >= 0 else index << -scale


def _power(exponent: int) -> float:
    least, most = EXPONENTS
    return 2.0 ** max(exponent, least) if exponent <= most else math.inf


def _with_powers(counts: dict[float, int], total: float | None) -> Buckets:
    above = counts.pop(math.inf, 0)
    bounds = tuple(sorted(counts))
    return Buckets(bounds, (*(counts[bound] for bound in bounds), above), total, has_powers=True)


def _quantiles(point: Any) -> Quantiles | None:
    found = {
        each.quantile: each.value
        for each in point.quantile_values[:MOST_QUANTILES]
        if 0 <= each.quantile <= 1 and 0 <= each.value < math.inf
    }
    return Quantiles(tuple(sorted(found.items())), point.count, _total(point, ()))


# --- names and labels -------------------------------------------------------------------------------------------------


def _name(name: str, kind: str) -> str:
    text = _OTHER.sub("_", name.removeprefix(KAFKA)[:LONGEST_NAME])
    return PREFIX + (text.removesuffix("_total") if kind == COUNTER else text)


def _labels(attributes: Any) -> Labels:
    labels: dict[str, str] = {}
    for attribute in attributes[:MOST_LABELS]:
        key = _OTHER.sub("_", attribute.key[:LONGEST_VALUE])
        text = _text(attribute.value)
        if key in TAKEN:
            key = f"exported_{key}"
        if text and key and not key[0].isdigit() and not key.startswith("__"):
            labels[key] = text
    return tuple(sorted(labels.items()))


def _text(value: Any) -> str:
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return shown_text(value.string_value)
    if kind in ("int_value", "bool_value", "double_value"):
        return str(getattr(value, kind))
    return ""


def shown_text(text: str) -> str:
    """A label's value: cut, and without control characters."""
    return _CONTROL.sub("?", text[:LONGEST_VALUE])


def client_labels(client: Client, metrics: Any) -> Labels:
    """The labels of all series of a client."""
    labels = {
        "client_instance_id": id_text(client.instance_id),
        "client_id": shown_text(client.client_id),
        "client_software_name": shown_text(client.software_name),
        "client_software_version": shown_text(client.software_version),
    }
    for resource in metrics.resource_metrics[:1]:
        for attribute in resource.resource.attributes[:MOST_LABELS]:
            if attribute.key in RESOURCE_LABELS:
                labels[attribute.key] = _text(attribute.value)
    return tuple(labels.items())
