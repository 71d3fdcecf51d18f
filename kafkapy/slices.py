"""Long work on the control loop in slices; other tasks keep running.

A handler iterates with `in_slices(items)` over anything whose length a client chooses. The loop runs other tasks, and
they write, between two slices: read and write data that must stay consistent within one slice.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterable
from heapq import merge
from itertools import islice
from typing import Final, Generic, TypeVar

T = TypeVar("T")
V = TypeVar("V")
K = TypeVar("K", bound=Hashable)

SLICE_S: Final = 0.002
"""Seconds of one slice; its last step may exceed them."""

CHUNK: Final = 2000
"""A number of elements that takes much less than a slice at a microsecond each."""


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """The items; the loop runs other tasks after each slice."""
    until = time.perf_counter() + SLICE_S
    for item in items:
        yield item
        if time.perf_counter() >= until:
            await turn()
            until = time.perf_counter() + SLICE_S


async def in_chunks(items: Iterable[T], size: int = CHUNK) -> AsyncIterator[list[T]]:
    """The items in lists of `size`, for operations on many items.

    The loop runs other tasks after each list.
    """
    iterator = iter(items)
    chunk = list(islice(iterator, size))
    while chunk:
        following = list(islice(iterator, size))
        yield chunk
        if following:
            await turn()
        chunk = following


async def counted(items: Iterable[K]) -> Counter[K]:
    """The number of occurrences of each item."""
    counts: Counter[K] = Counter()
    async for chunk in in_chunks(items):
        counts.update(chunk)
    return counts


async def in_order(items: Iterable[str]) -> AsyncIterator[str]:
    """The items in sorted order, in slices."""
    runs = [sorted(chunk) async for chunk in in_chunks(items)]
    async for item in in_slices(runs[0] if len(runs) == 1 else merge(*runs)):
        yield item


async def filled(keys: Iterable[K], value: V) -> dict[K, V]:
    """A dict with the same value for all keys."""
    made: dict[K, V] = {}
    async for chunk in in_chunks(keys):
        made.update(dict.fromkeys(chunk, value))
    return made


def _drop(item: object) -> None:
    """The handler of a closed queue."""


class SlicedQueue(Generic[T]):
    """Items that are handled in order, in slices of the running loop.

    Used on the loop. `handle` must not raise.
    """

    def __init__(self, handle: Callable[[T], object]) -> None:
        self._handle = handle
        self._items: deque[T] = deque()
        self._goes_on = False

    def put(self, items: Iterable[T]) -> None:
        """Handle items behind those that wait.

        The rest follows in later turns of the loop.
        """
        self._items.extend(items)
        if not self._goes_on:
            self._work()

    def flush(self) -> None:
        """Handle all items now."""
        while self._items:
            self._handle(self._items.popleft())

    def close(self) -> None:
        """Drop what is left, and let go of the handler's owner."""
        self._items.clear()
        self._handle = _drop

    def _work(self) -> None:
        self._goes_on = False
        until = time.perf_counter() + SLICE_S
        while self._items:
            self._handle(self._items.popleft())
            if self._items and time.perf_counter() >= until:
                self._goes_on = True
                asyncio.get_running_loop().call_soon(self._work)
                return


async def emptied(items: dict[K, V]) -> None:
    """Remove all items of a dict, whose objects go in slices."""
    while items:
        for _ in range(min(CHUNK, len(items))):
            items.popitem()
        await turn()


async def turn() -> None:
    """Let the loop run other tasks.

    All sliced work together runs one slice per turn.
    """
    loop = asyncio.get_running_loop()
    waiting = _waiting(loop)
    woken: asyncio.Future[None] = loop.create_future()
    waiting.append(woken)
    if len(waiting) == 1:
        loop.call_soon(_wake, loop, waiting)
    await woken


_local = threading.local()


def _waiting(loop: asyncio.AbstractEventLoop) -> deque[asyncio.Future[None]]:
    """The futures of tasks that wait for a turn of the loop."""
    if getattr(_local, "loop", None) is not loop:
        _local.loop, _local.waiting = loop, deque()
    waiting: deque[asyncio.Future[None]] = _local.waiting
    return waiting


def _wake(loop: asyncio.AbstractEventLoop, waiting: deque[asyncio.Future[None]]) -> None:
    """Wakes the longest waiting task in the loop's next turn."""
    first = waiting[0]
    if not first.done():
        first.set_result(None)
    waiting.popleft()
    if waiting:
        loop.call_soon(_wake, loop, waiting)
