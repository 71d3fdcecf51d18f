"""Pushed metrics as series: types, bounds, and an exposition that stays whole whatever clients push."""

from __future__ import annotations

import math
import random
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("opentelemetry.proto", reason="the extra telemetry is not installed")

from broker.telemetry_pushes import CUMULATIVE, DELTA, otlp
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from kafkapy.broker.client_telemetry.instances import Client
from kafkapy.broker.client_telemetry.points import MOST_BUCKETS, MOST_PARTS, points_of
from kafkapy.broker.client_telemetry.series import MOST_FAMILIES, ClientSeries
from kafkapy.broker.metric_samples import encode_in_slices

PROMTOOL = shutil.which("promtool")


def client(number: int = 100, client_id: str = "c") -> Client:
    return Client(UUID(int=number), client_id, "", "", "", 0)


def pushes(*metrics: tuple[str, str, dict[str, Any]], temporality: int = DELTA) -> MetricsData:
    """A push with (name, kind, fields of its one point) each."""
    data = MetricsData()
    scope = data.resource_metrics.add().scope_metrics.add()
    for name, kind, fields in metrics:
        part = getattr(scope.metrics.add(name=name), kind)
        attributes, quantiles = fields.get("attributes", {}), fields.get("quantiles", {})
        nested = ("attributes", "quantiles", "positive", "negative")
        point = part.data_points.add(**{key: value for key, value in fields.items() if key not in nested})
        for side in ("positive", "negative"):
            if side in fields:
                offset, counts = fields[side]
                getattr(point, side).offset = offset
                getattr(point, side).bucket_counts.extend(counts)
        for key, text in attributes.items():
            point.attributes.add(key=key).value.string_value = text
        for quantile, value in quantiles.items():
            point.quantile_values.add(quantile=quantile, value=value)
        if kind not in ("gauge", "summary"):
            part.aggregation_temporality = temporality
        if kind == "sum":
            part.is_monotonic = True
    return data


def shown(series: ClientSeries) -> dict[tuple[str, ...], float]:
    """The samples by name and the values of their own labels; both expositions agree and promtool reads them."""
    text = encode_in_slices(series, generate_latest).decode()
    openmetrics = encode_in_slices(series, generate_openmetrics).decode()
    found: list[dict[tuple[Any, ...], float]] = []
    for families in (read_text(text), read_openmetrics(openmetrics or "# EOF\n")):
        samples: dict[tuple[Any, ...], float] = {}
        for family in families:
            for sample in family.samples:
                key = (sample.name.removeprefix("kafka_client_"), *sorted(sample.labels.items()))
                assert key not in samples, "one sample for each name and labels"
                samples[key] = sample.value
        found.append(samples)
    assert found[0] == found[1]
    assert len(found[0]) <= len(series)
    if PROMTOOL is not None:
        done = subprocess.run([PROMTOOL, "check", "metrics"], input=text.encode(), capture_output=True, timeout=60)
        assert done.returncode in (0, 3), done.stderr  # 3: complaints about names
    return {
        (name, *(text for label, text in labels if not label.startswith("client_"))): value
        for (name, *labels), value in found[0].items()
    }


# --- types ------------------------------------------------------------------------------------------------------------


def test_histograms_are_shown_with_cumulative_buckets() -> None:
    series = ClientSeries(100)
    point = {"count": 6, "sum": 9.5, "bucket_counts": [1, 2, 3], "explicit_bounds": [0.5, 2], "attributes": {"n": "1"}}
    series.take(client(), pushes(("h", "histogram", point)))
    assert shown(series) == {
        ("h_bucket", "0.5", "1"): 1,
        ("h_bucket", "2.0", "1"): 3,
        ("h_bucket", "+Inf", "1"): 6,
        ("h_count", "1"): 6,
        ("h_sum", "1"): 9.5,
    }
    assert len(series) == 5


def test_differences_of_histograms_are_added_and_totals_replace() -> None:
    series = ClientSeries(100)
    point = {"count": 3, "sum": 1.5, "bucket_counts": [1, 2], "explicit_bounds": [1]}
    for temporality in (DELTA, DELTA):
        series.take(client(), pushes(("h", "histogram", point), temporality=temporality))
    assert shown(series) == {("h_bucket", "1.0"): 2, ("h_bucket", "+Inf"): 6, ("h_count",): 6, ("h_sum",): 3}
    series.take(client(), pushes(("h", "histogram", point), temporality=CUMULATIVE))
    assert shown(series)["h_count",] == 3


def test_a_histogram_with_other_bounds_begins_again() -> None:
    series = ClientSeries(100)
    for bounds in ([1, 2, 3], [5]):
        point = {"bucket_counts": [1] * (len(bounds) + 1), "explicit_bounds": bounds, "sum": 1.0}
        series.take(client(), pushes(("h", "histogram", point)))
    assert shown(series) == {("h_bucket", "5.0"): 1, ("h_bucket", "+Inf"): 2, ("h_count",): 2, ("h_sum",): 1}
    assert len(series) == 4


def test_a_histogram_of_counts_alone_and_with_an_infinite_bound() -> None:
    series = ClientSeries(100)
    series.take(
        client(),
        pushes(
            ("a", "histogram", {"count": 4}),
            ("b", "histogram", {"bucket_counts": [1, 2], "explicit_bounds": [1, math.inf]}),
            ("c", "histogram", {"bucket_counts": [1, 2, 3], "explicit_bounds": [1, math.inf]}),
            ("d", "histogram", {"bucket_counts": [1, 1], "explicit_bounds": [-5], "sum": 3}),
        ),
    )
    assert shown(series) == {
        ("a_bucket", "+Inf"): 4,
        ("b_bucket", "1.0"): 1,
        ("b_bucket", "+Inf"): 3,
        ("c_bucket", "1.0"): 1,
        ("c_bucket", "+Inf"): 6,
        ("d_bucket", "-5.0"): 1,
        ("d_bucket", "+Inf"): 2,
    }


@pytest.mark.parametrize("scale", range(-11, 21))
def test_exponential_histograms_have_powers_of_two_as_bounds(scale: int) -> None:
    """Each value lies in the shown bucket, whatever the scale."""
    series = ClientSeries(1000)
    chance = random.Random(scale)
    values = [chance.choice((1, -1)) * 2 ** chance.uniform(-30, 50) for _ in range(40)] + [0.0] * 3
    width = 2.0**-scale
    for value in values:
        point: dict[str, Any] = {"scale": scale, "count": 1}
        if value:
            index = math.ceil(math.log2(abs(value)) / width) - 1
            point["positive" if value > 0 else "negative"] = index, [1]
        else:
            point["zero_count"] = 1
        series.take(client(), pushes(("e", "exponential_histogram", point)))
    found = {float(key[1]): value for key, value in shown(series).items() if key[0] == "e_bucket"}
    assert found[math.inf] == len(values)
    for bound, count in found.items():
        # A bucket wider than a power of two is put at its upper bound as a whole.
        assert count <= sum(value <= bound for value in values)
        if scale >= 0:
            assert count == sum(value <= bound for value in values), bound
        assert bound in (0, math.inf) or math.log2(abs(bound)).is_integer()


def test_an_exponential_histogram_changes_its_scale() -> None:
    series = ClientSeries(100)
    for scale, index in ((0, 2), (3, 24), (-1, 1)):  # (4, 8], then the first eighth of (8, 16], and (4, 16]
        point = {"scale": scale, "sum": 1.0, "positive": (index, [5])}
        series.take(client(), pushes(("e", "exponential_histogram", point)))
    assert shown(series) == {
        ("e_bucket", "8.0"): 5,
        ("e_bucket", "16.0"): 15,
        ("e_bucket", "+Inf"): 15,
        ("e_count",): 15,
        ("e_sum",): 3,
    }


def test_summaries_are_shown_with_their_quantiles() -> None:
    series = ClientSeries(100)
    quantiles = {0.5: 2.5, 1.0: 9.0, 1.5: 1.0, 0.9: math.nan, 0.1: -1.0}
    for _ in range(2):
        series.take(client(), pushes(("s", "summary", {"count": 7, "sum": 20, "quantiles": quantiles})))
    assert shown(series) == {("s", "0.5"): 2.5, ("s", "1.0"): 9, ("s_count",): 7, ("s_sum",): 20}


def test_points_without_a_value_are_left_out() -> None:
    series = ClientSeries(100)
    series.take(client(), pushes(("a", "gauge", {"as_double": 1, "flags": 1}), ("b", "histogram", {"flags": 1})))
    assert shown(series) == {}


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_series_are_bounded_and_go_with_their_client() -> None:
    series = ClientSeries(1500)
    data = MetricsData.FromString(otlp({f"m{number}": 1.0 for number in range(2000)}))
    clients = [client(number) for number in (100, 101)]
    series.take(clients[0], data)
    assert (len(series), series.dropped) == (MOST_FAMILIES, 1000)
    series.take(clients[1], data)
    assert len(series) == 1500
    series.forget(clients[0].instance_id)
    assert len(series) == 500
    assert sum(len(metric.samples) for metric in series.collect()) == 500
    series.forget(clients[1].instance_id)
    assert list(series.collect()) == []


def test_every_bucket_counts_as_a_series() -> None:
    series = ClientSeries(100)
    point = {"bucket_counts": [1] * 60, "explicit_bounds": range(59), "sum": 1}
    series.take(client(), pushes(("a", "histogram", point), ("b", "histogram", point)))
    assert (len(series), series.dropped) == (62, 1)
    wide = {"bucket_counts": [1] * 120, "explicit_bounds": range(119)}
    series.take(client(), pushes(("a", "histogram", wide)))
    assert (len(series), series.dropped) == (62, 2), "it stays as it was"
    assert shown(series)["a_count",] == 60
    series.take(client(), pushes(("a", "histogram", {"count": 1})))
    assert len(series) == 3
    series.forget(client().instance_id)
    assert len(series) == 0


def test_the_parts_of_a_push_are_bounded() -> None:
    data = MetricsData()
    points = data.resource_metrics.add().scope_metrics.add().metrics.add(name="m").gauge.data_points
    for number in range(MOST_PARTS):
        points.add(as_double=number)
    assert len(list(points_of(data))) == MOST_PARTS - 4
    empty = MetricsData()
    for _ in range(MOST_PARTS):
        empty.resource_metrics.add()
    empty.resource_metrics.add().scope_metrics.add().metrics.add(name="m").gauge.data_points.add(as_double=1)
    assert list(points_of(empty)) == []
    histograms = MetricsData()
    points = histograms.resource_metrics.add().scope_metrics.add().metrics.add(name="m").histogram.data_points
    for _ in range(MOST_PARTS // 10):
        points.add(bucket_counts=[1] * MOST_BUCKETS, explicit_bounds=range(MOST_BUCKETS - 1))
    assert len(list(points_of(histograms))) <= MOST_PARTS // MOST_BUCKETS


HOSTILE: dict[str, tuple[str, dict[str, Any]]] = {
    "a million buckets": ("histogram", {"bucket_counts": [1] * 1_000_000, "explicit_bounds": range(999_999)}),
    "a million powers": ("exponential_histogram", {"positive": (0, [1] * 1_000_000)}),
    "fewer counts than bounds": ("histogram", {"bucket_counts": [1], "explicit_bounds": [1, 2, 3]}),
    "counts without bounds": ("histogram", {"bucket_counts": [1, 2]}),
    "bounds without counts": ("histogram", {"explicit_bounds": [1]}),
    "falling bounds": ("histogram", {"bucket_counts": [1, 1, 1], "explicit_bounds": [2, 1]}),
    "equal bounds": ("histogram", {"bucket_counts": [1, 1, 1], "explicit_bounds": [2, 2]}),
    "a NaN bound": ("histogram", {"bucket_counts": [1, 1], "explicit_bounds": [math.nan]}),
    "an infinite first bound": ("histogram", {"bucket_counts": [1, 1], "explicit_bounds": [-math.inf]}),
    "an unknown scale": ("exponential_histogram", {"scale": 2**31 - 1, "positive": (0, [1])}),
    "a negative unknown scale": ("exponential_histogram", {"scale": -(2**31), "positive": (0, [1])}),
    "a NaN threshold": ("exponential_histogram", {"zero_threshold": math.nan, "zero_count": 1}),
    "NaN": ("gauge", {"as_double": math.nan}),
    "infinity": ("gauge", {"as_double": math.inf}),
    "a falling total": ("sum", {"as_int": -1}),
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_point_that_prometheus_cannot_show_is_left_out(name: str) -> None:
    kind, fields = HOSTILE[name]
    data = pushes(("m", kind, fields), ("good", "gauge", {"as_double": 1}))
    series = ClientSeries(1000)
    series.take(client(), MetricsData.FromString(data.SerializeToString()))
    assert shown(series) == {("good",): 1}


def test_large_numbers_stay_finite() -> None:
    series = ClientSeries(1000)
    for _ in range(3):
        series.take(
            client(),
            pushes(
                ("t", "sum", {"as_double": 1.7e308}),
                ("h", "histogram", {"bucket_counts": [2**64 - 1] * 2, "explicit_bounds": [1e308], "sum": 1.7e308}),
                ("e", "exponential_histogram", {"positive": (2**31 - 1, [2**64 - 1]), "negative": (-(2**31), [1])}),
                ("z", "exponential_histogram", {"zero_threshold": 1e308, "zero_count": 2**64 - 1, "sum": math.inf}),
            ),
        )
    found = shown(series)
    assert found["t_total",] == 1.7e308
    assert found["h_count",] == 6 * float(2**64)
    assert found["e_bucket", "0.0"] == 3
    assert all(value >= 0 for value in found.values())


# --- an exposition that stays whole -----------------------------------------------------------------------------------


def test_names_of_one_family_are_not_taken_by_another() -> None:
    series = ClientSeries(1000)
    count = {"bucket_counts": [1, 1], "explicit_bounds": [1], "sum": 1}
    series.take(
        client(),
        pushes(
            ("a", "histogram", count), ("a.bucket", "gauge", {"as_double": 1}), ("a_count", "gauge", {"as_double": 1}),
            ("a.sum", "sum", {"as_double": 1}), ("a", "gauge", {"as_double": 1}),
            ("b.total", "gauge", {"as_double": 1}), ("b", "sum", {"as_double": 1}),
            ("c_count", "gauge", {"as_double": 1}), ("c", "summary", {"count": 1}), ("c", "gauge", {"as_double": 4}),
            ("d.created", "gauge", {"as_double": 1}), ("d.total", "sum", {"as_double": 1}),
        ),
    )  # fmt: skip
    found = shown(series)
    assert {key[0] for key in found} == {"a_bucket", "a_count", "a_sum", "b_total", "c", "c_count", "d_created"}
    assert series.dropped == 7
    series.forget(client().instance_id)
    series.take(client(), pushes(("b", "sum", {"as_double": 5}), ("a_count", "gauge", {"as_double": 2})))
    assert shown(series) == {("b_total",): 5, ("a_count",): 2}, "names are free when their family is gone"


def test_names_that_differ_by_case_or_by_a_dot() -> None:
    series = ClientSeries(1000)
    series.take(
        client(),
        pushes(
            ("Lag", "gauge", {"as_double": 1}),
            ("lag", "gauge", {"as_double": 2}),
            ("x.y", "gauge", {"as_double": 3}),
            ("x_y", "gauge", {"as_double": 4}),
        ),
    )
    assert shown(series) == {("Lag",): 1, ("lag",): 2, ("x_y",): 4}


def test_labels_of_a_point_do_not_hide_those_of_the_client() -> None:
    series = ClientSeries(1000)
    metrics = []
    for text in ("a", "b", "", 'c\x00\r\n\u2028"\\'):
        labels = {"client_id": text, "client.instance.id": text, "le": text, "group_id": "", "quantile": text}
        metrics.append(("h", "histogram", {"count": 1, "attributes": labels}))
    series.take(client(client_id='me\x00\n"'), pushes(*metrics))
    found = shown(series)
    assert len(found) == 4
    (family,) = series.collect()
    assert {sample.labels["client_id"] for sample in family.samples} == {'me??"'}
    assert {sample.labels.get("exported_le", "") for sample in family.samples} == {"", "a", "b", 'c????"\\'}


ENDS = ("total", "sum", "bucket", "count", "created")


def texts(chance: random.Random) -> str:
    alphabet = 'aA_.0\x00\n\r\t"\\{}=,#é\u2028\U0001f600 -'
    words = ["le", "quantile", "client_id", "up", "__name__", "a", *(f"a_{end}" for end in ENDS)]
    return chance.choice(words) if chance.random() < 0.5 else "".join(chance.choices(alphabet, k=chance.randrange(6)))


def numbers(chance: random.Random) -> float:
    return chance.choice((0.0, -0.0, 1.0, -1.0, 0.5, math.nan, math.inf, -math.inf, 1e308, 5e-324, 3.0))


def random_points(chance: random.Random) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for _ in range(chance.randrange(1, 30)):
        attributes = {texts(chance): texts(chance) for _ in range(chance.randrange(3))}
        counts = [chance.choice((0, 1, 2**64 - 1)) for _ in range(chance.randrange(5))]
        kind = chance.choice(("gauge", "sum", "histogram", "exponential_histogram", "summary"))
        fields: dict[str, Any] = {"attributes": attributes, "flags": chance.choice((0, 0, 0, 1, 2))}
        if kind in ("gauge", "sum"):
            fields["as_double"] = numbers(chance)
        else:
            fields |= {"count": chance.choice((0, 3, 2**64 - 1)), "sum": numbers(chance)}
        if kind == "histogram":
            bounds = sorted({numbers(chance) for _ in range(max(len(counts) - 1, 0))})
            fields |= {"bucket_counts": counts, "explicit_bounds": bounds}
        elif kind == "exponential_histogram":
            offsets = (0, 5, -5, 2**31 - 1, -(2**31))
            fields |= {
                "scale": chance.choice((0, 3, -3, 20, -11, 99)),
                "zero_count": chance.choice((0, 1)),
                "zero_threshold": numbers(chance),
                "positive": (chance.choice(offsets), counts),
                "negative": (chance.choice(offsets), counts[:1]),
            }
        elif kind == "summary":
            fields["quantiles"] = {numbers(chance): numbers(chance) for _ in counts}
        yield texts(chance), kind, fields


@pytest.mark.parametrize("seed", range(20))
def test_whatever_clients_push_can_be_scraped(seed: int) -> None:
    chance = random.Random(seed)
    series = ClientSeries(400)
    for _ in range(15):
        data = pushes(*random_points(chance), temporality=chance.choice((0, DELTA, CUMULATIVE, 7)))
        series.take(client(chance.randrange(100, 103), texts(chance)), data)
        if chance.random() < 0.1:
            series.forget(UUID(int=chance.randrange(100, 103)))
    shown(series)
    assert len(series) <= 400
    for number in (100, 101, 102):
        series.forget(UUID(int=number))
    assert (len(series), list(series.collect())) == (0, [])
