"""The throttle of followers: a rate over windows, which any thread may change."""

from __future__ import annotations

import pytest

from kafkapy._speedups.replica.throttle import ReplicationThrottle


def test_a_rate_above_the_limit_is_seen() -> None:
    throttle = ReplicationThrottle(11, 1000)
    throttle.record(10**9)
    assert not throttle.exceeded
    throttle.bytes_per_second = 10**6
    assert throttle.exceeded
    throttle.bytes_per_second = 2 * 10**9
    assert not throttle.exceeded
    assert throttle.bytes_per_second == 2 * 10**9


def test_nothing_counted_is_no_rate() -> None:
    throttle = ReplicationThrottle()
    throttle.bytes_per_second = 0
    assert not throttle.exceeded
    throttle.record(1)
    assert throttle.exceeded


@pytest.mark.parametrize(("windows", "window_ms"), [(0, 1000), (11, 0), (-1, 5)])
def test_a_throttle_needs_a_window(windows: int, window_ms: int) -> None:
    with pytest.raises(ValueError, match="window"):
        ReplicationThrottle(windows, window_ms)
