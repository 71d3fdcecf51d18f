"""A producer's metrics: which number goes under which of Kafka's names."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy._speedups.clients.producer.record_accumulator import RecordAccumulator
from kafkapy.clients.producer import metrics as module
from kafkapy.clients.producer.metrics import ProducerMetrics

WINDOW_S = 30.0


class Bench:
    """Metrics whose clock a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        self.accumulator = RecordAccumulator(1 << 20, 1000, 0, 1 << 20, [1])
        self.accumulator.topic("t").update([(1, 0)])
        self.metrics: Any = ProducerMetrics(self.accumulator, 2, WINDOW_S)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def batch(records: int, size: int, largest: int, waited_ms: int = 0) -> Any:
    return SimpleNamespace(
        record_count=records, size=size, max_record_size=largest, created_ms=5000, drained_ms=5000 + waited_ms
    )


def test_nothing_was_sent(bench: Bench) -> None:
    values = bench.metrics.snapshot()
    unknown = {name for name, value in values.items() if math.isnan(value)}
    assert unknown == {
        "records-per-request-avg",
        "batch-size-avg",
        "batch-size-max",
        "record-queue-time-avg",
        "record-queue-time-max",
        "produce-throttle-time-avg",
        "produce-throttle-time-max",
    }
    set_values = {name: value for name, value in values.items() if value and name not in unknown}
    assert set_values == {
        "compression-rate-avg": 1.0,
        "buffer-total-bytes": 1 << 20,
        "buffer-available-bytes": 1 << 20,
    }


def test_requests_are_counted_with_their_batches(bench: Bench) -> None:
    metrics = bench.metrics
    metrics.request([batch(3, 300, 90, 40), batch(1, 100, 95, 700)])
    bench.now_s += 10
    metrics.request([batch(2, 600, 80, 20)])
    values = metrics.snapshot()
    assert values["record-send-total"] == 6
    assert values["record-send-rate"] == 6 / WINDOW_S
    assert values["records-per-request-avg"] == 3
    # The mean of a request's batches is one value.
    assert (values["batch-size-avg"], values["batch-size-max"]) == (400, 600)
    assert values["batch-total"] == 3
    # That of a request is the time of its first batch.
    assert (values["record-queue-time-avg"], values["record-queue-time-max"]) == (30, 40)
    assert values["record-size-max"] == 95


def test_the_compression_rate_is_of_the_bytes_of_all_requests(bench: Bench) -> None:
    for before, encoded in ((1000, 300), (500, 450), (700, 0)):  # the last one was never encoded
        bench.metrics.sent(SimpleNamespace(bytes_before=before, bytes_encoded=encoded))
    assert bench.metrics.snapshot()["compression-rate-avg"] == 0.5


def test_throttles_retries_errors_and_splits(bench: Bench) -> None:
    metrics = bench.metrics
    metrics.throttled(0)
    metrics.throttled(50)
    metrics.record_retries(batch(3, 1, 1))
    metrics.record_retries(batch(6, 1, 1))
    metrics.record_errors(batch(15, 1, 1))
    metrics.splits += 1
    values = metrics.snapshot()
    assert (values["produce-throttle-time-avg"], values["produce-throttle-time-max"]) == (25, 50)
    assert (values["record-retry-total"], values["record-retry-rate"]) == (9, 9 / WINDOW_S)
    assert (values["record-error-total"], values["record-error-rate"]) == (15, 15 / WINDOW_S)
    assert values["batch-split-total"] == 1
    assert values["record-send-total"] == 0


def test_what_is_buffered_is_seen_in_the_accumulator(bench: Bench) -> None:
    for size in (10, 30):
        bench.accumulator.append("t", 0, 1000, None, bytes(size))
    values = bench.metrics.snapshot()
    pool = bench.accumulator.pool
    assert values["record-size-avg"] == 20
    assert values["buffer-available-bytes"] == pool.available < values["buffer-total-bytes"] == pool.total
    assert values["waiting-threads"] == 0
