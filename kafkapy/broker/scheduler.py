"""Timers and background work of the broker. Source: kafka.utils.KafkaScheduler.

One task is one name. A coroutine function runs on the control loop; a plain function runs on one of
`background.threads` worker threads, so that a slow disk never holds the loop. A period counts from the end of one run
to the start of the next: a task never overlaps with itself.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

from kafkapy.broker.resizable_pool import ResizablePool

logger = logging.getLogger("kafka.utils.KafkaScheduler")

Task = Callable[[], Any] | Callable[[], Awaitable[Any]]


class ScheduledTask:
    """One scheduled piece of work, made by `KafkaScheduler.schedule`.

    `cancel` may be called on any thread.
    """

    def __init__(self, scheduler: KafkaScheduler, name: str, fn: Task, period_ms: int) -> None:
        self.name = name
        self.cancelled = False
        self._scheduler = scheduler
        self._fn = fn
        self._period_ms = period_ms
        self._handle: asyncio.TimerHandle | None = None
        self._running: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """Start no further run; a run that is under way finishes."""
        self.cancelled = True
        self._scheduler._on_loop(self._disarm)

    def _arm(self, delay_ms: float) -> None:
        if not self.cancelled and not self._scheduler.closed:
            self._handle = self._scheduler.loop.call_later(max(delay_ms, 0) / 1000, self._start)

    def _disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._running is None:
            self._scheduler._forget(self)

    def _start(self) -> None:
        self._handle = None
        self._running = self._scheduler.loop.create_task(self._run(), name=f"kafka-scheduler-{self.name}")

    async def _run(self) -> None:
        try:
            if inspect.iscoroutinefunction(self._fn):
                await self._fn()
            else:
                await self._scheduler.run_blocking(cast(Callable[[], Any], self._fn))
        except asyncio.CancelledError:
            raise
        except Exception:
            # A background task that fails once must be tried again at its next turn, as in Kafka.
            logger.exception("The scheduled task '%s' failed", self.name)
        finally:
            self._running = None
            if self._period_ms >= 0 and not self.cancelled and not self._scheduler.closed:
                self._arm(self._period_ms)
            else:
                self._scheduler._forget(self)


class KafkaScheduler:
    """Owns the background worker threads and every timer of the broker.

    Created and shut down on the control loop's thread by KafkaServer; `schedule` may be called on any thread once
    started.
    """

    def __init__(self, threads: int, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.closed = False
        self._pool = ResizablePool(threads, "kafka-scheduler")
        self._tasks: set[ScheduledTask] = set()

    def schedule(self, name: str, fn: Task, delay_ms: int = 0, period_ms: int = -1) -> ScheduledTask:
        """Run `fn` after `delay_ms` ms, then again every `period_ms` ms.

        The period begins at the end of a run; -1: once.

        RuntimeError after `shutdown`.
        """
        if self.closed:
            raise RuntimeError(f"task '{name}' cannot be scheduled: the scheduler has been shut down")
        task = ScheduledTask(self, name, fn, period_ms)
        self._on_loop(lambda: self._add(task, delay_ms))
        return task

    async def run_blocking(self, fn: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a blocking call made on a worker thread.

        Awaited on the control loop.

        CancelledError when no thread takes it any more: the scheduler has been shut down, or the interpreter ends
        around a broker on a daemon thread.
        """
        try:
            call = self._pool.submit(fn, *arguments)
        except RuntimeError as error:
            raise asyncio.CancelledError(str(error)) from None
        return await asyncio.wrap_future(call)

    @property
    def threads(self) -> int:
        """The number of worker threads (background.threads)."""
        return self._pool.size

    def resize(self, threads: int) -> None:
        """Have this many worker threads from now on."""
        self._pool.resize(threads)

    @property
    def pending(self) -> int:
        """Tasks that are waiting for their time or running."""
        return len(self._tasks)

    async def shutdown(self, timeout_s: float = 10.0) -> None:
        """Cancel waiting work, let running work finish, then end the threads.

        Running work has at most `timeout_s` seconds.
        """
        if self.closed:
            return
        self.closed = True
        for task in list(self._tasks):
            task.cancelled = True
            task._disarm()
        running = [task._running for task in self._tasks if task._running is not None]
        late: set[asyncio.Task[None]] = set()
        if running:
            _, late = await asyncio.wait(running, timeout=timeout_s)
            for unfinished in late:
                logger.warning(
                    "The scheduled task %s did not finish within %.0f s; the broker stops without it",
                    unfinished.get_name(),
                    timeout_s,
                )
                unfinished.cancel()
        self._tasks.clear()
        # Not waited for when a task is stuck in a system call: it must not hold a stop for ever.
        self._pool.shutdown(wait=not late, cancel_futures=True)

    def _add(self, task: ScheduledTask, delay_ms: int) -> None:
        if not task.cancelled and not self.closed:
            self._tasks.add(task)
            task._arm(delay_ms)

    def _forget(self, task: ScheduledTask) -> None:
        self._tasks.discard(task)

    def _on_loop(self, call: Callable[[], None]) -> None:
        try:
            here = asyncio.get_running_loop() is self.loop
        except RuntimeError:
            here = False
        if here:
            call()
        elif not self.loop.is_closed():
            self.loop.call_soon_threadsafe(call)
