"""Quotas of controller mutations (KIP-599): a token bucket of partitions.

The bucket gets `limit` tokens per second and holds those of all windows together. A mutation takes its partitions from
it, also below zero. From the versions that know THROTTLING_QUOTA_EXCEEDED on, a mutation is refused while the bucket is
below zero; in older versions it is done and throttled. Sources: kafka.server.ControllerMutationQuotaManager and
org.apache.kafka.common.metrics.stats.TokenBucket.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kafkapy.errors import ErrorCode, KafkaError, error_for

__all__ = ["MutationQuota", "TokenBucket", "Unlimited", "exceeded"]


class TokenBucket:
    """The tokens of the clients that share a quota. Control loop.

    `now_s` of its methods is the time in seconds, of any clock that only grows.
    """

    def __init__(self, limit: float, windows: int, window_s: float, now_s: float) -> None:
        self._seconds = windows * window_s
        """The tokens of so many seconds fit."""
        self._limit = limit
        self._tokens = limit * self._seconds
        self._filled_s = now_s
        self.used_s = now_s
        """Time of the last partitions."""
        self.mutations = 0.0
        """Partitions since the start."""
        self.throttled_ms = 0
        self.throttled = 0
        """Sum and number of throttle times."""

    @property
    def limit(self) -> float:
        """Tokens per second."""
        return self._limit

    def set_limit(self, limit: float, now_s: float) -> None:
        """Change the limit.

        The tokens stay, as far as they fit.
        """
        if limit != self._limit:
            self._fill(now_s)
            self._limit = limit

    def tokens(self, now_s: float) -> float:
        """The tokens at that time. Any thread."""
        filled = self._tokens + self._limit * max(now_s - self._filled_s, 0.0)
        return min(self._limit * self._seconds, filled)

    def take(self, count: float, now_s: float) -> None:
        """Take tokens, also those that are not there."""
        self._fill(now_s)
        self._tokens -= count
        self.used_s = now_s
        self.mutations += count

    def _fill(self, now_s: float) -> None:
        self._tokens = self.tokens(now_s)
        self._filled_s = now_s

    def throttle_ms(self, now_s: float) -> int:
        """Ms until the bucket is not below zero."""
        tokens = self.tokens(now_s)
        return 0 if tokens >= 0 else int(-tokens / self._limit * 1000 + 0.5)

    def is_full(self, now_s: float) -> bool:
        """Whether a new bucket in its place would be equal."""
        return self.tokens(now_s) >= self._limit * self._seconds


class MutationQuota(Protocol):
    """The quota of one request."""

    def record(self, partitions: int) -> None:
        """Count partitions before they are created or deleted. ThrottlingQuotaExceededError refuses it."""

    @property
    def throttle_time_ms(self) -> int:
        """The throttle time of the response."""


class Unlimited:
    """The quota of a client without one."""

    throttle_time_ms = 0

    def record(self, partitions: int) -> None:
        """Count nothing."""


class BucketQuota:
    """The quota of one request of a client with a bucket."""

    def __init__(self, bucket: TokenBucket, strict: bool, clock: Callable[[], float]) -> None:
        self._bucket = bucket
        self._strict = strict
        self._clock = clock
        self._throttle_ms = 0
        self._at_s = 0.0

    def record(self, partitions: int) -> None:
        """See MutationQuota."""
        now_s = self._clock()
        if self._strict:
            self._note(now_s)
            if self._throttle_ms:
                raise exceeded()
            self._bucket.take(partitions, now_s)
            return
        self._bucket.take(partitions, now_s)
        self._note(now_s)

    @property
    def throttle_time_ms(self) -> int:
        """See MutationQuota: less the time that has passed since it was measured."""
        return max(0, self._throttle_ms - int((self._clock() - self._at_s) * 1000))

    def _note(self, now_s: float) -> None:
        before, self._throttle_ms = self._throttle_ms, self._bucket.throttle_ms(now_s)
        self._at_s = now_s
        if self._throttle_ms and not before:
            self._bucket.throttled += 1
            self._bucket.throttled_ms += self._throttle_ms


def exceeded() -> KafkaError:
    """The error of a mutation that does not fit."""
    return error_for(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
