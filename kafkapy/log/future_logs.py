"""Future logs: copies of partitions on their way to another log directory.

Source: kafka.log.LogManager (futureLogs, replaceCurrentWithFutureLog) and kafka.cluster.Partition.

futures = log_manager.futures
futures.create(tp, Path("/disk2/logs"))     # begins a move
while futures.advance(tp) is Progress.COPYING: ...
futures.remove(tp)                          # gives it up

While a partition is on its way its log is not cleaned: what the cleaner took out of the one would stay in the other,
and an old value could outlive the tombstone behind it. For the same reason a future log that a restart finds is
believed only when both directories agree on how far the partition was cleaned.
"""

from __future__ import annotations

import enum
import logging
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kafkapy._speedups.log import future_log
from kafkapy._speedups.log.cleaner_throttle import CleanerThrottle
from kafkapy._speedups.log.future_log import FutureLogCopy
from kafkapy._speedups.log.partition_log import NOT_THE_DISK, PartitionLog
from kafkapy.errors import error_for
from kafkapy.log.cleaner_manager import LogCleanerManager
from kafkapy.log.dir_scan import Place, deleted_name, future_name, swapped_name
from kafkapy.log.loader import load_log, write_topic_id
from kafkapy.log.log_table import FutureLog, LogTable
from kafkapy.log.log_work import LogWork
from kafkapy.log.offset_checkpoints import OffsetCheckpoints
from kafkapy.types import TopicPartition

__all__ = ["FutureLogs", "Progress"]

logger = logging.getLogger("kafka.log.LogManager")

KAFKA_STORAGE_ERROR = 56
NEVER = (1 << 63) - 1
"""flush.messages that is not set."""
STEP_BYTES = 16 << 20
"""Copied in one step, between two looks at what happened to the log meanwhile."""
FLUSH_BYTES = 64 << 20
"""Copied between two flushes: so much is looked at again after a crash, and waits for the disk before a swap."""


class Progress(enum.Enum):
    """The outcome of one step of a move."""

    COPYING = enum.auto()
    DONE = enum.auto()
    """The future log is the log now."""
    ENDED = enum.auto()
    """There is nothing to go on with: the move was given up, or one of the logs is offline or deleted."""
    FAILED = enum.auto()
    """It cannot be done: the log has bytes that are no batch."""


class FutureLogs:
    """Moves logs between directories by way of future logs in the LogTable.

    Any thread; methods that touch files block. `pace` is common to all moves
    (replica.alter.log.dirs.io.max.bytes.per.second).

    A move's own lock is taken before LogTable's, never after it.
    """

    def __init__(
        self,
        table: LogTable,
        cleaner: LogCleanerManager,
        checkpoints: OffsetCheckpoints,
        work: LogWork,
        producer_expiration_ms: Callable[[], int],
    ) -> None:
        self.pace = CleanerThrottle()
        self._table = table
        self._futures = table.futures
        self._cleaner = cleaner
        self._checkpoints = checkpoints
        self._work = work
        self._producer_expiration_ms = producer_expiration_ms
        table.future_logs_of = self._dir_failed

    def get(self, tp: TopicPartition) -> FutureLog | None:
        """The future log of a partition, or None."""
        return self._futures.get(tp)

    def all(self) -> dict[TopicPartition, FutureLog]:
        """A copy of the table, without the lock: the control loop asks for it."""
        return dict(self._futures)

    def is_moving(self, tp: TopicPartition) -> bool:
        """Whether the partition has a future log that can go on."""
        future = self._futures.get(tp)
        return future is not None and not future.stopped

    def position(self, tp: TopicPartition) -> int:
        """Where the partition's future log ends; -1 when it has none."""
        future = self._futures.get(tp)
        return -1 if future is None else future.log.log_end_offset

    # ---- beginning and ending a move ----

    def create(self, tp: TopicPartition, directory: Path) -> bool:
        """Makes an empty future log in a live directory.

        False when the partition's log, or its future log, is there.

        KafkaStorageError when a directory is offline (another future log may be on it), or the log is only in memory.
        """
        table = self._table
        place = table.place(tp)
        known = self._futures.get(tp)
        if place is None or directory in (place.log_dir.path, known and known.place.log_dir.path):
            return False
        # Before the lock is taken: a cleaning that has to stop first may want it.
        self._cleaner.pause(tp)
        created = False
        try:
            with table.lock:
                created = self._create(tp, directory)
        finally:
            if not created:
                self._cleaner.resume(tp)
        return created

    def _create(self, tp: TopicPartition, directory: Path) -> bool:
        table = self._table
        log, place = table.get(tp), table.place(tp)
        if log is None or place is None or tp in self._futures or place.log_dir.path == directory:
            return False
        target = next(log_dir for log_dir in table.dirs if log_dir.path == directory)
        if table.offline_dirs:
            offline = ", ".join(str(log_dir.path) for log_dir in table.offline_dirs)
            raise error_for(KAFKA_STORAGE_ERROR, f"{tp} is not moved while log directories are offline: {offline}")
        if not log.storage.directory:
            raise error_for(KAFKA_STORAGE_ERROR, f"{tp} has no files that could be moved")
        name = future_name(tp)
        try:
            target.forget(tp)
            self._cleaner.copy_checkpoint(tp, place.log_dir.path, directory)
            storage = place.backend.open_log(directory, name, create=True)
            topic_id = uuid.UUID(bytes=log.topic_id)
            if topic_id.int:
                write_topic_id(storage, topic_id)
            future, _ = load_log(
                storage,
                tp,
                log.config,
                topic_id=topic_id,
                log_start_offset=log.log_start_offset,
                producer_id_expiration_ms=self._producer_expiration_ms(),
            )
        except OSError as error:
            table.fail_dir(directory, error)
            raise error_for(KAFKA_STORAGE_ERROR, f"{tp} cannot be moved to {directory}: {error.strerror}") from error
        self._futures[tp] = FutureLog(tp, future, Place(target, name, place.backend))
        table.count(directory, 1)
        logger.info("The future log of partition %s was created in %s", tp, directory)
        return True

    def adopt(self, tp: TopicPartition, log: PartitionLog, place: Place) -> None:
        """Takes a future log over that a start has found, the partition's only one."""
        with self._table.lock:
            self._futures[tp] = FutureLog(tp, log, place)
            self._table.count(place.log_dir.path, 1)

    def settle(self) -> None:
        """Brings the future logs in line with their logs, after a start.

        Called before anything is appended or cleaned.
        """
        table = self._table
        checkpoints = self._cleaner.checkpoints
        for tp, future in self.all().items():
            log, place = table.get(tp), table.place(tp)
            self._cleaner.pause(tp)
            if log is None or place is None:
                logger.warning(
                    "Partition %s has only a future log in %s; its log was not found", tp, future.place.log_dir.path
                )
                continue
            if any(log.topic_id) and any(future.log.topic_id) and log.topic_id != future.log.topic_id:
                logger.warning(
                    "The future log of %s in %s belongs to a deleted topic; the broker deletes it",
                    tp,
                    future.place.log_dir.path,
                )
                self.remove(tp)
                continue
            with self._blamed_on(future):
                source, destination = place.log_dir.path, future.place.log_dir.path
                if checkpoints.get(source, tp) != checkpoints.get(destination, tp):
                    logger.warning(
                        "Partition %s was cleaned without its future log; the broker copies the log again", tp
                    )
                    future.log.truncate_fully_and_start_at(log.log_start_offset)
                    self._cleaner.copy_checkpoint(tp, source, destination)
                # What a crash took from the log, or a leader, while the copy's disk was away, is not in it any more.
                future.log.truncate_to(_common_end(log, future.log))
            logger.info("The move of %s to %s continues at offset %d", tp, destination, future.log.log_end_offset)

    def remove(self, tp: TopicPartition) -> bool:
        """Gives a move up and deletes the future log; False without one.

        Blocking: waits for a step in work.
        """
        future = self._futures.get(tp)
        if future is None:
            return False
        self._stop(future)
        with future.lock:
            if not self._drop(future):
                return False
            log_dir, name, backend = future.place
            future.log.mark_deleted()
            future.log.storage.retire()
            renamed = deleted_name(tp)
            try:
                backend.rename_log(log_dir.path, name, renamed)
                log_dir.forget(tp)
                self._cleaner.checkpoints.forget(log_dir.path, tp)
            except OSError as error:
                self._table.fail_dir(log_dir.path, error)
                return True
        logger.info("The move of %s to %s is cancelled", tp, log_dir.path)
        self._work.delete_later(Place(log_dir, renamed, backend), future.log.config.file_delete_delay_ms)
        return True

    def _dir_failed(self, path: Path) -> list[PartitionLog]:
        """Forgets the future logs of a directory that has failed, and stops the moves out of it. Under LogTable's
        lock; the logs that are to go offline."""
        offline = []
        for future in list(self._futures.values()):
            place = self._table.place(future.tp)
            if future.place.log_dir.path == path:
                self._stop(future)
                if not future.swapping:
                    self._drop(future)
                offline.append(future.log)
            elif place is not None and place.log_dir.path == path:
                self._stop(future)
        return offline

    def _stop(self, future: FutureLog) -> None:
        future.stopped = True
        if future.copy is not None:
            future.copy.stop()

    def _drop(self, future: FutureLog) -> bool:
        with self._table.lock:
            if self._futures.get(future.tp) is not future:
                return False
            del self._futures[future.tp]
            self._table.count(future.place.log_dir.path, -1)
        self._cleaner.resume(future.tp)
        return True

    # ---- the move ----

    @contextmanager
    def held(self, tp: TopicPartition) -> Iterator[FutureLog | None]:
        """Keeps the partition's move from going on until the block is left."""
        future = self._futures.get(tp)
        if future is None:
            yield None
            return
        with future.lock:
            yield future if self._futures.get(tp) is future else None

    def advance(self, tp: TopicPartition, max_bytes: int = STEP_BYTES) -> Progress:
        """One step: copies up to `max_bytes`. Blocking.

        It puts the future log in place when it has caught up.
        """
        with self.held(tp) as future:
            log = self._table.get(tp)
            if future is None or future.stopped or log is None or log.offline_errno:
                return Progress.ENDED
            if future.copy is None:
                future.copy = FutureLogCopy(log, future.log, self.pace)
            elif future.copy.log is not log:
                return Progress.ENDED
            try:
                outcome, copied, offset = future.copy.copy(max_bytes)
            except OSError as error:
                self._table.log_failed(tp, error)
                return Progress.ENDED
            future.unflushed += copied
            with self._blamed_on(future):
                return self._after_copy(future, log, outcome, offset)
        return Progress.ENDED

    def _after_copy(self, future: FutureLog, log: PartitionLog, outcome: int, offset: int) -> Progress:
        copy = future.log
        if copy.offline_errno:
            raise OSError(copy.offline_errno, f"the future log of {future.tp} met a disk error")
        if outcome == future_log.MISALIGNED and copy.size and copy.log_end_offset > log.log_start_offset:
            # Not the log start has moved: an offset in the file is wrong. To begin anew would lose what was copied.
            outcome = future_log.CORRUPT
        elif outcome == future_log.HOLE and log.segments()[-1][1]:
            # The cleaner leaves holes at the end of closed segments only, so batches are missing.
            outcome = future_log.CORRUPT
        if outcome == future_log.NEEDS_SEGMENT:
            copy.prepare_segment()
            copy.seal_segments()
        elif outcome == future_log.OUT_OF_RANGE:
            copy.truncate_to(log.log_end_offset)
        elif outcome == future_log.MISALIGNED:
            copy.truncate_fully_and_start_at(offset)
        elif outcome == future_log.HOLE:
            assert future.copy is not None
            future.copy.skip_hole(offset)
        elif outcome == future_log.ENDED:
            return Progress.ENDED
        elif outcome == future_log.CORRUPT:
            logger.error("Partition %s cannot be moved: it has no batch at offset %d", future.tp, copy.log_end_offset)
            self._stop(future)
            return Progress.FAILED
        self._keep_in_line(future, log)
        if outcome == future_log.CAUGHT_UP and self._replace(future, log):
            return Progress.DONE
        return Progress.COPYING

    def _keep_in_line(self, future: FutureLog, log: PartitionLog) -> None:
        """Follows the log as a follower does besides appending.

        High watermark, log start, retention, epochs, flushes.
        """
        copy = future.log
        if copy.config is not log.config:
            copy.update_config(log.config)
        start, _, high_watermark, _, _ = log.offsets()
        if start < copy.log_start_offset <= high_watermark:
            # A crash took the log back to records that had been deleted, and were not copied.
            log.delete_records(copy.log_start_offset)
        copy.set_high_watermark(high_watermark)
        if start > copy.log_start_offset and start <= copy.high_watermark:
            copy.delete_records(start)
            copy.delete_segments_below(start)
        epochs = copy.leader_epochs()
        if epochs != future.written_epochs:
            copy.write_leader_epochs()
            future.written_epochs = epochs
        if future.unflushed >= FLUSH_BYTES:
            future.unflushed = 0
            copy.flush()

    def _replace(self, future: FutureLog, log: PartitionLog) -> bool:
        """Puts the future log in the place of the log; False when it has to catch up once more."""
        table, tp, copy = self._table, future.tp, future.log
        assert future.copy is not None
        copy.prepare_segment()
        copy.seal_segments()
        copy.write_rolled_snapshots()
        copy.flush()
        # From the first rename on, a restart takes the future log for the log: what it must know of it is on disk.
        self._checkpoints.write_directory(future.place.log_dir)
        try:
            # What came during the flush is copied while appends go on, so that they wait for little.
            future.copy.copy(STEP_BYTES)
        except OSError as error:
            table.log_failed(tp, error)
            return False
        with table.lock:
            old = table.place(tp)
            if old is None or table.get(tp) is not log or self._futures.get(tp) is not future or future.stopped:
                return False
            # Deletion waits while the future log is in the table, and a directory that fails leaves it there.
            future.swapping = True
        renamed = ""
        failures: list[tuple[Path, OSError]] = []
        try:
            if not self._begin_swap(future):
                return False
            try:
                if copy.recovery_point < log.recovery_point or log.config.flush_messages != NEVER:
                    copy.flush()
                renamed, failures = self._rename(future, log, old)
            except BaseException:
                future.copy.cancel_swap(log.storage)
                raise
        finally:
            self._swap_ended(future, bool(renamed))
        for path, failure in failures:
            table.fail_dir(path, failure)
        if renamed:
            self._after_swap(tp, log, old, renamed)
        return bool(renamed)

    def _begin_swap(self, future: FutureLog) -> bool:
        assert future.copy is not None
        try:
            return future.copy.begin_swap()
        except OSError as error:
            logger.warning("Partition %s cannot be moved now: %s", future.tp, error)
            self._table.log_failed(future.tp, error)
            return False

    def _swap_ended(self, future: FutureLog, swapped: bool) -> None:
        """Puts into the tables what has become of the swap, and of directories that failed while it went on."""
        table, tp = self._table, future.tp
        with table.lock:
            future.swapping = False
            if swapped:
                table.replaced(tp, Place(future.place.log_dir, str(tp), future.place.backend))
                del self._futures[tp]
            elif future.place.log_dir.failure is not None:
                self._drop(future)
        if swapped:
            table.fail_late(tp)

    def _rename(self, future: FutureLog, log: PartitionLog, old: Place) -> tuple[str, list[tuple[Path, OSError]]]:
        """The two renames, and the end of the swap: what the old directory is called now, "" when all is as before,
        and the directories that failed.

        The first rename decides which one a restart takes for the log, so it must be on the disk before the second is
        done: else a power failure could leave two. The second one counts even when it could not be synced: a restart
        does it again.
        """
        assert future.copy is not None
        new, final, renamed = future.place, str(future.tp), swapped_name(future.place.name)
        log.storage.retire()
        failures: list[tuple[Path, OSError]] = []

        def rename(place: Place, before: str, after: str) -> bool:
            try:
                place.backend.rename_log(place.log_dir.path, before, after)
            except OSError as error:
                failures.append((place.log_dir.path, error))
                return False
            return True

        if rename(old, old.name, renamed) and (rename(new, new.name, final) or _exists(new, final)):
            future.copy.end_swap(new.backend.open_log(new.log_dir.path, final, create=False))
            return renamed, failures
        if _exists(old, renamed):
            rename(old, renamed, old.name)
        if _exists(old, old.name):
            future.copy.cancel_swap(old.backend.open_log(old.log_dir.path, old.name, create=False))
        else:
            # The old log cannot come back: a restart will see the first rename, and do the second.
            future.copy.cancel_swap(log.storage)
        return "", failures

    def _after_swap(self, tp: TopicPartition, log: PartitionLog, old: Place, renamed: str) -> None:
        table = self._table
        place = table.place(tp)
        logger.info("Partition %s moved from %s to %s", tp, old.log_dir.path, place and place.log_dir.path)
        self._cleaner.resume(tp)
        try:
            log.write_leader_epochs()
            if any(log.topic_id):
                write_topic_id(log.storage, uuid.UUID(bytes=log.topic_id))
            if place is not None:
                self._checkpoints.write_directory(place.log_dir)
        except OSError as error:
            if place is not None:
                table.fail_dir(place.log_dir.path, error)
        try:
            old.log_dir.forget(tp)
            self._cleaner.checkpoints.forget(old.log_dir.path, tp)
        except OSError as error:
            table.fail_dir(old.log_dir.path, error)
        self._work.delete_later(
            Place(old.log_dir, renamed, old.backend), log.config.file_delete_delay_ms, successor=place and place.log_dir
        )

    # ---- errors ----

    @contextmanager
    def _blamed_on(self, future: FutureLog) -> Iterator[None]:
        """Disk errors in the block take the directory of the future log offline, and the move ends."""
        try:
            yield
        except OSError as error:
            logger.warning("The move of %s cannot continue: %s", future.tp, error)
            if error.errno not in NOT_THE_DISK:
                self._stop(future)
                self._table.fail_dir(future.place.log_dir.path, error)


def _common_end(log: PartitionLog, copy: PartitionLog) -> int:
    """Up to where both have the same records, as far as their ends and leader epochs tell (KIP-101, KIP-279)."""
    end = min(log.log_end_offset, copy.log_end_offset)
    for epoch, start in reversed(copy.leader_epochs()):
        found, epoch_end = log.offset_for_leader_epoch(epoch)
        if found == epoch:
            return min(end, epoch_end)
        end = min(end, start)
    return end


def _exists(place: Place, name: str) -> bool:
    """False, not an error, on a disk that fails."""
    return os.path.exists(place.log_dir.path / name)  # noqa: PTH110 - Path.exists raises
