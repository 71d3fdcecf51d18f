"""Which log the cleaner takes next, and who works on which log. Source: kafka.log.LogCleanerManager.

A log consists of a clean part, up to the offset in cleaner-offset-checkpoint; a dirty part behind it that may be
cleaned; and an end that may not: the active segment, what is not stable yet (open transactions, not replicated), and
what is younger than min.compaction.lag.ms. The dirtiest log goes first.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.records.memory_records import iter_batches
from kafkapy.log.cleaner_checkpoint import CleanerCheckpoints
from kafkapy.types import TopicPartition

__all__ = ["LogCleanerManager", "LogToClean", "log_to_clean"]

logger = logging.getLogger("kafka.log.LogCleanerManager")

LOG_END = 2
NEVER = (1 << 63) - 1


class LogToClean(NamedTuple):
    """A log with its dirty part. Immutable; made by `log_to_clean`. Offsets; bytes; ms."""

    tp: TopicPartition
    log: PartitionLog
    first_dirty_offset: int
    first_uncleanable_offset: int
    """The base offset of the first segment to leave alone."""
    clean_bytes: int
    cleanable_bytes: int
    max_compaction_delay_ms: int = 0
    """By how much max.compaction.lag.ms has been exceeded."""

    @property
    def total_bytes(self) -> int:
        """Clean and cleanable."""
        return self.clean_bytes + self.cleanable_bytes

    @property
    def cleanable_ratio(self) -> float:
        """The share of cleanable dirty bytes, from 0 to 1.

        The whole is all bytes below the part that may not be cleaned.
        """
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is dirty enough (min.cleanable.dirty.ratio) or has waited too long."""
        if not self.cleanable_bytes:
            return False
        return self.max_compaction_delay_ms > 0 or self.cleanable_ratio > self.log.config.min_cleanable_dirty_ratio


def log_to_clean(tp: TopicPartition, log: PartitionLog, checkpoint: int | None, now_ms: int) -> LogToClean:
    """The cleanable part of a log that was cleaned up to `checkpoint`.

    None: the log was never cleaned.
    """
    segments = log.segments()
    start, end, _, last_stable, _ = log.offsets()
    config = log.config
    first_dirty = start if checkpoint is None else checkpoint
    if first_dirty < start:
        first_dirty = start
    elif first_dirty > end:
        logger.warning(
            "Partition %s has the cleaner checkpoint %d above the log end %d; the cleaner begins at the log start",
            tp,
            first_dirty,
            end,
        )
        first_dirty = start
    closed = segments[:-1]
    ends = [segment[0] for segment in segments[1:]]
    limit = min(last_stable, segments[-1][0]) if segments else first_dirty
    if config.min_compaction_lag_ms > 0:
        for (base, _, max_timestamp, created_ms, _), segment_end in zip(closed, ends, strict=True):
            newest = max_timestamp if max_timestamp >= 0 else created_ms
            if segment_end > first_dirty and newest > now_ms - config.min_compaction_lag_ms:
                limit = min(limit, base)
                break
    # Only whole segments below the limit.
    uncleanable = segments[-1][0] if segments else limit
    for (base, *_), segment_end in zip(closed, ends, strict=True):
        if segment_end > limit:
            uncleanable = base
            break
    clean = dirty = 0
    dirty_bases = []
    for (base, size, *_), segment_end in zip(closed, ends, strict=True):
        if base >= uncleanable:
            break
        if segment_end <= first_dirty:
            clean += size
        else:
            dirty += size
            dirty_bases.append(base)
    delay = 0
    if config.max_compaction_lag_ms < NEVER and dirty:
        delay = _compaction_delay(log, dirty_bases, now_ms)
    return LogToClean(tp, log, first_dirty, uncleanable, clean, dirty, delay)


def _compaction_delay(log: PartitionLog, dirty_bases: Sequence[int], now_ms: int) -> int:
    """By how many ms the first batch of a dirty segment is older than max.compaction.lag.ms allows."""
    earliest = NEVER
    for base in dirty_bases:
        data = log.read(max(base, log.log_start_offset), 1, isolation=LOG_END, min_one_batch=True)[0]
        for batch in iter_batches(data):
            if batch.max_timestamp > 0:
                earliest = min(earliest, batch.max_timestamp)
    until = now_ms - max(log.config.max_compaction_lag_ms, 1)
    return until - earliest if earliest < until else 0


class LogCleanerManager:
    """The table of logs in work, the uncleanable partitions, and the checkpoints.

    One lock guards them. Called by cleaner threads, by retention and by LogManager.
    """

    def __init__(
        self,
        logs: Callable[[], Mapping[TopicPartition, PartitionLog]],
        dir_of: Callable[[TopicPartition], Path | None],
        checkpoints: CleanerCheckpoints,
    ) -> None:
        self.checkpoints = checkpoints
        self._logs = logs
        self._dir_of = dir_of
        self._condition = threading.Condition()
        self._claimed: dict[TopicPartition, Callable[[], None] | None] = {}
        self._paused: dict[TopicPartition, int] = {}
        self._uncleanable: dict[TopicPartition, str] = {}
        self.dirtiest_ratio = 0.0
        """Of the last time a thread looked for work; 0 to 1."""
        self.max_compaction_delay_ms = 0

    @property
    def uncleanable(self) -> dict[TopicPartition, str]:
        """Partitions that cannot be cleaned, and why. A copy."""
        with self._condition:
            return dict(self._uncleanable)

    def compacted(self) -> dict[TopicPartition, PartitionLog]:
        """The logs with cleanup.policy=compact."""
        return {tp: log for tp, log in self._logs().items() if "compact" in log.config.cleanup_policy}

    def to_clean(self, now_ms: int) -> list[LogToClean]:
        """All compacted logs that are idle and can be cleaned, dirtiest first."""
        with self._condition:
            taken = {*self._claimed, *self._paused, *self._uncleanable}
        found = []
        for tp, log in self.compacted().items():
            directory = self._dir_of(tp)
            if tp in taken or directory is None or log.offline_errno:
                continue
            found.append(log_to_clean(tp, log, self.checkpoints.get(directory, tp), now_ms))
        found.sort(key=lambda candidate: candidate.cleanable_ratio, reverse=True)
        self.dirtiest_ratio = found[0].cleanable_ratio if found else 0.0
        self.max_compaction_delay_ms = max((each.max_compaction_delay_ms for each in found), default=0)
        return found

    def grab_filthiest(self, now_ms: int) -> LogToClean | None:
        """The dirtiest log that is due, claimed for the caller, or None.

        The caller must `release` it.
        """
        for candidate in self.to_clean(now_ms):
            if candidate.is_due and self.claim(candidate.tp):
                return candidate
        return None

    def claim(self, tp: TopicPartition, stop: Callable[[], None] | None = None) -> bool:
        """Makes the caller the only one to clean or shorten the log.

        False when somebody else does, or it is paused.
        """
        with self._condition:
            if tp in self._claimed or tp in self._paused:
                return False
            self._claimed[tp] = stop
            return True

    def on_stop(self, tp: TopicPartition, stop: Callable[[], None]) -> None:
        """Sets the function that ends the work on a claimed log early."""
        with self._condition:
            if tp in self._claimed:
                self._claimed[tp] = stop

    def release(self, tp: TopicPartition) -> None:
        """The claim is over."""
        with self._condition:
            self._claimed.pop(tp, None)
            self._condition.notify_all()

    def pause(self, tp: TopicPartition) -> None:
        """Ends a cleaning of the log and keeps others off until `resume`.

        `resume` has to be called as often as this. Blocking: not under a lock that a cleaner thread may want
        (LogCleanerManager.abortAndPauseCleaning).
        """
        with self._condition:
            self._paused[tp] = self._paused.get(tp, 0) + 1
            while tp in self._claimed:
                stop = self._claimed[tp]
                if stop is not None:
                    stop()
                self._condition.wait(0.05)

    def resume(self, tp: TopicPartition) -> None:
        """Takes back one `pause`."""
        with self._condition:
            left = self._paused.get(tp, 0) - 1
            if left > 0:
                self._paused[tp] = left
            else:
                self._paused.pop(tp, None)

    @contextmanager
    def paused(self, tp: TopicPartition) -> Iterator[None]:
        """Paused until the block is left (truncation). Blocking."""
        self.pause(tp)
        try:
            yield
        finally:
            self.resume(tp)

    def done(self, tp: TopicPartition, end_offset: int) -> None:
        """The log is clean below `end_offset`. OSError."""
        directory = self._dir_of(tp)
        if directory is not None:
            self.checkpoints.update(directory, tp, end_offset)

    def truncated(self, tp: TopicPartition, offset: int) -> None:
        """The log was cut at `offset`: what comes there now is dirty. OSError."""
        directory = self._dir_of(tp)
        known = self.checkpoints.get(directory, tp) if directory is not None else None
        if directory is not None and known is not None and known > offset:
            self.checkpoints.update(directory, tp, offset)

    def copy_checkpoint(self, tp: TopicPartition, source: Path, destination: Path) -> None:
        """`destination` says of the partition what `source` does. OSError."""
        known = self.checkpoints.get(source, tp)
        if known is None:
            self.checkpoints.forget(destination, tp)
        else:
            self.checkpoints.update(destination, tp, known)

    def forget(self, directory: Path, tp: TopicPartition) -> None:
        """The partition is gone from that directory. OSError."""
        with self._condition:
            self._uncleanable.pop(tp, None)
        self.checkpoints.forget(directory, tp)

    def mark_uncleanable(self, tp: TopicPartition, reason: str) -> None:
        """The cleaner leaves the partition alone from now on.

        A restart ends that, and so does a new log of the partition.
        """
        with self._condition:
            self._uncleanable[tp] = reason
        logger.error("Partition %s is uncleanable until a restart: %s", tp, reason)

    def uncleanable_bytes(self, now_ms: int) -> int:
        """Bytes of dirty segments in partitions that cannot be cleaned."""
        total = 0
        logs = self._logs()
        for tp in self.uncleanable:
            log, directory = logs.get(tp), self._dir_of(tp)
            if log is not None and directory is not None:
                total += log_to_clean(tp, log, self.checkpoints.get(directory, tp), now_ms).cleanable_bytes
        return total
