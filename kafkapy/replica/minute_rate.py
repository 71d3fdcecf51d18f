"""The rate of events over the last minute, as in Kafka's meters."""

from __future__ import annotations

from math import exp
from typing import Final

__all__ = ["TICK_S", "MinuteRate"]

TICK_S: Final = 5.0
"""Seconds between two ticks."""
_WEIGHT: Final = 1 - exp(-TICK_S / 60)


class MinuteRate:
    """An average in which older ticks weigh less (`OneMinuteRate`)."""

    __slots__ = ("_count", "_ticked", "per_second")

    def __init__(self) -> None:
        self.per_second = 0.0
        self._count = 0
        self._ticked = False

    def tick(self, count: int) -> None:
        """Take the number of events so far; to be called every TICK_S seconds."""
        latest = (count - self._count) / TICK_S
        self._count = count
        self.per_second = self.per_second + _WEIGHT * (latest - self.per_second) if self._ticked else latest
        self._ticked = True
