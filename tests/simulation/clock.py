"""An event loop on a virtual clock: time passes at once when nothing is left to do.

Every broker runs in a context of its own (`Life`). The death of a broker is the death of its context: no callback, task
or timer of it runs again, as if the process had been killed at this instruction.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
import select
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

from kafkapy import slices

START_S: Final = 1000.0
"""The first moment; not 0, which kernels take for "no time"."""
DISK_S: Final = 0.0005
"""How long a piece of work on a worker thread takes at most."""


SLICE_ENDS: Final = 0.1
"""How often a look at the clock finds that a slice is over."""


class Life:
    """One life of a broker's process."""

    __slots__ = ("alive", "name", "sent")

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.sent = 0
        """Requests sent: the correlation id of the latest one."""

    def __repr__(self) -> str:
        return f"<Life {self.name}{'' if self.alive else ' (over)'}>"


LIFE: Final[contextvars.ContextVar[Life]] = contextvars.ContextVar("life")
NOBODY: Final = Life("the world")


class StandstillError(RuntimeError):
    """The test waits for something, and nothing will ever happen."""


class SliceClock:
    """The clock of kafkapy.slices: by chance, a slice of time has passed since the last look.

    With the real clock a seed would not mean one schedule; with the virtual one no slice would ever end.
    """

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._now_s = START_S

    def perf_counter(self) -> float:
        """The time."""
        if self._dice.random() < SLICE_ENDS:
            self._now_s += 2 * slices.SLICE_S
        return self._now_s


@contextmanager
def sliced(loop: VirtualLoop, dice: random.Random) -> Iterator[None]:
    """Cut long work into slices by chance; each broker waits for its own turns, which end with its life."""

    def waiting(running: object) -> deque[asyncio.Future[None]]:
        assert running is loop
        return loop.turns[LIFE.get(NOBODY)]

    with patch.object(slices, "time", SliceClock(dice)), patch.object(slices, "_waiting", waiting):
        yield


class VirtualLoop(asyncio.BaseEventLoop):
    """One thread, no sockets, no waiting. Work for worker threads runs here, a moment later."""

    def __init__(self, delay: Callable[[], float] = lambda: DISK_S) -> None:
        super().__init__()
        self._now = START_S
        self._delay = delay
        self._poll = select.epoll()
        self._readers: dict[int, tuple[asyncio.Handle, contextvars.Context]] = {}
        self.on_turn: Callable[[], None] = lambda: None
        """Called whenever all that could run at one moment has run."""
        self.on_advance: Callable[[float], None] = lambda now: None
        """Called with each new time."""
        self.turns: defaultdict[Life, deque[asyncio.Future[None]]] = defaultdict(deque)
        """What waits for a turn of its process's own loop."""
        self.world = context_of(NOBODY)
        """The context of what belongs to no broker."""
        self.set_task_factory(_task)

    def time(self) -> float:
        return self._now

    @property
    def now_ns(self) -> int:
        """The time for the kernels."""
        return int(self._now * 1_000_000_000)

    def _run_once(self) -> None:
        ready = self._ready  # type: ignore[attr-defined]
        if not ready:
            self.on_turn()
        if not ready:
            self._take_events()
        if not ready:
            self._advance()
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled and handle._context.get(LIFE, NOBODY).alive:
                handle._run()

    def _take_events(self) -> None:
        for fd, _ in sorted(self._poll.poll(0)):
            handle, context = self._readers[fd]
            if context.get(LIFE, NOBODY).alive:
                self._ready.append(handle)  # type: ignore[attr-defined]
            else:
                self._poll.unregister(fd)

    def _advance(self) -> None:
        scheduled, ready = self._scheduled, self._ready  # type: ignore[attr-defined]
        while scheduled and (scheduled[0]._cancelled or not scheduled[0]._context.get(LIFE, NOBODY).alive):
            heapq.heappop(scheduled)._scheduled = False
        if not scheduled:
            raise StandstillError("nothing will ever happen again")
        when = scheduled[0]._when
        if when > self._now:
            self._now = when
            self.on_advance(when)
        while scheduled and scheduled[0]._when <= self._now:
            timer = heapq.heappop(scheduled)
            timer._scheduled = False
            ready.append(timer)

    # --- what BaseEventLoop leaves to others ----------------------------------------------------------------------

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer is dropped when its time has come."""

    def _check_closed(self) -> None:
        """The tasks of dead brokers are freed after the end."""

    def _write_to_self(self) -> None:
        """Nobody else has a thread."""

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context or self.world)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """The work runs on this thread, a moment later: what comes meanwhile comes first."""
        future = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_later(self._delay(), work)
        return future

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:
        context = contextvars.copy_context()
        self._poll.register(fd, select.EPOLLIN)
        self._readers[fd] = asyncio.Handle(callback, args, self, context), context

    def remove_reader(self, fd: Any) -> bool:
        known = self._readers.pop(fd, None) is not None
        if known:
            try:
                self._poll.unregister(fd)
            except OSError:
                return False
        return known

    def close(self) -> None:
        self._poll.close()
        super().close()


def _task(loop: asyncio.AbstractEventLoop, coroutine: Any, **keywords: Any) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **keywords)
    # The tasks of a dead broker never end.
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    return task


def context_of(life: Life) -> contextvars.Context:
    """A context whose tasks and timers belong to a life."""
    context = contextvars.copy_context()
    context.run(LIFE.set, life)
    return context
