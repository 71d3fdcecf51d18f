"""The timers of a member, on a clock that a test sets."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from kafkapy.clients.consumer.membership import heartbeat as module
from kafkapy.clients.consumer.membership.heartbeat import HeartbeatTimer, PollTimer


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now_s=1000.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    return clock


def timer() -> HeartbeatTimer:
    """Every 3 s, in a session of 10 s; after failures in 1 to 5 s."""
    return HeartbeatTimer(3.0, 10.0, 1.0, 5.0)


def test_a_heartbeat_is_due_after_the_interval(clock: SimpleNamespace) -> None:
    beat = timer()
    assert (beat.due_in_s, beat.session_left_s) == (3, 10)
    clock.now_s += 4
    assert (beat.due_in_s, beat.session_left_s) == (-1, 6)
    beat.sent()
    assert (beat.due_in_s, beat.session_left_s) == (3, 6)
    clock.now_s += 7
    assert (beat.due_in_s, beat.session_left_s) == (-4, -1)
    beat.reset()
    assert (beat.due_in_s, beat.session_left_s) == (3, 10)


def test_a_response_prolongs_the_session_and_counts_from_the_request(clock: SimpleNamespace) -> None:
    beat = timer()
    clock.now_s += 3
    beat.sent()
    clock.now_s += 1
    beat.interval_s = 5.0  # as the response says
    beat.received()
    assert (beat.due_in_s, beat.session_left_s) == (4, 10)


@pytest.mark.parametrize("end", [HeartbeatTimer.received, HeartbeatTimer.reset])
def test_failures_are_repeated_more_and_more_slowly(
    clock: SimpleNamespace, end: Callable[[HeartbeatTimer], None]
) -> None:
    beat = timer()
    clock.now_s += 2
    for wait_s in (1, 2, 4, 5, 5):
        beat.failed()
        assert (beat.due_in_s, beat.session_left_s) == (wait_s, 8)
    for _ in range(2000):
        beat.failed()
    assert beat.due_in_s == 5
    end(beat)
    beat.failed()
    assert beat.due_in_s == 1


def test_a_poll_is_overdue_after_the_longest_interval(clock: SimpleNamespace) -> None:
    polls = PollTimer(300.0)
    clock.now_s += 100
    assert polls.left_s == 200
    polls.called()
    assert polls.left_s == 300
    clock.now_s += 301
    assert polls.left_s == -1
