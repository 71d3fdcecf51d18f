"""The timeouts of one shard: delayed writes, with retries.

The runtime runs a write later, and again when it cannot be written then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, TypeVar

from kafkapy.coordinator.result import TOO_LARGE, Later, Result
from kafkapy.coordinator.timer import TimerHeap
from kafkapy.errors import ErrorCode, KafkaError, UnknownServerError

logger = logging.getLogger("kafka.coordinator.Timer")

S = TypeVar("S")
T = TypeVar("T")
Operation = Callable[[S, int], Result[T]]

RELOAD_PAUSE_MS: Final = 500
"""Pause in ms before a failed load, or an unwritten timeout, is tried again."""
LONGEST_RELOAD_PAUSE_MS: Final = 30_000
"""Longest pause in ms between retries of a load or timeout; the pause doubles up to this."""


HOPELESS: Final = (*TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR)
"""Errors that the next attempt will most likely meet again."""


class ShardTimer(Generic[S]):
    """The timeouts of one shard.

    The runtime makes it; the shard uses it, on the control loop's thread.
    """

    def __init__(self, heap: TimerHeap, run: Callable[[Operation[S, Any]], Later[Any]], name: object) -> None:
        self._heap = heap
        self._run = run
        self._name = name
        self._keys: set[tuple[object, Hashable]] = set()
        self._retries: set[Hashable] = set()
        """Keys of operations that failed and wait for the next attempt."""
        self._closed = False
        self.before: Callable[[Hashable], None] = lambda _: None
        """Called with the key before each operation; an error of Kafka's that it raises becomes the operation's."""

    def __contains__(self, key: Hashable) -> bool:
        return (self._name, key) in self._heap

    def schedule(self, key: Hashable, delay_ms: int, operation: Operation[S, Any]) -> None:
        """Run a write operation after `delay_ms` ms.

        It replaces the operation scheduled under the key before. A failed write is tried again, less and less often
        when its records are too many for a batch or the error is none of Kafka's; its reply is dropped.
        """
        self._retries.discard(key)
        self._arm(key, delay_ms, operation, RELOAD_PAUSE_MS)

    def restart(self, key: Hashable, delay_ms: int) -> bool:
        """Move the scheduled operation of a key to `delay_ms` ms from now.

        False without one, and for a failed operation that waits for its next attempt: it would keep its longer pauses.
        A heartbeat restarts a session so, without a new operation.
        """
        return key not in self._retries and self._heap.restart((self._name, key), delay_ms)

    def _arm(self, key: Hashable, delay_ms: int, operation: Operation[S, Any], pause_ms: int) -> None:
        if self._closed:
            return
        full = (self._name, key)
        self._keys.add(full)
        self._heap.schedule(full, delay_ms, lambda: self._due(key, operation, pause_ms))

    def cancel(self, key: Hashable) -> None:
        """Cancel the timeout of a key."""
        full = (self._name, key)
        self._keys.discard(full)
        self._retries.discard(key)
        self._heap.cancel(full)

    def close(self) -> None:
        """Cancel all timeouts, for good."""
        self._closed = True
        for key in self._keys:
            self._heap.cancel(key)
        self._keys.clear()

    def _go(self, key: Hashable, operation: Operation[S, T], shard: S, now_ms: int) -> Result[T]:
        self.before(key)
        return operation(shard, now_ms)

    def _due(self, key: Hashable, operation: Operation[S, Any], pause_ms: int) -> None:
        self._keys.discard((self._name, key))
        self._retries.discard(key)

        def ended(later: Later[Any]) -> None:
            # A later schedule of the same key takes precedence.
            if later.error is None or self._closed or key in self:
                return
            hopeless = isinstance(later.error, KafkaError) and later.error.code in HOPELESS
            next_pause_ms = min(2 * pause_ms, LONGEST_RELOAD_PAUSE_MS) if hopeless else RELOAD_PAUSE_MS
            self._retries.add(key)
            self._arm(key, pause_ms, operation, next_pause_ms)

        try:
            later = self._run(lambda shard, now_ms: self._go(key, operation, shard, now_ms))
        except Exception as error:
            # A defect, here or in a plugin: without the timeout its members would stay for ever.
            logger.exception("A timeout of %s failed; the coordinator retries in %d ms", self._name, pause_ms)
            later = Later()
            later.fail(error if isinstance(error, KafkaError) else UnknownServerError())
        later.then(ended)
