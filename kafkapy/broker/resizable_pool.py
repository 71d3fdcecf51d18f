"""A pool of worker threads whose size may change while it works. Source: kafka.server.KafkaRequestHandlerPool."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["ResizablePool"]

T = TypeVar("T")


class ResizablePool:
    """Owns the worker threads; they start with the first work.

    Any thread may submit. Resizing and shutdown are for the owner.
    """

    def __init__(self, size: int, name: str) -> None:
        self.size = size
        self._name = name
        self._threads = ThreadPoolExecutor(size, thread_name_prefix=name)
        self._earlier: list[ThreadPoolExecutor] = []

    def submit(self, fn: Callable[..., T], *arguments: object) -> Future[T]:
        """Queue a call. RuntimeError after `shutdown`."""
        while True:
            threads = self._threads
            try:
                return threads.submit(fn, *arguments)
            except RuntimeError:
                if threads is self._threads:
                    raise

    def resize(self, size: int) -> None:
        """Have this many threads for later work; the present ones finish theirs and end."""
        if size == self.size:
            return
        earlier = self._threads
        self.size, self._threads = size, ThreadPoolExecutor(size, thread_name_prefix=self._name)
        earlier.shutdown(wait=False)
        self._earlier = [each for each in self._earlier if any(thread.is_alive() for thread in each._threads)]
        self._earlier.append(earlier)

    def shutdown(self, *, wait: bool = True, cancel_futures: bool = False) -> None:
        """End the threads. Blocking with `wait`."""
        for each in (*self._earlier, self._threads):
            each.shutdown(wait=wait, cancel_futures=cancel_futures)
