"""The thread and event loop of a synchronous client.

    background = BackgroundLoop("kafkapy-producer")
    metadata = background.run(core.partitions("orders"), timeout_s=60)
    background.post(core.wake)
    background.stop()

A forked child does not have the thread: all calls there raise IllegalStateError, except `stop()`.
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

OF_ANOTHER_PROCESS: Final = "the client belongs to the parent process; create a new client after a fork"
_inherited: list[object] = []
"""Loops of the parent process: a forked child must neither run nor free them."""


def runs_a_loop() -> bool:
    """Whether this thread runs an event loop, a client's or the user's."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class BackgroundLoop:
    """Owns a daemon thread and its uvloop.

    Any number of other threads may use `run`, `call` and `post`.
    """

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
        """Whether this process was forked from the process with the thread."""
        return self._pid != os.getpid()

    def check(self) -> None:
        """IllegalStateError when the thread is stopped, in another process, or the caller."""
        if self.foreign:
            raise IllegalStateError(OF_ANOTHER_PROCESS)
        if self._stopped:
            raise IllegalStateError("the client is closed")
        if threading.get_ident() == self._thread.ident:
            raise IllegalStateError("a blocking call on the client's own thread would deadlock")

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Runs a coroutine on the loop and waits for its result.

        KafkaTimeoutError after `timeout_s`. The timeout, and an interrupted wait (KeyboardInterrupt), cancel the
        coroutine. IllegalStateError when the thread is unusable, or ends meanwhile.
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
        """Calls a function on the loop's thread and returns its result. IllegalStateError."""

        async def call() -> T:
            return function(*args, **kwargs)

        return self.run(call())

    def post(self, function: Callable[..., object], *args: object) -> None:
        """Schedules a call on the loop's thread.

        Does nothing after `stop()` and in a forked child.
        """
        if self._stopped or self.foreign:
            return
        # The loop may close between the check and the call.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function, *args)

    def stop(self) -> None:
        """Cancels running tasks and ends the thread. A second call does nothing.

        It waits for the thread's end, except on a thread that runs an event loop: a garbage collection there may stop
        any other client, and two loops that wait for each other would deadlock. A forked child only forgets the thread.
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
        """Waits for the end of a stopped thread."""
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
            # Calls that arrived too late to start. Later ones see `_ended`, or a closed loop.
            for call in list(self._calls):
                call.finish(None)


class _Call(Generic[T]):
    """A coroutine, and another thread that waits for it."""

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
        """Waits on the other thread; whether the coroutine finished in time.

        It waits in slices: a signal that arrives between the interpreter's last check and the wait itself does not
        interrupt the wait, so the interpreter handles it only when the wait ends.
        """
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = SLICE_S if deadline_s is None else min(max(deadline_s - time.monotonic(), 0), SLICE_S)
            if self._finished.acquire(timeout=left_s):
                return True
            if deadline_s is not None and time.monotonic() >= deadline_s:
                return False

    def start(self) -> None:
        """Creates the task, on the loop."""
        self._task = asyncio.get_running_loop().create_task(self._coroutine)
        self._task.add_done_callback(self.finish)

    def cancel(self) -> None:
        """Cancels the task, on the loop, when its waiter is gone."""
        if self._task is not None:
            self._task.cancel()

    def finish(self, task: asyncio.Task[T] | None) -> None:
        """Stores the outcome, on the loop's thread.

        None: the task will never exist.
        """
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
        """The coroutine's result or error, on the waiting thread."""
        try:
            if isinstance(self._error, asyncio.CancelledError):
                raise IllegalStateError("the client was closed during the call")
            if self._error is not None:
                raise self._error
            return cast(T, self._result)
        finally:
            # An exception keeps its traceback alive, and the traceback keeps this call alive.
            self._error = None


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """Cancels all tasks and waits for them, like the end of asyncio.run()."""
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
    """Stops all loops when the interpreter exits.

    A thread inside the loop's C code would crash the exiting interpreter.
    """
    for background in list(_running):
        background.stop()
        background.join()
