"""How fast a task may write. It waits where it sends; what waits before that comes through Spark in lumps of 64 KiB."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Pace", "Rate"]

BURST_S: Final = 1.0
"""What was not used of the rate for so long may be made up for."""
PARTS_A_SECOND: Final = 10
"""So many times a second something is sent, where single rows are not too large for that."""


@dataclass(frozen=True)
class Rate:
    """Rows and bytes (of keys and values) a second; None: as fast as may be."""

    rows: float | None = None
    bytes: float | None = None

    def divided(self, parts: int) -> Rate:
        """What is left for each."""
        return Rate(self.rows and self.rows / parts, self.bytes and self.bytes / parts)

    def rows_at_once(self, rows: int, size: int) -> int:
        """How many of so many rows and bytes are to be sent at a time, so that rows pass evenly; at least 1."""
        most = float(rows)
        if self.rows is not None:
            most = min(most, self.rows / PARTS_A_SECOND)
        if self.bytes is not None and size > 0:
            most = min(most, self.bytes / PARTS_A_SECOND * rows / size)
        return max(1, int(most))


class Pace:
    """When the next rows may pass."""

    def __init__(self, rate: Rate, clock: Any = time) -> None:
        self._rate, self._clock = rate, clock
        self._next = clock.monotonic()

    def wait(self, rows: int, size: int) -> None:
        """Returns when so many rows and bytes may pass after those before."""
        now = self._clock.monotonic()
        if now < self._next:
            self._clock.sleep(self._next - now)
        self._next = max(self._next, now - BURST_S)
        costs = [amount / rate for amount, rate in ((rows, self._rate.rows), (size, self._rate.bytes)) if rate]
        self._next += max(costs, default=0.0)
