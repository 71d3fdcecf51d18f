"""The rate over the last minute."""

from __future__ import annotations

import pytest

from kafkapy.replica.minute_rate import TICK_S, MinuteRate


def test_a_steady_rate_is_told_and_an_end_is_forgotten_slowly() -> None:
    rate = MinuteRate()
    assert rate.per_second == 0
    for tick in range(1, 25):
        rate.tick(int(tick * 10 * TICK_S))
        assert rate.per_second == pytest.approx(10)
    for _ in range(12):  # a minute without events leaves 1/e
        rate.tick(int(24 * 10 * TICK_S))
    assert rate.per_second == pytest.approx(10 / 2.718281828)
    rate.tick(int(25 * 10 * TICK_S))
    assert rate.per_second > 10 / 2.718281828
