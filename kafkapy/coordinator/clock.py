"""A coordinator's clock: time, turns of its loop, and blocking work.

`LoopClock` is the real one; kafkapy.testing.coordinator.VirtualClock replaces it in tests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, TypeVar

LOADING_THREADS: Final = 8
"""Partitions that load at the same time when a broker becomes their coordinator."""

T = TypeVar("T")


class TimerHandle(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Cancel the call."""


class Clock(Protocol):
    """Time and turns.

    Every callback runs on the coordinator's own thread.
    """

    def time_ms(self) -> int:
        """Wall-clock time in ms since the epoch, for records."""

    def monotonic_ms(self) -> int:
        """Time in ms that only grows, for timeouts."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call after the callbacks that are ready to run now."""

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> TimerHandle:
        """Call when `monotonic_ms` has reached the deadline."""

    def run_blocking(
        self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[Exception], None]
    ) -> None:
        """Run `work` on a thread that may block, then a callback.

        One of the two callbacks gets the result or the error.
        """


class LoopClock:
    """The control loop's clock.

    KafkaServer makes it on the running loop; it is used on that loop only.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self._working: set[asyncio.Future[Any]] = set()
        # Loads have separate threads: other partitions' files may be slow to open.
        self._threads = ThreadPoolExecutor(LOADING_THREADS, thread_name_prefix="coordinator-load")

    def close(self) -> None:
        """Start no more work on worker threads.

        Work that runs there goes on, and calls back no more.
        """
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
        """Call at a time of `monotonic_ms`.

        The call is at most one ms late, never early: the ms are cut.
        """
        return self._loop.call_at((deadline_ms + 1) / 1000, callback)

    def run_blocking(
        self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[Exception], None]
    ) -> None:
        """Run on a worker thread; after `close` neither starts nor calls back."""
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
