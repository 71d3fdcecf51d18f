"""The broker's start loads its log directories.

Logs and future logs are recovered and taken into the LogTable; moves and deletions that a stop cut short are finished.
Source: kafka.log.LogManager.loadLogs.

count = DirLoader(table, futures, work, persistent_backends, topic_config, events=queue, threads=2, ...).load()
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from uuid import UUID

from kafkapy._speedups.base.event_queue import EventQueue
from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy.config.topic import LogConfig
from kafkapy.log.backends.base import LogStorage, StorageBackend
from kafkapy.log.dir_scan import DirScan, FoundLog, Place, check_unique, drop_unused, finish_swaps, scan_directory
from kafkapy.log.future_logs import FutureLogs
from kafkapy.log.loader import load_log, read_topic_id
from kafkapy.log.log_dir import LogDir, LogDirError
from kafkapy.log.log_table import LogTable
from kafkapy.log.log_work import LogWork
from kafkapy.log.shortage import insist, is_shortage
from kafkapy.log.stray_logs import StrayLogs
from kafkapy.types import TopicPartition

__all__ = ["DirLoader"]

logger = logging.getLogger("kafka.log.LogManager")

LOADS_AT_ONCE = 16
"""Logs that a recovery thread loads in one piece of work."""

Outcome = tuple[int, list[OSError]]
"""Segments that had to be recovered, and what failed."""


class DirLoader:
    """Loads every live directory of the table, once.

    Each directory gets `threads` threads. A directory that fails meanwhile goes offline alone.
    """

    def __init__(
        self,
        table: LogTable,
        futures: FutureLogs,
        work: LogWork,
        backends: Sequence[StorageBackend],
        topic_config: Callable[[str], LogConfig],
        *,
        strays: StrayLogs | None,
        forget_cleaned: Callable[[Path, TopicPartition], None],
        events: EventQueue | None,
        threads: int,
        producer_id_expiration_ms: int,
    ) -> None:
        """`strays` sets logs aside; `forget_cleaned` drops their cleaner offsets.

        Such logs are those that the metadata store does not know.
        """
        self._table = table
        self._futures = futures
        self._work = work
        self._backends = backends
        self._topic_config = topic_config
        self._strays = strays
        self._forget_cleaned = forget_cleaned
        self._events = events
        self._threads = threads
        self._expiration_ms = producer_id_expiration_ms

    def load(self) -> int:
        """Loads the directories; the number of logs. Blocking.

        LogDirError when no directory is left, or a partition is in two.
        """
        started = time.monotonic()
        table = self._table
        scans = self._scan()
        recovered = 0
        # All directories are at work before the first one is waited for.
        for log_dir, pool, pieces in [self._begin(scan) for scan in scans]:
            for piece in pieces:
                segments, failures = piece.result()
                recovered += segments
                for failure in failures:
                    self._failed(log_dir, failure)
            pool.shutdown()
        if not table.live_dirs:
            reasons = "; ".join(f"{log_dir.path}: {log_dir.failure}" for log_dir in table.dirs)
            raise LogDirError(f"No log directory can be used ({reasons}).")
        if self._strays is not None:
            self._strays.summarize()
        self._futures.settle()
        self._finish_deletes(scans)
        seconds = time.monotonic() - started
        count = len(table.logs())
        logger.info("The log manager loaded %d logs (%d segments recovered) in %d ms", count, recovered, seconds * 1000)
        return count

    def _scan(self) -> list[DirScan]:
        scans = []
        for log_dir in self._table.live_dirs:
            try:
                scans.append(insist(scan_directory, log_dir, self._backends))
            except OSError as error:
                self._failed(log_dir, error)
        for log_dir, failed in [*finish_swaps(scans), *drop_unused(scans)]:
            self._failed(log_dir, failed)
        check_unique(scans)
        return scans

    def _failed(self, log_dir: LogDir, error: OSError) -> None:
        """Takes the directory offline. LogDirError when descriptors or memory are short: a log that is not loaded now
        would be taken for a new one."""
        if is_shortage(error):
            raise LogDirError(
                f"The logs in {log_dir.path} cannot be loaded: {error.strerror}. Raise the limit of open files "
                "(ulimit -n) or the memory."
            )
        self._table.fail_dir(log_dir.path, error)

    def _begin(self, scan: DirScan) -> tuple[LogDir, ThreadPoolExecutor, list[Future[Outcome]]]:
        if scan.logs and not scan.clean:
            logger.warning("Log directory %s was not closed cleanly: its logs are recovered", scan.log_dir.path)
        jobs: list[Callable[[], int]] = [partial(self._load_log, scan, found) for found in scan.logs]
        jobs += [partial(self._load_future, scan, found) for found in scan.futures]
        name = f"kafka-recovery-{scan.log_dir.path.name}"
        pool = ThreadPoolExecutor(max_workers=self._threads, thread_name_prefix=name)
        starts = range(0, len(jobs), LOADS_AT_ONCE)
        return scan.log_dir, pool, [pool.submit(_run_all, jobs[start : start + LOADS_AT_ONCE]) for start in starts]

    def _load_log(self, scan: DirScan, found: FoundLog) -> int:
        storage, topic_id = self._open(scan, found)
        if self._is_stray(scan, found, topic_id):
            return 0
        log, recovered = self._read(scan, found, storage, topic_id, self._events)
        with self._table.lock:
            self._table.add(found.tp, log, Place(scan.log_dir, found.name, found.backend))
            if not scan.clean:
                self._table.not_closed.add(found.tp)
        return recovered

    def _load_future(self, scan: DirScan, found: FoundLog) -> int:
        storage, topic_id = self._open(scan, found)
        if self._is_stray(scan, found, topic_id):
            return 0
        log, recovered = self._read(scan, found, storage, topic_id, None)
        self._futures.adopt(found.tp, log, Place(scan.log_dir, found.name, found.backend))
        return recovered

    def _open(self, scan: DirScan, found: FoundLog) -> tuple[LogStorage, UUID]:
        """The storage in a directory, and the topic id that it names. OSError."""
        storage = found.backend.open_log(scan.log_dir.path, found.name, create=False)
        try:
            return storage, read_topic_id(storage)
        except ValueError as error:
            raise OSError(5, f"{found.tp}: {error}") from None

    def _is_stray(self, scan: DirScan, found: FoundLog, topic_id: UUID) -> bool:
        """Sets the log aside if the metadata store does not know it. OSError.

        Returns whether it did.
        """
        strays = self._strays
        reason = None if strays is None else strays.reason(found.tp, topic_id)
        if strays is None or reason is None:
            return False
        strays.rename(found.tp, Place(scan.log_dir, found.name, found.backend), reason)
        self._forget_cleaned(scan.log_dir.path, found.tp)
        return True

    def _read(
        self, scan: DirScan, found: FoundLog, storage: LogStorage, topic_id: UUID, events: EventQueue | None
    ) -> tuple[PartitionLog, int]:
        """The log in a directory, and the number of its recovered segments. OSError."""
        recovery_points, log_starts, high_watermarks = scan.offsets
        tp = found.tp
        log, report = load_log(
            storage,
            tp,
            self._topic_config(tp.topic),
            events=events,
            topic_id=topic_id,
            clean=scan.clean,
            recovery_point=recovery_points.get(tp, 0),
            log_start_offset=log_starts.get(tp, 0),
            high_watermark=high_watermarks.get(tp, 0),
            producer_id_expiration_ms=self._expiration_ms,
        )
        return log, report.recovered_segments

    def _finish_deletes(self, scans: Sequence[DirScan]) -> None:
        places = [Place(scan.log_dir, name, backend) for scan in scans for backend, name in scan.deleted]
        if places and self._table.offline_dirs:
            # One of them may be what was left behind by a move to a directory that cannot be read now.
            logger.warning("%d deleted logs are kept until all log directories are online", len(places))
            return
        for place in places:
            self._work.delete_later(place, 0)


def _run_all(jobs: Sequence[Callable[[], int]]) -> Outcome:
    """The sum of what the jobs return, and the failures; one does not keep the others from running."""
    total, failures = 0, []
    for job in jobs:
        try:
            total += insist(job)
        except OSError as error:
            failures.append(error)
    return total, failures
