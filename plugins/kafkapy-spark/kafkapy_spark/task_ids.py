"""Transactional ids of tasks: SINK-TOKEN-NUMBER, of which TOKEN is the process's own.

No other process ever takes an id of this one. A task that goes on when its driver was replaced, or a second attempt of
its stage (which Spark numbers like the first), can therefore end no transaction but its own. Within the process an id
is used again when that harms nobody: the task that had it before is over, and a newer driver, which has carried out
what was decided before it, has planned the next one. So a sink has about as many ids as its workers run tasks for a
batch, and the coordinators do not fill up.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kafkapy.clients.producer.transactional_requests import PreparedTxnState

__all__ = ["PATTERN", "TaskIds", "task_ids"]

TOKEN_BYTES: Final = 8
PATTERN: Final = f"[0-9a-f]{{{2 * TOKEN_BYTES}}}-[0-9]+"
"""Names behind the sink's, for RE2 too."""
MAX_SINKS: Final = 16
"""Sinks whose ids are remembered. One that is forgotten gets new ids."""


@dataclass
class _Sink:
    next: int = 0
    free: dict[str, PreparedTxnState] = field(default_factory=dict)
    """Names that no task has, and the driver that had planned the last one."""


class TaskIds:
    """The ids of one process. Used by any thread."""

    def __init__(self) -> None:
        self._token = secrets.token_hex(TOKEN_BYTES)
        self._sinks: dict[str, _Sink] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def lent(self, sink: str, driver: PreparedTxnState, *, reuse: bool = True) -> Iterator[str]:
        """An id, without the sink's name, for a task that `driver` has planned. reuse: whether it may be one that a
        task had before: not while transactions of earlier drivers are still decided on."""
        with self._lock:
            ids = self._sinks[sink] = self._sinks.pop(sink, _Sink())
            while len(self._sinks) > MAX_SINKS:
                del self._sinks[next(iter(self._sinks))]
            found = next((name for name, last in ids.free.items() if _is_older(last, driver)), None) if reuse else None
            if found is None:
                found = f"{self._token}-{ids.next}"
                ids.next += 1
            else:
                del ids.free[found]
        try:
            yield found
        finally:
            with self._lock:
                ids.free[found] = driver

    def forget(self) -> None:
        """A process that was forked is another one."""
        self.__init__()  # type: ignore[misc]


def _is_older(last: PreparedTxnState, driver: PreparedTxnState) -> bool:
    return last.producer_id == driver.producer_id and last.producer_epoch < driver.producer_epoch


task_ids: Final = TaskIds()
os.register_at_fork(after_in_child=task_ids.forget)
