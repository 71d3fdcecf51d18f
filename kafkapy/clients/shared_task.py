"""A task whose outcome several coroutines wait for."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from kafkapy.errors import IllegalStateError

__all__ = ["outcome_of"]

T = TypeVar("T")


async def outcome_of(task: asyncio.Task[T]) -> T:
    """The task's result, or its error. Cancelling one who waits does not cancel the task.

    IllegalStateError when the task was cancelled, which only happens when the client is closed: with `asyncio.shield`
    those who wait would take it for their own cancellation.
    """
    await asyncio.wait([task])
    if task.cancelled():
        raise IllegalStateError("the client was closed in the meantime")
    return task.result()
