"""enable.auto.commit: commits of the positions of earlier polls, every auto.commit.interval.ms.

Source: org.apache.kafka.clients.consumer.internals.ConsumerCoordinator.maybeAutoCommitOffsetsAsync (4.1).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from kafkapy.errors import KafkaError
from kafkapy.types import OffsetAndMetadata, TopicPartition

__all__ = ["AutoCommit"]

logger = logging.getLogger("kafka.consumer")

Positions = dict[TopicPartition, OffsetAndMetadata]


class AutoCommit:
    """Schedules and makes automatic commits. On the loop's thread.

    `commit` and `callback` are as in `ConsumerCore`.
    """

    def __init__(
        self,
        enabled: bool,
        interval_ms: int,
        retry_backoff_ms: int,
        commit: Callable[[Positions], Awaitable[None]],
        callback: Callable[[Positions, Exception | None], None],
    ) -> None:
        self.enabled = enabled
        self._interval_s = interval_ms / 1000
        self._retry_backoff_s = retry_backoff_ms / 1000
        self._commit = commit
        self._callback = callback
        self._due_at = time.monotonic() + self._interval_s
        self._task: asyncio.Task[Any] | None = None

    @property
    def due(self) -> bool:
        """Whether the interval is over and no commit is running."""
        return self.enabled and self._task is None and time.monotonic() >= self._due_at

    def begin(self, positions: Positions) -> None:
        """Commits processed offsets in the background, if a commit is due."""
        if self.due:
            self._due_at = time.monotonic() + self._interval_s
            if positions:
                self._task = asyncio.get_running_loop().create_task(self._run(positions))

    async def _run(self, positions: Positions) -> None:
        error: Exception | None = None
        try:
            await self._commit(positions)
        except KafkaError as raised:
            error = raised
            logger.warning("Automatic commit of %d offsets failed: %s", len(positions), error)
            if error.retriable:
                self._due_at = time.monotonic() + self._retry_backoff_s
        finally:
            self._task = None
        self._callback(positions, error)

    async def finish(self, positions: Positions) -> None:
        """Makes the last commit, when the consumer closes."""
        if not self.enabled:
            return
        self.enabled = False
        if self._task is not None:
            await asyncio.wait([self._task])
        if positions:
            try:
                await self._commit(positions)
            except KafkaError as error:
                logger.warning("Commit of %d offsets at close failed: %s", len(positions), error)
