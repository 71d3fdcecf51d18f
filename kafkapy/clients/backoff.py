"""The delay before the next attempt.

Source: org.apache.kafka.common.utils.ExponentialBackoff.
"""

from __future__ import annotations

import math
import random

__all__ = ["Backoff"]


class Backoff:
    """Exponential back-off: initial * multiplier^attempts ms, at most `max_ms`. Immutable.

    `jitter` spreads the delay (0.2: 20% less to 20% more).
    """

    __slots__ = ("_exponent_max", "initial_ms", "jitter", "max_ms", "multiplier")

    def __init__(self, initial_ms: float, max_ms: float, multiplier: float = 2, jitter: float = 0.2) -> None:
        self.initial_ms = min(initial_ms, max_ms)
        self.max_ms = max_ms
        self.multiplier = multiplier
        self.jitter = jitter
        grows = multiplier > 1 and max_ms > initial_ms
        self._exponent_max = math.log(max_ms / max(initial_ms, 1)) / math.log(multiplier) if grows else 0.0

    def delay_ms(self, attempts: int) -> float:
        """The delay in ms after `attempts` earlier failures."""
        if self._exponent_max == 0:
            return self.initial_ms
        term: float = self.initial_ms * self.multiplier ** min(attempts, self._exponent_max)
        return min(term * random.uniform(1 - self.jitter, 1 + self.jitter), self.max_ms)

    def delay_s(self, attempts: int) -> float:
        """The delay in seconds after `attempts` earlier failures."""
        return self.delay_ms(attempts) / 1000
