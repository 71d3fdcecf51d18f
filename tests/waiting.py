"""Waiting for what other tasks and threads do: with a bound, and with a sentence when it does not come.

The bound is far beyond what any machine takes: it ends tests whose condition never holds.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

WAIT_S: Final = 60.0
PAUSE_S: Final = 0.002


async def until(condition: Callable[[], Any], what: str) -> None:
    """Return when the condition, which may give an awaitable, holds. AssertionError says `what` never was."""
    end = time.monotonic() + WAIT_S
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return
        if time.monotonic() > end:
            raise AssertionError(f"not within {WAIT_S:.0f} s: {what}")
        await asyncio.sleep(PAUSE_S)


async def until_not(condition: Callable[[], Any], what: str) -> None:
    """Return when the condition holds no longer; what is left over is named too."""
    left: list[Any] = []

    async def is_over() -> bool:
        value = condition()
        left[:] = [await value if inspect.isawaitable(value) else value]
        return not left[0]

    try:
        await until(is_over, what)
    except AssertionError as error:
        raise AssertionError(f"{error}; still {left[0]!r}") from None


def wait_until(condition: Callable[[], Any], what: str) -> None:
    """The same for threads."""
    end = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {WAIT_S:.0f} s: {what}")
        time.sleep(PAUSE_S)


def run(main: Callable[[], Awaitable[None]]) -> None:
    """A test's coroutine on a loop of its own, for WAIT_S at most."""

    async def bounded() -> None:
        async with asyncio.timeout(WAIT_S):
            await main()

    asyncio.run(bounded())
