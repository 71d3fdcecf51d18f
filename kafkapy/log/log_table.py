"""The table of the broker's partition logs, by log directory.

It also knows which directories have failed.

table = LogTable(dirs)
table.add(tp, log, place)               # under table.lock
table.fail_dir(path, error)             # the directory goes offline with all its logs
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock

from kafkapy._speedups.log.future_log import FutureLogCopy
from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy.errors import error_for
from kafkapy.log.dir_scan import Place
from kafkapy.log.log_dir import LogDir
from kafkapy.log.shortage import is_shortage, warn_of_shortage
from kafkapy.log.workers import DirWorkers
from kafkapy.types import TopicPartition

__all__ = ["FutureLog", "LogTable"]

logger = logging.getLogger("kafka.log.LogManager")

KAFKA_STORAGE_ERROR = 56
LOG_DIR_NOT_FOUND = 57
MAX_PREFERRED = 10_000
"""Partitions that may come some day, and whose directory is remembered."""


@dataclass(slots=True)
class FutureLog:
    """A partition's log in the making.

    The thread that copies to it, cuts it, or puts it in place holds `lock`.
    """

    tp: TopicPartition
    log: PartitionLog
    place: Place
    lock: threading.Lock = field(default_factory=threading.Lock)
    copy: FutureLogCopy | None = None
    """None until the partition's log is known."""
    stopped: bool = False
    swapping: bool = False
    """It is being put in the log's place: until that is over the table keeps it. Under LogTable's lock."""
    written_epochs: list[tuple[int, int]] = field(default_factory=list)
    unflushed: int = 0
    """Bytes copied since the last flush."""


class LogTable:
    """Owns the log directories and the tables of logs and future logs.

    One lock guards them. It is held for table work, and through the few file calls that make or delete one log, so that
    no partition is made twice. Any thread.

    `workers`: the native threads of each directory, where a data plane appends.
    """

    def __init__(
        self,
        dirs: Sequence[LogDir],
        workers: Mapping[Path, DirWorkers] | None = None,
        on_log_dir_failure: Callable[[Path, list[TopicPartition]], None] | None = None,
    ) -> None:
        self.dirs = list(dirs)
        self.lock = RLock()
        self.closed = False
        """Whether the broker has begun to close its logs: none is made any more."""
        self.futures: dict[TopicPartition, FutureLog] = {}
        """The future logs, of which a partition has one at most. FutureLogs changes it."""
        self.future_logs_of: Callable[[Path], list[PartitionLog]] = lambda path: []
        """Called under the lock when a directory fails: FutureLogs stops its moves and names the future logs in it."""
        self.not_closed: set[TopicPartition] = set()
        """Partitions whose log was loaded from a directory that had not been closed cleanly."""
        self.flushed_at: dict[TopicPartition, float] = {}
        """When the flusher last synced each log; of the monotonic clock."""
        self.cordoned: frozenset[Path] = frozenset()
        """Directories that get no new partitions (KIP-1066)."""
        self._workers = workers or {}
        self._on_log_dir_failure = on_log_dir_failure
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._by_id: dict[int, PartitionLog] = {}
        # The backend that has the log; the configuration may name another one by now.
        self._places: dict[TopicPartition, Place] = {}
        # Where a partition that is not here yet shall be made (AlterReplicaLogDirs).
        self._preferred: dict[TopicPartition, LogDir] = {}
        self._counts = {log_dir.path: 0 for log_dir in self.dirs}

    # ---- look-ups ----

    @property
    def live_dirs(self) -> list[LogDir]:
        """The directories that work."""
        return [log_dir for log_dir in self.dirs if log_dir.failure is None]

    @property
    def offline_dirs(self) -> list[LogDir]:
        """The directories that failed."""
        return [log_dir for log_dir in self.dirs if log_dir.failure is not None]

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._logs

    def get(self, tp: TopicPartition) -> PartitionLog | None:
        """The log of a partition hosted here, or None."""
        return self._logs.get(tp)

    def by_handle(self, handle: int) -> PartitionLog | None:
        """The log that the data plane calls by that number, or None."""
        return self._by_id.get(handle)

    def logs(self) -> dict[TopicPartition, PartitionLog]:
        """A copy of the table."""
        with self.lock:
            return dict(self._logs)

    def place(self, tp: TopicPartition) -> Place | None:
        """Where the log of a partition is, or None."""
        return self._places.get(tp)

    def dir_of(self, tp: TopicPartition) -> Path | None:
        """The log directory that a partition is in, or None."""
        place = self._places.get(tp)
        return place.log_dir.path if place else None

    def log_at(self, tp: TopicPartition) -> tuple[PartitionLog, Path]:
        """The log of a partition and its log directory. KeyError when there is none."""
        return self._logs[tp], self._places[tp].log_dir.path

    def path_of(self, log: PartitionLog) -> Path | None:
        """The directory of this very log; None when it is deleted.

        A new log of its name does not count.
        """
        with self.lock:
            place = self._places.get(TopicPartition(log.topic, log.partition))
            return place.log_dir.path if place is not None and log.id in self._by_id else None

    def with_files(self) -> list[tuple[TopicPartition, LogDir, PartitionLog]]:
        """The logs and future logs that have files, with their directories.

        No directory has both of a partition.
        """
        with self.lock:
            placed = [(tp, self._places[tp].log_dir, log) for tp, log in self._logs.items() if log.storage.directory]
            return placed + [(tp, each.place.log_dir, each.log) for tp, each in self.futures.items()]

    # ---- changes ----

    def add(self, tp: TopicPartition, log: PartitionLog, place: Place) -> None:
        """Takes a log into the table that was loaded or made. Under the lock."""
        self._logs[tp] = log
        self._by_id[log.id] = log
        self._places[tp] = place
        self._use_workers(log, place)
        self.count(place.log_dir.path, 1)
        self.flushed_at[tp] = time.monotonic()
        self._preferred.pop(tp, None)

    def remove(self, tp: TopicPartition) -> tuple[PartitionLog, Place]:
        """Takes a log out of the table. Under the lock."""
        log, place = self._logs.pop(tp), self._places.pop(tp)
        self._by_id.pop(log.id, None)
        self.flushed_at.pop(tp, None)
        self.count(place.log_dir.path, -1)
        return log, place

    def count(self, path: Path, change: int) -> None:
        """A directory has got so many more logs, or future logs. Under the lock."""
        self._counts[path] += change

    def replaced(self, tp: TopicPartition, place: Place) -> None:
        """The partition's log is at `place` now. Under the lock.

        The place counted it as a future log before.
        """
        self.count(self._places[tp].log_dir.path, -1)
        self._places[tp] = place
        self._use_workers(self._logs[tp], place)

    def _use_workers(self, log: PartitionLog, place: Place) -> None:
        workers = self._workers.get(place.log_dir.path)
        if workers is not None:
            log.use_workers(workers.segments, workers.flushes, workers.appends)

    def close(self) -> dict[Path, list[PartitionLog]]:
        """Lets no further log be made; each directory's logs and future logs.

        The caller closes them.
        """
        with self.lock:
            self.closed = True
            by_dir: dict[Path, list[PartitionLog]] = {log_dir.path: [] for log_dir in self.dirs}
            for tp, log in self._logs.items():
                by_dir[self._places[tp].log_dir.path].append(log)
            for future in self.futures.values():
                by_dir[future.place.log_dir.path].append(future.log)
            return by_dir

    def clear(self) -> None:
        """Lets go of the logs, which have been closed.

        Descriptors and memory go with them, not with the last reference to the broker that had them.
        """
        with self.lock:
            self._logs.clear()
            self._by_id.clear()
            self._places.clear()
            self.futures.clear()

    # ---- directories for new logs ----

    def check_dir(self, path: Path) -> None:
        """LogDirNotFoundError for an unknown path, KafkaStorageError for an offline directory.

        A path has to be written as Kafka shows it: absolute.
        """
        log_dir = next((each for each in self.dirs if each.path == path), None)
        if log_dir is None:
            raise error_for(LOG_DIR_NOT_FOUND, f"Log dir {path} is not found in the config.")
        if log_dir.failure is not None:
            raise error_for(KAFKA_STORAGE_ERROR, f"Log directory {path} is offline")

    def prefer(self, tp: TopicPartition, path: Path) -> None:
        """The partition, which is not here yet, shall be made in that directory (maybeUpdatePreferredLogDir)."""
        with self.lock:
            if tp not in self._logs:
                self._preferred[tp] = next(each for each in self.dirs if each.path == path)
                if len(self._preferred) > MAX_PREFERRED:
                    del self._preferred[next(iter(self._preferred))]

    def dir_for(self, tp: TopicPartition) -> LogDir | None:
        """The directory for a new log. Under the lock.

        It is the preferred one, or that with the fewest logs which is not cordoned. A partition that the controller
        placed here although all are cordoned gets one all the same. None when it, or each, is offline, or the logs are
        being closed.
        """
        preferred = self._preferred.get(tp)
        live = self.live_dirs if preferred is None else [preferred][: preferred.failure is None]
        if not live or self.closed:
            return None
        return min(live, key=lambda candidate: (candidate.path in self.cordoned, self._counts[candidate.path]))

    # ---- failures ----

    def fail_dir(self, path: Path, error: OSError) -> None:
        """Takes a directory offline with all its logs. Any thread.

        They answer KAFKA_STORAGE_ERROR; other directories live on. Nothing happens while only descriptors or memory are
        short.
        """
        if is_shortage(error):
            warn_of_shortage(error)
            return
        with self.lock:
            log_dir = next((candidate for candidate in self.dirs if candidate.path == path), None)
            if log_dir is None or log_dir.failure is not None:
                return
            log_dir.failure = error
            affected = [tp for tp, place in self._places.items() if place.log_dir is log_dir]
            logs = [self._logs[tp] for tp in affected] + self.future_logs_of(path)
        logger.error("Log directory %s is offline with %d logs: %s", path, len(affected), error)
        if not self.live_dirs:
            paths = ", ".join(str(each.path) for each in self.dirs)
            logger.critical("Shutdown broker because all log dirs in %s have failed", paths)
        self._take_offline(path, error, affected, logs)

    def fail_late(self, tp: TopicPartition) -> None:
        """Takes the partition's log offline if its new directory failed meanwhile."""
        with self.lock:
            log, place = self._logs.get(tp), self._places.get(tp)
        # Deletion may have been waiting for the end of the move.
        if log is not None and place is not None and place.log_dir.failure is not None:
            self._take_offline(place.log_dir.path, place.log_dir.failure, [tp], [log])

    def _take_offline(
        self, path: Path, error: OSError, partitions: list[TopicPartition], logs: Sequence[PartitionLog]
    ) -> None:
        for log in logs:
            log.go_offline(error.errno or 5)
        if self._on_log_dir_failure is not None:
            self._on_log_dir_failure(path, partitions)

    def log_failed(self, tp: TopicPartition, error: OSError) -> None:
        """A file of the partition's log failed: its directory goes offline.

        The file could not be read or written. Any thread.
        """
        place = self._places.get(tp)
        if place is not None:
            self.fail_dir(place.log_dir.path, error)
