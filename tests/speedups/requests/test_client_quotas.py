"""Quota sensors: rates and throttle times against the model, and what Produce and Fetch count in them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.sampled_rate import ModelRate

from kafkapy._speedups.requests.client_quotas import QuotaSensor

steps = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 50), st.integers(0, 3000), st.integers(9_000, 14_000), st.integers(0, 100_000)),
        st.floats(0, 1e9, allow_nan=False),
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(
    steps=steps,
    bound=st.floats(1e-3, 1e9),
    windows=st.integers(1, 15),
    window_ms=st.sampled_from([1000, 2000, 250]),
)
def test_rates_and_throttle_times_are_those_of_the_model(
    steps: list[tuple[int, float]], bound: float, windows: int, window_ms: int
) -> None:
    sensor, model = QuotaSensor(bound, windows, window_ms), ModelRate(windows, window_ms)
    now_ms = 1_000_000
    for pause_ms, value in steps:
        now_ms += pause_ms
        throttle_ms = sensor.record(value, now_ms)
        model.record(value, now_ms)
        wanted = model.throttle_ms(bound, now_ms)
        assert throttle_ms == pytest.approx(min(wanted, 0x7FFFFFFF), abs=1, rel=1e-9)
        assert sensor.measure(now_ms) == pytest.approx(model.rate(now_ms), rel=1e-9, abs=1e-9)


def test_time_is_throttled_for_at_most_a_window() -> None:
    sensor = QuotaSensor(1.0, 11, 1000, most_throttle_ms=1000)
    assert sensor.record(1e9, 0) == 1000
    assert QuotaSensor(1.0).record(1e9, 0) > 1000


def test_what_is_taken_back_does_not_count() -> None:
    sensor = QuotaSensor(100.0)
    assert sensor.record(5_000, 0) > 0
    sensor.record(-5_000, 0, check=False)
    assert sensor.measure(0) == 0
    assert sensor.record(10, 1) == 0


def test_an_idle_sensor_may_be_forgotten() -> None:
    sensor = QuotaSensor(10.0, 2, 1)
    assert sensor.is_idle() and not sensor.is_shared()
    assert sensor.throttle_time_ms() is None
    sensor.note_throttle(10)
    sensor.note_throttle(20)
    assert sensor.throttle_time_ms() == 15
    busy = QuotaSensor(10.0, 1000, 1000)
    busy.record(1)
    assert not busy.is_idle()
    with pytest.raises(ValueError):
        QuotaSensor(1.0, 0)


def test_a_bound_may_change() -> None:
    sensor = QuotaSensor(10.0)
    assert sensor.record(1000, 0) > 0
    sensor.bound = 1e6
    assert sensor.bound == 1e6 and sensor.record(1, 1) == 0


@pytest.mark.parametrize(("windows", "window_ms"), [(0, 1000), (-1, 1000), (11, 0), (11, -1)])
def test_a_rate_needs_time(windows: int, window_ms: int) -> None:
    with pytest.raises(ValueError, match=f"{windows} windows of {window_ms} ms are no time"):
        QuotaSensor(1.0, windows, window_ms)
    QuotaSensor(1.0, 1, 1)


def test_a_rate_is_of_eleven_seconds_where_nothing_else_is_said() -> None:
    sensor = QuotaSensor(5.0)
    assert sensor.bound == 5.0
    assert sensor.record(110, 0, check=False) == 0, "what is not checked has no throttle time"
    assert sensor.measure(0) == 11
    assert sensor.measure(10_999) == pytest.approx(110 / 10.999)
    assert sensor.measure(11_000) == 0


@pytest.mark.parametrize(("most", "throttle_ms"), [(0, 10_000), (10_001, 10_000), (10_000, 10_000), (9_999, 9_999)])
def test_a_throttle_time_is_bounded_where_a_bound_is_given(most: int, throttle_ms: int) -> None:
    sensor = QuotaSensor(10.0, 11, 1000, most)
    assert sensor.record(200, 0) == throttle_ms


def test_throttle_times_are_noted_one_by_one() -> None:
    sensor = QuotaSensor(1.0)
    for throttle_ms, mean in ((10, 10), (20, 15), (60, 30), (0, 22.5)):
        sensor.note_throttle(throttle_ms)
        assert sensor.throttle_time_ms() == mean
    assert sensor.is_idle(), "a throttle time is no use of the quota"
