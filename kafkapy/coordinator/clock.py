"""What a coordinator needs of time and of the loop it lives on, small enough to be replaced by a virtual clock.

`LoopClock` is the real one; kafkapy.testing.coordinator.VirtualClock the one for tests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, TypeVar

LOADING_THREADS: Final = 8
"""Partitions that are read at the same time when a broker becomes their coordinator."""

T = TypeVar("T")


class TimerHandle(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Do not make the call."""


class Clock(Protocol):
    """Time and turns. Every callback comes on the coordinator's own thread."""

    def time_ms(self) -> int:
        """Wall-clock time in ms since the epoch: what goes into records."""

    def monotonic_ms(self) -> int:
        """Time in ms that only grows: what timeouts are measured by."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call after what is ready to run now."""

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> TimerHandle:
        """Call when `monotonic_ms` has reached the deadline."""

    def run_blocking(
        self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[Exception], None]
    ) -> None:
        """Run `work` where it may block, then one of the two callbacks with what came of it."""


class LoopClock:
    """The control loop's clock. Made on the running loop by KafkaServer, used on that loop only."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self._working: set[asyncio.Future[Any]] = set()
        # Loads have threads of their own: other partitions' files may be slow to open.
        self._threads = ThreadPoolExecutor(LOADING_THREADS, thread_name_prefix="coordinator-load")

    def close(self) -> None:
        """Run nothing more on worker threads. What runs there goes on, and calls back no more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def time_ms(self) -> int:
        """Wall-clock time in ms."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """The loop's time in ms."""
        return int(self._loop.time() * 1000)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call in the loop's next turn."""
        self._loop.call_soon(callback)

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> TimerHandle:
        """Call at a time of `monotonic_ms`. One ms late rather than early: the ms are cut."""
        return self._loop.call_at((deadline_ms + 1) / 1000, callback)

    def run_blocking(
        self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[Exception], None]
    ) -> None:
        """Run on a worker thread. Nothing is done after `close`."""
        try:
            future = self._loop.run_in_executor(self._threads, work)
        except RuntimeError:
            return
        self._working.add(future)

        def finished(ended: asyncio.Future[T]) -> None:
            self._working.discard(ended)
            if ended.cancelled():
                return
            error = ended.exception()
            if error is None:
                done(ended.result())
            elif isinstance(error, Exception):
                failed(error)

        future.add_done_callback(finished)
