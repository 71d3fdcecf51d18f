"""A coroutine whose time on the thread is measured, without its waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar

__all__ = ["TimedCoroutine"]

T = TypeVar("T")


class TimedCoroutine(Coroutine[Any, Any, T]):
    """Runs another coroutine and reports the begin of each step at its end.

    One task uses it.
    """

    __slots__ = ("_coroutine", "_report")

    def __init__(self, coroutine: Coroutine[Any, Any, T], report: Callable[[int], None]) -> None:
        self._coroutine = coroutine
        self._report = report

    def send(self, value: Any) -> Any:
        """See Coroutine."""
        started = time.monotonic_ns()
        try:
            return self._coroutine.send(value)
        finally:
            self._report(started)

    def throw(
        self,
        kind: type[BaseException] | BaseException,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> Any:
        """See Coroutine."""
        started = time.monotonic_ns()
        try:
            return self._coroutine.throw(kind if isinstance(kind, BaseException) else (value or kind()))
        finally:
            self._report(started)

    def close(self) -> None:
        """See Coroutine."""
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, T]:
        """See Coroutine."""
        return self  # type: ignore[return-value]

    def __iter__(self) -> TimedCoroutine[T]:
        return self

    def __next__(self) -> Any:
        return self.send(None)
