"""The timers of a member: next heartbeat, and user's next poll.

Source: org.apache.kafka.clients.consumer.internals.Heartbeat and HeartbeatRequestState.
"""

from __future__ import annotations

import time

__all__ = ["HeartbeatTimer", "PollTimer"]


class HeartbeatTimer:
    """The times of heartbeats, in seconds of the monotonic clock.

    After a failure the next heartbeat is due after a back-off.
    """

    def __init__(self, interval_s: float, session_timeout_s: float, backoff_s: float, max_backoff_s: float) -> None:
        self.interval_s = interval_s
        self._session_timeout_s = session_timeout_s
        self._backoff_s = backoff_s
        self._max_backoff_s = max_backoff_s
        self._failures = 0
        self._sent_at = 0.0
        self._due_at = 0.0
        self._session_ends_at = 0.0
        self.reset()

    def reset(self) -> None:
        """Starts a session: the broker has just responded to the member."""
        now = time.monotonic()
        self._failures = 0
        self._due_at = now + self.interval_s
        self._session_ends_at = now + self._session_timeout_s

    def sent(self) -> None:
        """Records a sent heartbeat."""
        self._sent_at = time.monotonic()
        self._due_at = self._sent_at + self.interval_s

    def received(self) -> None:
        """Records a response, which may have changed the interval."""
        self._failures = 0
        self._due_at = self._sent_at + self.interval_s
        self._session_ends_at = time.monotonic() + self._session_timeout_s

    def failed(self) -> None:
        """Records a heartbeat that failed or got no response."""
        backoff_s = min(self._backoff_s * 2**self._failures, self._max_backoff_s)
        self._failures = min(self._failures + 1, 30)
        self._due_at = time.monotonic() + backoff_s

    @property
    def due_in_s(self) -> float:
        """Seconds until the next heartbeat; 0 or less: now."""
        return self._due_at - time.monotonic()

    @property
    def session_left_s(self) -> float:
        """Seconds until the broker removes the member; negative: it probably has."""
        return self._session_ends_at - time.monotonic()


class PollTimer:
    """The time limit between two polls (max.poll.interval.ms).

    A member whose user does not poll in time must leave.
    """

    def __init__(self, max_interval_s: float) -> None:
        self._max_interval_s = max_interval_s
        self._called_at = time.monotonic()

    def called(self) -> None:
        """Records a poll."""
        self._called_at = time.monotonic()

    @property
    def left_s(self) -> float:
        """Seconds until the next poll is overdue; 0 or less: it is."""
        return self._called_at + self._max_interval_s - time.monotonic()
