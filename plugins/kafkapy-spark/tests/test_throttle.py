"""How fast rows may pass."""

from __future__ import annotations

import pytest
from kafkapy_spark.throttle import Pace, Rate


class Clock:
    """Time that passes by sleeping only."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("rate", "seconds"),
    [(Rate(rows=50), 19.8), (Rate(bytes=500), 99.0), (Rate(rows=50, bytes=10_000), 19.8), (Rate(), 0.0)],
)
def test_what_passes_in_a_time(rate: Rate, seconds: float) -> None:
    """100 batches of 10 rows and 500 bytes: each waits until those before have had their time."""
    clock = Clock()
    pace = Pace(rate, clock)
    for _ in range(100):
        pace.wait(10, 500)
    assert clock.now - 100 == pytest.approx(seconds)


def test_a_pause_is_made_up_for_in_part() -> None:
    clock = Clock()
    pace = Pace(Rate(rows=10), clock)
    pace.wait(10, 0)
    clock.now += 60
    began = clock.now
    for _ in range(5):
        pace.wait(10, 0)
    assert clock.now - began == pytest.approx(3.0)


def test_shares_and_batches() -> None:
    assert Rate(rows=100, bytes=1000).divided(4) == Rate(25, 250)
    assert Rate().divided(4) == Rate()
    assert Rate().rows_at_once(5000, 10**9) == 5000
    assert Rate(rows=25).rows_at_once(5000, 0) == 2
    assert Rate(rows=3).rows_at_once(5000, 0) == 1
    assert Rate(rows=1e9, bytes=5000).rows_at_once(5000, 250_000) == 10
    assert Rate(bytes=5000).rows_at_once(1, 10**6) == 1
