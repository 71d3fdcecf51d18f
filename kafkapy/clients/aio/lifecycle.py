"""How the asyncio producer and consumer begin and end."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self

__all__ = ["StartedClient", "drop_old_keywords"]


def drop_old_keywords(keywords: Any) -> None:
    """Takes out keywords that aiokafka has deprecated; they mean nothing."""
    for name in ("loop", "api_version"):
        if keywords.pop(name, None) is not None:
            warnings.warn(f"{name} is deprecated and means nothing", DeprecationWarning, stacklevel=3)


class StartedClient(ABC):
    """A client that is started once and stopped once, by hand or by `async with`. A forgotten stop is warned of."""

    def __init__(self) -> None:
        self._started = False
        self._stopped = False

    @abstractmethod
    async def start(self) -> None:
        """Reach the cluster. A second call does nothing."""

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
