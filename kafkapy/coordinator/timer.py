"""Timeouts of a coordinator: one heap and one alarm for all.

A timeout has a key. Scheduling a key again moves its deadline; a member's heartbeat does that every few seconds, so it
must be cheap: a later deadline is only noted, and the entry in the heap is put back when it comes up too early. A
cancelled key leaves its entry in the heap until then, or until stale entries outnumber the live ones. Source of the
behaviour: CoordinatorTimer; the structure replaces Kafka's hierarchical timing wheel.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Hashable

from kafkapy.coordinator.clock import Clock, TimerHandle

logger = logging.getLogger("kafka.coordinator.Timer")


class TimerHeap:
    """Owns every timeout of one coordinator runtime, and the clock's alarm.

    Used on the clock's thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._live: dict[Hashable, tuple[int, Callable[[], None]]] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._queued: dict[Hashable, int] = {}
        """The earliest deadline of a key in the heap."""
        self._sequence = 0
        self._alarm: TimerHandle | None = None
        self._alarm_ms = 0

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._live

    def schedule(self, key: Hashable, delay_ms: int, callback: Callable[[], None]) -> None:
        """Call `callback` once after `delay_ms` ms.

        It replaces the callback scheduled under the key before.
        """
        deadline = self._clock.monotonic_ms() + max(delay_ms, 0)
        self._live[key] = (deadline, callback)
        queued = self._queued.get(key)
        if queued is None or deadline < queued:
            self._push(key, deadline)
            self._arm()

    def restart(self, key: Hashable, delay_ms: int) -> bool:
        """Move the timeout of a key to `delay_ms` ms from now; False without one."""
        found = self._live.get(key)
        if found is not None:
            self.schedule(key, delay_ms, found[1])
        return found is not None

    def cancel(self, key: Hashable) -> None:
        """Cancel the timeout of a key, if there is one."""
        if self._live.pop(key, None) is not None and len(self._heap) > 64 and len(self._heap) > 4 * len(self._live):
            self._rebuild()

    def deadline_ms(self, key: Hashable) -> int | None:
        """The deadline of a key, on the clock's monotonic time."""
        found = self._live.get(key)
        return None if found is None else found[0]

    def close(self) -> None:
        """Cancel all timeouts."""
        self._live.clear()
        self._queued.clear()
        self._heap.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _push(self, key: Hashable, deadline: int) -> None:
        self._sequence += 1
        self._queued[key] = deadline
        heapq.heappush(self._heap, (deadline, self._sequence, key))

    def _rebuild(self) -> None:
        self._heap.clear()
        self._queued.clear()
        for key, (deadline, _) in self._live.items():
            self._push(key, deadline)

    def _arm(self) -> None:
        if not self._heap:
            return
        earliest = self._heap[0][0]
        if self._alarm is not None:
            if self._alarm_ms <= earliest:
                return
            self._alarm.cancel()
        self._alarm_ms = earliest
        self._alarm = self._clock.call_at(earliest, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now = self._clock.monotonic_ms()
        while self._heap and self._heap[0][0] <= now:
            deadline, _, key = heapq.heappop(self._heap)
            if self._queued.get(key) != deadline:
                continue  # stands in the heap under another deadline as well
            del self._queued[key]
            live = self._live.get(key)
            if live is None:
                continue
            if live[0] > now:
                self._push(key, live[0])
                continue
            del self._live[key]
            try:
                live[1]()
            except Exception:
                # One member's timeout must not block those of all others.
                logger.exception("The handler of timeout %s failed", key)
        self._arm()
