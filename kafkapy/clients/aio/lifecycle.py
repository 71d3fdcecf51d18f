"""Start and stop of the asyncio producer and consumers."""

from __future__ import annotations

import asyncio
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

__all__ = ["StartedClient", "drop_old_keywords", "post_to_running_loop", "weakly"]


def drop_old_keywords(keywords: Any) -> None:
    """Removes deprecated keywords of aiokafka, which have no effect."""
    for name in ("loop", "api_version"):
        if keywords.pop(name, None) is not None:
            warnings.warn(f"{name} is deprecated and has no effect", DeprecationWarning, stacklevel=3)


class StartedClient(ABC):
    """A client that starts once and stops once.

    By hand or by `async with`. A client that is garbage-collected before its stop causes a ResourceWarning.
    """

    def __init__(self) -> None:
        self._started = False
        self._stopped = False

    @abstractmethod
    async def start(self) -> None:
        """Connect to the cluster. A second call does nothing."""

    @abstractmethod
    async def stop(self) -> None:
        """Finish, and close all connections. A second call does nothing."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __del__(self) -> None:
        if getattr(self, "_started", False) and not self._stopped:
            warnings.warn(f"Unclosed {type(self).__name__}: {self!r}", ResourceWarning, source=self, stacklevel=2)

    @property
    def _running(self) -> bool:
        return self._started and not self._stopped


def weakly(method: Callable[[], None]) -> Callable[[], None]:
    """A weak reference to a method.

    The core's tasks must not keep an abandoned consumer alive.
    """
    reference = weakref.WeakMethod(method)

    def call() -> None:
        found = reference()
        if found is not None:
            found()

    return call


def post_to_running_loop(function: Callable[[], object]) -> None:
    """Posts a function to the running loop.

    The core's loop is the user's loop, so the function runs at the end of this turn.
    """
    asyncio.get_running_loop().call_soon(function)
