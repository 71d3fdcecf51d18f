"""The controller's event queue: one event at a time, in order.

Source: kafka.controller.ControllerEventManager.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from kafkapy.controller.controller_stats import ControllerStats

logger = logging.getLogger("kafka.controller.ControllerEventManager")

T = TypeVar("T")


class ControllerEventQueue:
    """Runs events one after the other in one task.

    Owned by KafkaController; used on the control loop. `failed` is awaited with the error of an event that has no
    waiter, or with an error that concerns the controllership; it returns whether it has handled the error.
    """

    def __init__(self, failed: Callable[[BaseException], Awaitable[bool]], stats: ControllerStats) -> None:
        self._failed = failed
        self._stats = stats
        self._queue: deque[tuple[str, Callable[[], Awaitable[Any]], asyncio.Future[Any] | None]] = deque()
        self._filled = asyncio.Event()
        self._pending: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._current: asyncio.Future[Any] | None = None

    def __len__(self) -> int:
        """The number of waiting events."""
        return len(self._queue)

    def start(self) -> None:
        """Begin to run events."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="controller-event-queue")

    async def stop(self) -> None:
        """Stop, also in the middle of an event; waiters get CancelledError."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        futures = [self._current]
        while self._queue:
            futures.append(self._queue.popleft()[2])
        for future in futures:
            if future is not None and not future.done():
                future.cancel()

    def put(self, name: str, run: Callable[[], Awaitable[Any]], once: bool = True) -> None:
        """Queue an event without a waiter.

        With `once`, an event whose name is queued already is left out.
        """
        if once and name in self._pending:
            return
        self._pending.add(name)
        self._queue.append((name, run, None))
        self._filled.set()

    def put_first(self, name: str, run: Callable[[], Awaitable[Any]]) -> None:
        """Queue an event before all others."""
        self._queue.appendleft((name, run, None))
        self._filled.set()

    async def submit(self, name: str, run: Callable[[], Awaitable[T]]) -> T:
        """Queue an event and return its result, or raise its error.

        Cancelling the wait does not cancel the event.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.append((name, run, future))
        self._filled.set()
        return await asyncio.shield(future)

    async def _run(self) -> None:
        while True:
            while not self._queue:
                self._filled.clear()
                await self._filled.wait()
            name, run, future = self._queue.popleft()
            self._pending.discard(name)
            self._current = future
            begun = time.monotonic()
            self._stats.begun(name)
            try:
                result = await run()
            except asyncio.CancelledError:
                raise
            except Exception as error:
                known = await self._failed(error)
                if future is not None and not future.done():
                    future.set_exception(error)
                    future.exception()  # the waiter may be gone: that is no further error
                elif not known:
                    logger.exception("Controller event %s failed", name)
            else:
                if future is not None and not future.done():
                    future.set_result(result)
            self._stats.ended(name, time.monotonic() - begun)
            self._current = None
