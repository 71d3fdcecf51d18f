"""Long work on the control loop, a slice at a time, so that nobody waits for the whole of it.

A handler that walks through something as long as a client likes walks through `in_slices(it)`. Every slice ends with a
turn of the loop, in which others write: what must not change meanwhile is read and written inside of one slice.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Hashable, Iterable
from heapq import merge
from itertools import islice
from typing import Final, TypeVar

T = TypeVar("T")
V = TypeVar("V")
K = TypeVar("K", bound=Hashable)

SLICE_S: Final = 0.002
"""How long a slice takes; its last step may make it longer."""

CHUNK: Final = 2000
"""Elements that take much less than a slice when each takes a microsecond."""


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """The items; now and then the rest of the loop has its turn before the next one."""
    until = time.perf_counter() + SLICE_S
    for item in items:
        yield item
        if time.perf_counter() >= until:
            await turn()
            until = time.perf_counter() + SLICE_S


async def in_chunks(items: Iterable[T], size: int = CHUNK) -> AsyncIterator[list[T]]:
    """The items, some at a time, for what is quick on many at once; a turn of the loop after each list."""
    iterator = iter(items)
    chunk = list(islice(iterator, size))
    while chunk:
        following = list(islice(iterator, size))
        yield chunk
        if following:
            await turn()
        chunk = following


async def counted(items: Iterable[K]) -> Counter[K]:
    """How often each of the items is there."""
    counts: Counter[K] = Counter()
    async for chunk in in_chunks(items):
        counts.update(chunk)
    return counts


async def in_order(items: Iterable[str]) -> AsyncIterator[str]:
    """The items sorted, in slices."""
    runs = [sorted(chunk) async for chunk in in_chunks(items)]
    async for item in in_slices(runs[0] if len(runs) == 1 else merge(*runs)):
        yield item


async def filled(keys: Iterable[K], value: V) -> dict[K, V]:
    """The same value for each of the keys."""
    made: dict[K, V] = {}
    async for chunk in in_chunks(keys):
        made.update(dict.fromkeys(chunk, value))
    return made


async def turn() -> None:
    """Let the loop do what waits. Of all that is done in slices one slice is done in each turn of the loop."""
    loop = asyncio.get_running_loop()
    waiting = _waiting(loop)
    woken: asyncio.Future[None] = loop.create_future()
    waiting.append(woken)
    if len(waiting) == 1:
        loop.call_soon(_wake, loop, waiting)
    await woken


_local = threading.local()


def _waiting(loop: asyncio.AbstractEventLoop) -> deque[asyncio.Future[None]]:
    """Who waits for a turn of this thread's loop."""
    if getattr(_local, "loop", None) is not loop:
        _local.loop, _local.waiting = loop, deque()
    waiting: deque[asyncio.Future[None]] = _local.waiting
    return waiting


def _wake(loop: asyncio.AbstractEventLoop, waiting: deque[asyncio.Future[None]]) -> None:
    """The longest waiting one goes on in the loop's next turn."""
    first = waiting[0]
    if not first.done():
        first.set_result(None)
    waiting.popleft()
    if waiting:
        loop.call_soon(_wake, loop, waiting)
