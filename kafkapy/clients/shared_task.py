"""A task whose outcome several coroutines await."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from kafkapy.errors import IllegalStateError

__all__ = ["outcome_of"]

T = TypeVar("T")


async def outcome_of(task: asyncio.Task[T]) -> T:
    """The task's result or error.

    A cancelled waiter does not cancel the task. IllegalStateError when the task was cancelled, which only a closing
    client does: with `asyncio.shield` the waiters would mistake it for their own cancellation.
    """
    await asyncio.wait([task])
    if task.cancelled():
        raise IllegalStateError("the client was closed during the call")
    return task.result()
