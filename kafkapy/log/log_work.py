"""Background work on the broker's logs: disk errors, shortages and delayed calls.

work = LogWork(table, scheduler)
work.guarded(log, function)             # now; a disk error takes the log's directory offline
work.flush_later(log, function)         # on a thread of the scheduler
work.delete_later(place, delay_ms, log)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy.log.dir_scan import Place
from kafkapy.log.log_dir import LogDir
from kafkapy.log.log_table import LogTable
from kafkapy.log.shortage import is_shortage, warn_of_shortage

__all__ = ["LogWork", "Scheduler"]

logger = logging.getLogger("kafka.log.LogManager")

RETRY_MS = 250
"""When work is tried again that failed for want of descriptors or memory."""


class Scheduler(Protocol):
    """The used part of KafkaScheduler; a plain function runs on a worker thread."""

    def schedule(self, name: str, fn: Callable[[], Any], delay_ms: int = 0, period_ms: int = -1) -> Any:
        """Runs fn after delay_ms, then again every period_ms.

        The period begins at the end of a run; -1: once.
        """


class LogWork:
    """Runs functions on logs for the other parts of the LogManager.

    Owns nothing. Any thread; without a scheduler nothing is done later.
    """

    def __init__(self, table: LogTable, scheduler: Scheduler | None) -> None:
        self._table = table
        self._scheduler = scheduler

    def guarded(self, log: PartitionLog, work: Callable[[PartitionLog], object]) -> None:
        """Calls work(log) unless the log is deleted.

        A disk error takes its directory offline; a call that fails because descriptors or memory are short is tried
        again later.
        """
        if self._table.path_of(log) is None:
            return
        try:
            work(log)
        except OSError as error:
            path = self._table.path_of(log)
            if is_shortage(error) and self._scheduler is not None and not self._table.closed:
                # Appends may be waiting for this work.
                warn_of_shortage(error)
                self._scheduler.schedule("retry", lambda: self.guarded(log, work), RETRY_MS)
            elif path is not None:
                self._table.fail_dir(path, error)
        except Exception:
            logger.exception("The background work of %s failed", log)

    def flush_later(self, log: PartitionLog, flush: Callable[[PartitionLog], object]) -> None:
        """Has a thread of the scheduler sync a log."""
        if self._scheduler is not None and not self._table.closed:
            self._scheduler.schedule("flush-log", lambda: self.guarded(log, flush))

    def later(self, function: Callable[[], None], delay_ms: int) -> None:
        """Removes files after `delay_ms`.

        At once without a scheduler, or while the logs are being closed.
        """
        if self._scheduler is None or self._table.closed:
            function()
        else:
            self._scheduler.schedule("kafka-delete-logs", function, delay_ms)

    def delete_later(
        self, place: Place, delay_ms: int, log: PartitionLog | None = None, *, successor: LogDir | None = None
    ) -> None:
        """Removes a directory that has its deleted name already.

        `log` is closed before. The directory is kept when `successor`, the directory that its log was moved to, has
        failed by then.
        """

        def remove() -> None:
            if successor is not None and successor.failure is not None:
                logger.warning(
                    "Log %s is not deleted: log directory %s, which holds its copy, failed",
                    place.log_dir.path / place.name,
                    successor.path,
                )
                return
            try:
                if log is not None:
                    log.close()
                place.backend.delete_log(place.log_dir.path, place.name)
            except OSError as error:
                self._table.fail_dir(place.log_dir.path, error)
            else:
                logger.info("Log %s was deleted in %s", place.name, place.log_dir.path)

        self.later(remove, delay_ms)
