"""Pushed metrics are decoded in pieces: the same as at once, and bounded."""

from __future__ import annotations

import random
from typing import Any

import pytest

pytest.importorskip("opentelemetry.proto", reason="the extra telemetry is not installed")

from google.protobuf.message import DecodeError
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from kafkapy.broker.client_telemetry import decoding
from kafkapy.broker.client_telemetry.decoding import BYTES_OF_A_MESSAGE, decode

MOST = 4 * 1024 * 1024


def everything() -> bytes:
    """A message of each kind."""
    data = MetricsData()
    for number in range(5):
        part = data.resource_metrics.add(schema_url="s" * 300)
        part.resource.attributes.add(key="group_id").value.string_value = "g"
        part.resource.entity_refs.add(type="t").id_keys.extend(["a", "b"] * 30)
        scope = part.scope_metrics.add()
        scope.scope.name = "kafka"
        nested = scope.scope.attributes.add(key="k").value.kvlist_value.values
        nested.add(key="list").value.array_value.values.add(bytes_value=b"\xff" * 50)
        gauge = scope.metrics.add(name="gauge", unit="ms", description="d" * 100).gauge
        for value in range(50):
            gauge.data_points.add(as_double=value, time_unix_nano=1).attributes.add(key="n").value.int_value = -number
        scope.metrics.add(name="sum").sum.data_points.add(as_int=-5)
        histogram = scope.metrics.add(name="histogram").histogram
        histogram.data_points.add(count=3, sum=1.5, bucket_counts=range(100), explicit_bounds=range(99), min=-1.0)
        powers = scope.metrics.add(name="powers").exponential_histogram.data_points.add(scale=-3, zero_count=1)
        powers.positive.offset = -100
        powers.positive.bucket_counts.extend([0, 1, 127, 128, 2**40, 2**64 - 1] * 20)
        summary = scope.metrics.add(name="summary").summary.data_points.add(count=1, sum=2)
        summary.quantile_values.add(quantile=0.5, value=3)
    payload: bytes = data.SerializeToString()
    return payload


@pytest.mark.parametrize("piece", [1, 2, 3, 9, 50, 400, 16 * 1024])
def test_pieces_give_the_same_as_the_whole(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(decoding, "PIECE", piece)
    monkeypatch.setattr(decoding, "REST_S", 0)
    data = everything()
    assert decode(data, MOST) == MetricsData.FromString(data)


def test_the_last_of_several_kinds_of_data_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "PIECE", 4)
    gauge, total = MetricsData(), MetricsData()
    gauge.resource_metrics.add().scope_metrics.add().metrics.add().gauge.data_points.add(as_double=1)
    total.resource_metrics.add().scope_metrics.add().metrics.add().sum.data_points.add(as_double=2)
    both = [each.resource_metrics[0].scope_metrics[0].metrics[0].SerializeToString() for each in (gauge, total)]
    metric = both[0] + both[1]
    for tag in (2, 2, 1):
        metric = bytes([tag << 3 | 2, len(metric)]) + metric
    assert decode(metric, MOST) == MetricsData.FromString(metric)


def test_spoiled_bytes_are_decoded_as_the_library_does_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "PIECE", 400)
    monkeypatch.setattr(decoding, "REST_S", 0)
    good = everything()
    chance = random.Random(3)
    spoiled = [good[:end] for end in range(0, 2500, 13)]
    for _ in range(150):
        flipped = bytearray(good)
        flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
        spoiled.append(bytes(flipped))
    read = 0
    for data in spoiled:
        try:
            found = decode(data, MOST)
        except DecodeError:
            continue
        # Fields that OTLP does not have may be lost, and nothing else.
        expected = MetricsData.FromString(data)
        found.DiscardUnknownFields()
        expected.DiscardUnknownFields()
        assert found.SerializeToString(deterministic=True) == expected.SerializeToString(deterministic=True)
        read += 1
    assert read > 20


def delimited(number: int, content: bytes) -> bytes:
    length = bytearray()
    size = len(content)
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + content


@pytest.mark.parametrize(
    "path",
    [(1,), (1, 1, 1), (1, 2), (1, 2, 2), (1, 2, 2, 5, 1), (1, 2, 2, 5, 1, 7), (1, 1, 1, 2, 5, 1), (1, 2, 2, 9, 1, 8)],
    ids=str,
)
def test_a_push_of_empty_messages_is_refused_before_it_is_decoded(
    monkeypatch: pytest.MonkeyPatch, path: tuple[int, ...]
) -> None:
    data = bytes([path[-1] << 3 | 2, 0]) * (MOST // 2)
    for number in reversed(path[:-1]):
        data = delimited(number, data)
    made: list[Any] = []
    monkeypatch.setattr(decoding, "_merge", lambda *arguments: made.append(arguments))
    with pytest.raises(DecodeError, match=f"more than {MOST // BYTES_OF_A_MESSAGE} messages"):
        decode(data, MOST)
    assert not made


def test_a_push_of_the_largest_size_with_usual_points_is_decoded() -> None:
    data = MetricsData()
    scope = data.resource_metrics.add().scope_metrics.add()
    gauge = scope.metrics.add(name="org.apache.kafka.consumer.fetch.manager.records.lag").gauge
    for number in range(40_000):
        point = gauge.data_points.add(as_double=number, time_unix_nano=2**60)
        point.attributes.add(key="topic").value.string_value = "orders"
        point.attributes.add(key="partition").value.string_value = str(number)
    payload = data.SerializeToString()
    assert 2_400_000 < len(payload) < MOST
    assert decode(payload, MOST) == data


HISTOGRAM, POWERS = (1, 2, 2, 9, 1), (1, 2, 2, 10, 1)


@pytest.mark.parametrize(
    ("path", "kind"),
    [((*HISTOGRAM, 6), "HistogramDataPoint"), ((*HISTOGRAM, 7), "HistogramDataPoint"),
     ((*POWERS, 8, 2), "ExponentialHistogramDataPoint"), ((1, 1, 3, 3), "Resource"), ((1, 1, 1, 1), "Resource"),
     ((1, 2, 1, 1), "InstrumentationScope")],
    ids=str,
)  # fmt: skip
def test_a_part_that_is_too_large_is_refused(path: tuple[int, ...], kind: str) -> None:
    for size, refused in ((200_000, False), (MOST // 2, True)):
        data = bytes(size)
        for number in reversed(path):
            data = delimited(number, data)
        if refused:
            with pytest.raises(DecodeError, match=f"A {kind} has {size // 1000}"):
                decode(data, MOST)
        else:
            assert decode(data, MOST) == MetricsData.FromString(data)


def test_deep_values_are_refused_or_decoded() -> None:
    data = b"\x0a\x01x" * 10_000
    for depth in range(1, 90):
        data = delimited(5, delimited(1, data)) if depth % 2 else data
    for number in (2, 1, 1, 1):
        data = delimited(number, data)
    with pytest.raises(DecodeError, match="nested deeper"):
        decode(data, MOST)
