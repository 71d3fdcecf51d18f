"""The thread with an event loop that a synchronous client works on.

    background = BackgroundLoop("kafkapy-producer")
    metadata = background.run(core.partitions("orders"), timeout_s=60)
    background.post(core.wake)
    background.stop()

After a fork the child has no such thread: there every call raises IllegalStateError, only `stop()` is harmless.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast

import uvloop

from kafkapy.errors import IllegalStateError, KafkaTimeoutError

__all__ = ["BackgroundLoop"]

log = logging.getLogger(__name__)

SLICE_S: Final = 0.5

T = TypeVar("T")
P = ParamSpec("P")

OF_ANOTHER_PROCESS: Final = (
    "the client belongs to the process that this one was forked from; make a client of its own here"
)
_inherited: list[object] = []
"""Loops of the parent process: a forked child must neither run nor free them."""


def runs_a_loop() -> bool:
    """Whether this thread runs an event loop now: a client's own, or one of the user's."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class BackgroundLoop:
    """Owns a daemon thread and its uvloop. `run`, `call` and `post` are for other threads; any number may use them."""

    def __init__(self, name: str = "kafkapy") -> None:
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._pid = os.getpid()
        self._stopped = False
        self._ended = False
        self._calls: set[_Call[Any]] = set()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()
        _running.add(self)

    @property
    def foreign(self) -> bool:
        """Whether this process was forked from the one that owns the thread."""
        return self._pid != os.getpid()

    def check(self) -> None:
        """IllegalStateError when the thread cannot be used: stopped, of another process, or this very thread."""
        if self.foreign:
            raise IllegalStateError(OF_ANOTHER_PROCESS)
        if self._stopped:
            raise IllegalStateError("the client is closed")
        if threading.get_ident() == self._thread.ident:
            raise IllegalStateError("a blocking call on the client's own thread would wait for itself")

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Runs a coroutine on the loop and waits for it.

        KafkaTimeoutError after `timeout_s`: the coroutine is cancelled then, and also when the wait is interrupted
        (KeyboardInterrupt). IllegalStateError when the thread cannot be used, or ends in the meantime.
        """
        call = _Call(coroutine)
        try:
            self.check()
            self._calls.add(call)
            if self._ended:
                raise RuntimeError
            self.loop.call_soon_threadsafe(call.start)
        except BaseException as error:
            self._calls.discard(call)
            coroutine.close()
            if isinstance(error, RuntimeError):
                raise IllegalStateError("the client is closed") from None
            raise
        try:
            if not call.wait(timeout_s):
                raise KafkaTimeoutError(f"no result within {timeout_s:g} s")
        except BaseException:
            self.post(call.cancel)
            raise
        finally:
            self._calls.discard(call)
        return call.outcome()

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a plain function on the loop's thread and gives its result. IllegalStateError."""

        async def call() -> T:
            return function(*args, **kwargs)

        return self.run(call())

    def post(self, function: Callable[..., object], *args: object) -> None:
        """Has a function called on the loop's thread soon; nothing after `stop()` or in a forked child."""
        if self._stopped or self.foreign:
            return
        # The loop may be closed between the look and the call.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function, *args)

    def stop(self) -> None:
        """Cancels what still runs and ends the thread. May be called again. In a forked child the thread is forgotten.

        It waits for the thread's end, but not on a thread that runs an event loop: a garbage collection there may stop
        any other client, and two loops that wait for each other would wait for ever.
        """
        if self._stopped:
            return
        self._stopped = True
        if self.foreign:
            _inherited.append(self.loop)
            return
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.loop.stop)
        if not runs_a_loop():
            self.join()

    def join(self) -> None:
        """Waits for the end of a thread that was stopped."""
        if not self.foreign and threading.get_ident() != self._thread.ident:
            self._thread.join()
            _running.discard(self)

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            _cancel_all(self.loop)
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()
            self._ended = True
            # Calls that came too late to be started. Later ones see `_ended`, or that the loop is closed.
            for call in list(self._calls):
                call.finish(None)


class _Call(Generic[T]):
    """A coroutine that another thread waits for."""

    __slots__ = ("_coroutine", "_done", "_error", "_finished", "_result", "_task")

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._finished = threading.Lock()
        self._finished.acquire()
        self._done = False
        self._coroutine = coroutine
        self._task: asyncio.Task[T] | None = None
        self._result: T | None = None
        self._error: BaseException | None = None

    def wait(self, timeout_s: float | None) -> bool:
        """On the other thread: whether it has finished in time.

        It waits in slices: a signal that comes between the interpreter's last look and the wait itself does not end the
        wait, and would otherwise be heard of only when that ends.
        """
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = SLICE_S if deadline_s is None else min(max(deadline_s - time.monotonic(), 0), SLICE_S)
            if self._finished.acquire(timeout=left_s):
                return True
            if deadline_s is not None and time.monotonic() >= deadline_s:
                return False

    def start(self) -> None:
        """On the loop."""
        self._task = asyncio.get_running_loop().create_task(self._coroutine)
        self._task.add_done_callback(self.finish)

    def cancel(self) -> None:
        """On the loop: nobody waits any more."""
        if self._task is not None:
            self._task.cancel()

    def finish(self, task: asyncio.Task[T] | None) -> None:
        """On the loop's thread: the task is done, or (None) there will be none."""
        if self._done:
            return
        self._done = True
        if task is None:
            self._coroutine.close()
            self._error = asyncio.CancelledError()
        elif task.cancelled():
            self._error = asyncio.CancelledError()
        else:
            self._error = task.exception()
            if self._error is None:
                self._result = task.result()
        self._finished.release()

    def outcome(self) -> T:
        """On the thread that waited: what the coroutine returned, or raised."""
        try:
            if isinstance(self._error, asyncio.CancelledError):
                raise IllegalStateError("the client was closed in the meantime")
            if self._error is not None:
                raise self._error
            return cast(T, self._result)
        finally:
            # An exception holds its traceback, and so this call.
            self._error = None


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """As asyncio.run() ends: every task is cancelled and waited for."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        results = loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        for result in results:
            if isinstance(result, Exception):
                log.error("A task of a closed client failed", exc_info=result)
    loop.run_until_complete(loop.shutdown_asyncgens())


_running: weakref.WeakSet[BackgroundLoop] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """A thread that is amid the loop's C code when the interpreter ends would bring the process down."""
    for background in list(_running):
        background.stop()
        background.join()
