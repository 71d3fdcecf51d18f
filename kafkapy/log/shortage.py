"""Shortages of descriptors or memory: the log closes idle files and retries.

Such a failure (EMFILE, ENFILE, ENOMEM, EAGAIN, ENOBUFS) says nothing about the disk, so it never takes a log directory
offline.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Lock
from typing import Final, ParamSpec, TypeVar

from kafkapy._speedups.log.open_files import close_idle
from kafkapy._speedups.log.partition_log import NOT_THE_DISK

__all__ = ["FILES_AT_ONCE", "close_idle", "insist", "is_shortage", "warn_of_shortage"]

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("kafka.log.LogManager")

FILES_AT_ONCE: Final = 32
"""Idle segment files that close at a shortage."""
PAUSES_S: Final = (0.0, 0.01, 0.05, 0.1, 0.2, 0.4)
"""Before each further try."""
WARN_EVERY_S: Final = 60.0

_lock = Lock()
_warned_at = -WARN_EVERY_S


def is_shortage(error: OSError) -> bool:
    """Whether the error says that descriptors or memory are short."""
    return error.errno in NOT_THE_DISK


def insist(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The function's result, with retries while descriptors or memory are short.

    It retries for less than a second in all. Blocking; OSError.
    """
    for pause in PAUSES_S:
        try:
            return work(*args, **kwargs)
        except OSError as error:
            if not is_shortage(error):
                raise
            warn_of_shortage(error)
        close_idle(FILES_AT_ONCE)
        time.sleep(pause)
    return work(*args, **kwargs)


def warn_of_shortage(error: OSError) -> None:
    """One log line in a minute. Any thread."""
    global _warned_at
    now = time.monotonic()
    with _lock:
        due = now - _warned_at >= WARN_EVERY_S
        if due:
            _warned_at = now
    if due:
        logger.warning(
            "A file operation failed and is retried: %s. Raise the limit of open files (ulimit -n), or free memory",
            error.strerror or error,
        )
