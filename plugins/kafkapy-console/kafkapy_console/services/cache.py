"""Answers that several pages share for a few seconds; one request for all who wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

__all__ = ["Cache"]

T = TypeVar("T")
MOST = 2000


class Cache:
    """Results by key, each for a time. Used on one loop."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, tuple[float, asyncio.Task[Any]]] = {}

    async def get(self, key: Hashable, ttl_s: float, make: Callable[[], Awaitable[T]]) -> T:
        """The result of `make`, at most `ttl_s` old. Errors are not kept."""
        now = time.monotonic()
        found = self._entries.get(key)
        if found is None or (found[1].done() and now - found[0] > ttl_s) or found[1].cancelled():
            while len(self._entries) >= MOST:
                self._entries.pop(next(iter(self._entries)))
            task: asyncio.Task[T] = asyncio.ensure_future(_made(make))
            found = now, task
            self._entries[key] = found
            task.add_done_callback(lambda done: self._settle(key, done))
        # One waiter that goes away must not take the result of the others.
        return await asyncio.shield(found[1])  # type: ignore[no-any-return]

    def _settle(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        entry = self._entries.get(key)
        if entry is None or entry[1] is not task:
            return
        if task.cancelled() or task.exception() is not None:
            self._entries.pop(key)
        else:
            self._entries[key] = time.monotonic(), task

    def drop(self, *keys: Hashable) -> None:
        """Forget results after a change; without keys, all of them."""
        for key in keys or list(self._entries):
            self._entries.pop(key, None)


async def _made(make: Callable[[], Awaitable[T]]) -> T:
    return await make()
