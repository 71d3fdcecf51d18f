"""Log compaction: keeps the newest record of each key. Source: kafka.log.LogCleaner (KIP-58, KIP-354, KIP-534).

`Cleaner` cleans one log: its dirty part is read into a map from key to last offset, and the log up to there is
written again, segment by segment, with the records that the map does not know a newer one for. The bytes are worked
on in Cython without the GIL (_speedups/log/cleaner.pyx). `LogCleaner` runs log.cleaner.threads of them.

Tombstones (records without a value) and markers of transactions that have no data left get a delete horizon when they
are first met and go delete.retention.ms later, so that a reader that is not further behind than that still sees them.

Messages of formats v0 and v1, which an old Kafka has left, become v2 batches when they are cleaned, as with Kafka 4.1;
3.9 keeps their format. A delete horizon has no place in them, so theirs begins with that.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kafkapy._speedups.log.cleaner import CleaningStopped, LogCleaning
from kafkapy._speedups.log.cleaner_throttle import CleanerThrottle
from kafkapy._speedups.log.offset_map import OffsetMap
from kafkapy._speedups.log.open_files import open_limit
from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy.errors import ErrorCode, error_for
from kafkapy.log.cleaned_files import CleanedFiles
from kafkapy.log.cleaner_manager import LogCleanerManager, LogToClean
from kafkapy.log.retention import apply_retention
from kafkapy.log.shortage import is_shortage
from kafkapy.records.batches import upgrade_message
from kafkapy.records.compression import compress, decompress
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.log.cleaner_checkpoint import CleanerCheckpoints

__all__ = ["Cleaner", "CleanerSettings", "CleanerStats", "LogCleaner", "check_reconfiguration", "group_segments"]

logger = logging.getLogger("kafka.log.LogCleaner")

MAX_RELATIVE_OFFSET = (1 << 31) - 1
MAX_MAP_BYTES = (1 << 31) - 1
OPEN_SHARE = 4
"""One cleaning uses up to one in this many of the segment files that may be open."""


@dataclass(slots=True)
class CleanerStats:
    """The numbers of one cleaning: bytes, counts, seconds.

    Filled by its thread, then only read.
    """

    figures: dict[str, int] = field(default_factory=dict)
    keys: int = 0
    map_fullness: float = 0.0
    seconds: float = 0.0


def group_segments(
    segments: Sequence[tuple[int, int, int, int, int, int]],
    end: int,
    max_bytes: int,
    max_index_bytes: int,
    most: int,
) -> list[tuple[int, int]]:
    """(first, count) of runs of segments below `end`, each written as one.

    A run has at most `most` segments, no more bytes than a segment and its indexes may have, and no more offsets than
    a relative offset can say. `segments` as LogCleaning.segments gives them, the active one last.
    """
    groups: list[tuple[int, int]] = []
    first = 0
    while first + 1 < len(segments) and segments[first][0] < end:
        size, index, time_index = segments[first][1:4]
        count = 1
        while count < most and first + count + 1 < len(segments) and segments[first + count][0] < end:
            _, more, more_index, more_time_index, _, _ = segments[first + count]
            last_offset = segments[first + count + 1][0] - 1
            size, index, time_index = size + more, index + more_index, time_index + more_time_index
            if size > max_bytes or max(index, time_index) > max_index_bytes:
                break
            if last_offset - segments[first][0] > MAX_RELATIVE_OFFSET:
                break
            count += 1
        groups.append((first, count))
        first += count
    return groups


class Cleaner:
    """Cleans one log after the other. Owns its offset map; used by one thread.

    `on_cleaning` gets each LogCleaning when it begins, so that others can stop it.
    """

    def __init__(self, memory_bytes: int, load_factor: float = 0.9, pace: CleanerThrottle | None = None) -> None:
        self._map = OffsetMap(min(memory_bytes, MAX_MAP_BYTES), load_factor)
        self._pace = pace or CleanerThrottle()

    def clean(
        self,
        target: LogToClean,
        now_ms: int,
        on_cleaning: Callable[[LogCleaning], None] | None = None,
    ) -> tuple[int, CleanerStats]:
        """Cleans the log and returns the offset below which it is clean now. Blocking.

        OSError when files cannot be read or written, CorruptMessageError for bytes that are no batch,
        CleaningStopped when the log was truncated or deleted meanwhile or the broker stops.
        """
        started = time.monotonic()
        log = target.log
        stats = CleanerStats()
        log.seal_segments()
        if log.recovery_point < target.first_uncleanable_offset:
            # The newer records must be on the disk before the older ones go. Not beside a LogCleaning, which holds
            # every segment, so that none could be closed again.
            log.flush()
        cleaning = LogCleaning(
            log, self._map, self._pace, compress=compress, decompress=decompress, upgrade=upgrade_message
        )
        if on_cleaning is not None:
            on_cleaning(cleaning)
        end = cleaning.build_map(target.first_dirty_offset, target.first_uncleanable_offset)
        stats.keys, stats.map_fullness = len(self._map), len(self._map) / max(self._map.max_entries, 1)
        cleaning.begin(now_ms, log.config.delete_retention_ms)
        segments = cleaning.segments()
        # The swap holds the files of a whole run open.
        most = max(open_limit() // OPEN_SHARE, 1) if open_limit() else len(segments)
        sizes = log.config.segment_bytes, log.config.segment_index_bytes
        for first, count in group_segments(segments, end, *sizes, most):
            self._clean_group(log, cleaning, segments, first, count)
        stats.figures = cleaning.stats()
        stats.seconds = time.monotonic() - started
        return end, stats

    def _clean_group(
        self,
        log: PartitionLog,
        cleaning: LogCleaning,
        segments: Sequence[tuple[int, int, int, int, int, int]],
        first: int,
        count: int,
    ) -> None:
        bases = [segment[0] for segment in segments[first : first + count]]
        files = CleanedFiles(log.storage, bases[0])
        swapped = False
        try:
            fd, path = files.create()
            cleaned = cleaning.clean(first, count, fd, path)
            files.finish(cleaned.aborted_transactions(), max(segments[first + count - 1][5], 0))
            if not cleaning.is_current():
                raise CleaningStopped(f"Partition {log.topic}-{log.partition} changed during its cleaning")
            files.promote()
            swapped = cleaning.swap(first, count, cleaned)
            if not swapped:
                raise CleaningStopped(f"Partition {log.topic}-{log.partition} changed during its cleaning")
            try:
                files.install(bases, log.config.file_delete_delay_ms)
            except OSError as error:
                # The names are half those of the segments that the log has given up: only a restart puts that right.
                log.go_offline(errno.EIO if is_shortage(error) else error.errno or errno.EIO)
                raise
            finally:
                cleaning.end_swap()
        except BaseException:
            if not swapped:
                files.discard()
            raise


class CleanerSettings(NamedTuple):
    """The settings of the cleaner threads. Immutable. Bytes."""

    threads: int
    memory: int
    """Of each thread's map."""
    load_factor: float
    bytes_per_second: float

    @classmethod
    def of(cls, config: BrokerConfig) -> CleanerSettings:
        """The keys log.cleaner.* of a broker."""
        threads = config.get_int("log.cleaner.threads")
        return cls(
            threads,
            config.get_int("log.cleaner.dedupe.buffer.size") // max(threads, 1),
            config.get_double("log.cleaner.io.buffer.load.factor"),
            config.get_double("log.cleaner.io.max.bytes.per.second"),
        )


def check_reconfiguration(old: BrokerConfig, new: BrokerConfig) -> None:
    """INVALID_REQUEST for a number of cleaner threads that is out of range.

    A running broker goes to at least half and at most double of the current number at once, and never to none. Source:
    kafka.log.LogCleaner.validateReconfiguration.
    """
    current, wanted = CleanerSettings.of(old).threads, CleanerSettings.of(new).threads
    if wanted == current:
        return
    if wanted < 1:
        text = "Log cleaner threads should be at least 1"
    elif wanted < current // 2:
        text = f"Log cleaner threads cannot be reduced to less than half the current value {current}"
    elif wanted > current * 2:
        text = f"Log cleaner threads cannot be increased to more than double the current value {current}"
    else:
        return
    raise error_for(ErrorCode.INVALID_REQUEST, text)


class LogCleaner:
    """The cleaner threads of a broker.

    Made and started by LogManager, stopped by its shutdown.

    `config` is asked at every round. After a dynamic change of it `reconfigure` makes the throttle follow at once, and
    the number of threads, their memory and their pause when a thread has done the cleaning it is at. `on_error` is
    told of disk errors (partition, OSError).
    """

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        logs: Callable[[], Mapping[TopicPartition, PartitionLog]],
        dir_of: Callable[[TopicPartition], Path | None],
        on_error: Callable[[TopicPartition, OSError], None],
        checkpoints: CleanerCheckpoints,
    ) -> None:
        self.manager = LogCleanerManager(logs, dir_of, checkpoints)
        self.last_stats: dict[int, CleanerStats] = {}
        """Of the last cleaning of each thread."""
        self.cleanings = 0
        self._config = config
        self._logs = logs
        self._on_error = on_error
        self._pace = CleanerThrottle()
        self._changed = threading.Condition()
        self._settings: CleanerSettings | None = None
        """None while no threads are to run."""
        self._stopping = False
        self._threads: dict[int, threading.Thread] = {}
        self._last_run_ms = 0

    def start(self) -> None:
        """Starts log.cleaner.threads threads."""
        with self._changed:
            self._settings = CleanerSettings.of(self._config())
            self._pace.bytes_per_second = self._settings.bytes_per_second
            self._start_missing()

    def reconfigure(self) -> None:
        """Follows a change of the configuration and replaces dead threads.

        Any thread; does not block.
        """
        with self._changed:
            if self._settings is None or self._stopping:
                return
            self._settings = CleanerSettings.of(self._config())
            self._pace.bytes_per_second = self._settings.bytes_per_second
            self._start_missing()
            self._changed.notify_all()

    def _start_missing(self) -> None:
        assert self._settings is not None
        for number in range(self._settings.threads):
            known = self._threads.get(number)
            if known is None or not known.is_alive():
                thread = threading.Thread(
                    target=self._run, args=(number,), name=f"kafka-log-cleaner-thread-{number}", daemon=True
                )
                self._threads[number] = thread
                thread.start()

    def shutdown(self) -> None:
        """Stops the threads; a cleaning under way ends without an effect. Blocking."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            threads = list(self._threads.values())
        self._pace.stop()
        for thread in threads:
            thread.join()

    @property
    def dead_threads(self) -> int:
        """Threads that have ended while the broker runs."""
        with self._changed:
            return 0 if self._stopping else sum(not thread.is_alive() for thread in self._threads.values())

    def figures(self) -> dict[str, float]:
        """The cleaner's metrics by name. Any thread."""
        manager, last = self.manager, list(self.last_stats.values())
        fullness = max((stats.map_fullness for stats in last), default=0.0)
        now_ms = time.time_ns() // 1_000_000
        read = sum(stats.figures.get("bytes_read", 0) for stats in last)
        written = sum(stats.figures.get("bytes_written", 0) for stats in last)
        return {
            "kafka_log_logcleanermanager_uncleanablepartitionscount": len(manager.uncleanable),
            "kafka_log_logcleanermanager_uncleanablebytes": manager.uncleanable_bytes(now_ms),
            "kafka_log_logcleanermanager_timesincelastrunms": now_ms - self._last_run_ms if self._last_run_ms else 0,
            "kafka_log_logcleanermanager_maxdirtypercent": 100 * manager.dirtiest_ratio,
            "kafka_log_logcleaner_maxcompactiondelaysecs": manager.max_compaction_delay_ms / 1000,
            "kafka_log_logcleaner_cleanerrecopypercent": 100 * written / read if read else 0.0,
            "kafka_log_logcleaner_maxcleantimesecs": max((stats.seconds for stats in last), default=0.0),
            "kafka_log_logcleaner_maxbufferutilizationpercent": 100 * fullness,
            "kafka_log_logcleaner_deadthreadcount": self.dead_threads,
        }

    def _run(self, number: int) -> None:
        cleaner: Cleaner | None = None
        made_from: CleanerSettings | None = None
        while (settings := self._settings_for(number)) is not None:
            worked = False
            try:
                if cleaner is None or made_from != settings:
                    cleaner = None  # first, so that two maps are never held
                    cleaner, made_from = Cleaner(settings.memory, settings.load_factor, self._pace), settings
                worked = self.clean_filthiest(number, cleaner)
                self.delete_old_segments()
            except Exception:
                # One bad round must not end the thread: nothing else would ever clean.
                logger.exception("A round of log cleaner thread %d failed", number)
            if not worked:
                self._pause(settings)

    def _settings_for(self, number: int) -> CleanerSettings | None:
        """The settings of the thread of that number; None when it is to end.

        An ending thread is forgotten in the same step, so that `reconfigure` either still finds it at work or makes a
        new one.
        """
        with self._changed:
            if self._stopping or self._settings is None:
                return None
            if number >= self._settings.threads:
                self._threads.pop(number, None)
                self.last_stats.pop(number, None)
                return None
            return self._settings

    def _pause(self, settings: CleanerSettings) -> None:
        """log.cleaner.backoff.ms, or until the settings change or the broker stops."""
        pause_s = self._config().get_int("log.cleaner.backoff.ms") / 1000
        with self._changed:
            self._changed.wait_for(
                lambda: self._stopping or self._settings is not settings, min(pause_s, threading.TIMEOUT_MAX)
            )

    def clean_filthiest(self, number: int, cleaner: Cleaner) -> bool:
        """Cleans the dirtiest log that is due; False when there is none.

        A log that cannot be cleaned is marked.
        """
        now_ms = self._last_run_ms = time.time_ns() // 1_000_000
        target = self.manager.grab_filthiest(now_ms)
        if target is None:
            return False
        tp = target.tp
        try:
            end, stats = cleaner.clean(target, now_ms, lambda cleaning: self.manager.on_stop(tp, cleaning.stop))
            self.manager.done(tp, end)
            self.last_stats[number] = stats
            self.cleanings += 1
            self._report(number, target, end, stats)
        except CleaningStopped as stopped:
            logger.info("%s", stopped)
        except OSError as error:
            if self._logs().get(tp) is target.log and not target.log.offline_errno:
                logger.error("The cleaning of %s failed: %s", tp, error)
                self._on_error(tp, error)
        except Exception as error:
            if self._logs().get(tp) is target.log:
                self.manager.mark_uncleanable(tp, str(error) or type(error).__name__)
                logger.debug("%s", tp, exc_info=True)
        finally:
            self.manager.release(tp)
        return True

    def delete_old_segments(self) -> int:
        """Retention of compacted logs; the number of deleted segments.

        It never runs beside their cleaning.
        """
        now_ms = time.time_ns() // 1_000_000
        deleted = 0
        for tp, log in self.manager.compacted().items():
            if log.offline_errno or not self.manager.claim(tp):
                continue
            try:
                deleted += apply_retention(log, now_ms)
            except OSError as error:
                if self._logs().get(tp) is log:
                    self._on_error(tp, error)
            finally:
                self.manager.release(tp)
        return deleted

    def _report(self, number: int, target: LogToClean, end: int, stats: CleanerStats) -> None:
        figures = stats.figures
        logger.info(
            "Log cleaner thread %d cleaned %s (dirty section [%d, %d)): %d keys, %.1f MB to %.1f MB, %d records to %d, "
            "%.1f s",
            number, target.tp, target.first_dirty_offset, end, stats.keys, figures["bytes_read"] / 1e6,
            figures["bytes_written"] / 1e6, figures["records_read"], figures["records_written"], stats.seconds,
        )  # fmt: skip
        if figures["records_without_key"]:
            logger.warning(
                "Partition %s had %d records without a key, which the cleaner dropped",
                target.tp,
                figures["records_without_key"],
            )
