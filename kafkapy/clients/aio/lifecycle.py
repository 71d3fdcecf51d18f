"""Start and stop of the asyncio producer and consumer."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self

__all__ = ["StartedClient", "drop_old_keywords"]


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
