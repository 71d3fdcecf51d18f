"""Meters: totals, rates over sample windows, averages and maxima of what is recent."""

from __future__ import annotations

import math

import pytest

from kafkapy.clients.metrics import ClientMetrics, Meter


def test_totals_count_everything() -> None:
    meter = Meter(2, 30)
    for second in range(1000):
        meter.record(2, 1000 + second)
    assert (meter.total, meter.count) == (2000, 1000)


def test_a_rate_is_that_of_the_recent_windows() -> None:
    meter = Meter(2, 30)
    for second in range(1, 600):
        meter.record(10, 1000 + second)
    assert meter.rate(1600) == pytest.approx(10, rel=0.1)
    assert meter.count_rate(1600) == pytest.approx(1, rel=0.1)
    for second in range(600, 700):
        meter.record(1, 1000 + second)
    assert meter.rate(1700) == pytest.approx(1, rel=0.1)
    assert meter.maximum(1700) == 1
    assert meter.average(1700) == pytest.approx(1)


def test_a_first_value_is_no_burst() -> None:
    """As Kafka's Rate: a window that has just begun counts as a whole one."""
    meter = Meter(2, 30)
    meter.record(60, 1000)
    assert meter.rate(1000.001) == pytest.approx(2)


def test_old_values_are_forgotten() -> None:
    meter = Meter(2, 30)
    meter.record(60, 1000)
    assert meter.rate(2000) == 0
    assert math.isnan(meter.average(2000)) and math.isnan(meter.maximum(2000))
    assert meter.total == 60


def test_a_client_sums_its_nodes() -> None:
    metrics = ClientMetrics()
    for node, latency_s in ((1, 0.001), (1, 0.003), (2, 0.008)):
        metrics.submitted(node, 10.0)
        metrics.answered(node, 10.0, latency_s)
    metrics.submitted(2, 10.0)
    groups = metrics.snapshot("consumer")
    whole = groups["consumer-metrics"]
    assert (whole["request-total"], whole["response-total"], whole["requests-in-flight"]) == (4, 3, 1)
    assert whole["request-latency-avg"] == pytest.approx(4)
    assert groups["consumer-node-metrics.node-2"]["request-total"] == 2


def test_bytes_are_fetched_when_they_are_asked_for() -> None:
    metrics = ClientMetrics()

    def refresh() -> None:
        metrics.bytes_in = 7

    metrics.refresh = refresh
    assert metrics.snapshot("x")["x-metrics"]["incoming-byte-total"] == 7
