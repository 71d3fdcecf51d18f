"""Every partition log of this broker: loading, creating, deleting, closing. Source: kafka.log.LogManager.

manager = LogManager(config, backends={"local": LocalBackend()}, events=queue, scheduler=scheduler)
manager.acquire()                     # locks the directories
manager.load()                        # recovery; blocking
manager.start()                       # background work
log = manager.get_or_create(TopicPartition("orders", 0), topic_id, config)
manager.shutdown(broker_epoch)

Its parts: LogTable (which log is where), DirLoader (recovery), LogTasks (retention, flushes), OffsetCheckpoints,
LogEvents (of the data plane), LogCleaner, FutureLogs (moves between directories).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from kafkapy._speedups.base.event_queue import EventQueue
from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.records.reservation import set_reservation
from kafkapy.config.topic import LogConfig
from kafkapy.errors import ErrorCode, error_for
from kafkapy.log.backends.base import StorageBackend
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.cleaner import LogCleaner
from kafkapy.log.cleaner_checkpoint import CleanerCheckpoints
from kafkapy.log.dir_loader import DirLoader
from kafkapy.log.dir_scan import Place, deleted_name
from kafkapy.log.future_logs import FutureLogs
from kafkapy.log.loader import load_log, write_topic_id
from kafkapy.log.log_dir import LogDir, LogDirError, MemoryLogDir
from kafkapy.log.log_events import LogEvents, SegmentSealed
from kafkapy.log.log_table import LogTable
from kafkapy.log.log_tasks import LogTasks
from kafkapy.log.log_work import LogWork, Scheduler
from kafkapy.log.offset_checkpoints import OffsetCheckpoints
from kafkapy.log.shortage import insist, is_shortage
from kafkapy.log.stray_logs import StrayLogs, stray_name
from kafkapy.log.workers import DirWorkers
from kafkapy.types import ZERO_UUID, TopicPartition, uuid_to_string

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

__all__ = ["LogManager"]

logger = logging.getLogger("kafka.log.LogManager")

KAFKA_STORAGE_ERROR = 56
INCONSISTENT_TOPIC_ID = 103


class LogManager:
    """Makes, deletes, cuts and closes the broker's PartitionLogs.

    It owns the parts that keep them.

    `load`, `get_or_create`, `delete` and `shutdown` block on files: callers run them on worker threads.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        backends: Mapping[str, StorageBackend] | None = None,
        events: EventQueue | None = None,
        scheduler: Scheduler | None = None,
        topic_config: Callable[[str], LogConfig] | None = None,
        on_log_dir_failure: Callable[[Path, list[TopicPartition]], None] | None = None,
        on_segment_sealed: SegmentSealed | None = None,
    ) -> None:
        self.config = config
        set_reservation(config.get_int("kafkapy.log.reserve.bytes"))
        make = MemoryLogDir if config.keeps_nothing else LogDir
        dirs = [make(Path(path).absolute()) for path in config.log_dirs]
        # Only appends of a data plane leave work to them.
        self._workers = {log_dir.path: DirWorkers() for log_dir in dirs} if events is not None else {}
        self.table = LogTable(dirs, self._workers, on_log_dir_failure)
        self.table.cordoned = config.cordoned_log_dirs
        self._work = LogWork(self.table, scheduler)
        self._backends = dict(backends) if backends is not None else {"local": LocalBackend()}
        if config.keeps_nothing:
            self._backends = {name: each for name, each in self._backends.items() if not each.persistent}
        local = self._backends.get("local")
        if isinstance(local, LocalBackend) and local.later is None and scheduler is not None:
            local.later = self._work.later
        self._queue = events
        self._topic_config = topic_config or (lambda topic: LogConfig.create(config))
        self.checkpoints = OffsetCheckpoints(self.table)
        self.tasks = LogTasks(lambda: self.config, self.table, self._work, self.checkpoints, scheduler)
        self.events = LogEvents(self.table, self._work, on_segment_sealed)
        self.strays: StrayLogs | None = None
        """Sets logs aside that the metadata store does not know."""
        self._runs_cleaner = scheduler is not None
        self._loading = False
        cleaned = CleanerCheckpoints(files=not config.keeps_nothing)
        table = self.table
        self.cleaner = LogCleaner(lambda: self.config, table.logs, table.dir_of, table.log_failed, cleaned)
        self.futures = FutureLogs(table, self.cleaner.manager, self.checkpoints, self._work, self._expiration_ms)

    # ---- start ----

    def acquire(self) -> None:
        """Makes and locks the log directories.

        LogDirError, one sentence, when another broker has one or none can be used.

        A directory that cannot be used is offline; only when all are is that the end, as in Kafka.
        """
        seen: set[Path] = set()
        for log_dir in self.dirs:
            if log_dir.path in seen:
                raise LogDirError(f"The log directory {log_dir.path} is listed twice in log.dirs.")
            seen.add(log_dir.path)
            try:
                log_dir.acquire()
            except OSError as error:
                if is_shortage(error):
                    raise LogDirError(f"The log directory {log_dir.path} cannot be used: {error.strerror}.") from error
                log_dir.failure = error
                logger.error("Log directory %s cannot be used: %s", log_dir.path, error.strerror)
        if not self.live_dirs:
            reason = self.dirs[0].failure.strerror if self.dirs and self.dirs[0].failure else "none is configured"
            where = ", ".join(str(log_dir.path) for log_dir in self.dirs)
            raise LogDirError(f"No log directory can be used ({where}): {reason}.")

    def load(self) -> int:
        """Loads the logs of all directories, each with num.recovery.threads.per.data.dir threads; how many.
        Blocking. LogDirError when no directory is left, or a partition is in two."""
        loader = DirLoader(
            self.table,
            self.futures,
            self._work,
            self.persistent_backends,
            self._topic_config,
            strays=self.strays,
            forget_cleaned=self._forget_cleaned,
            events=self._queue,
            threads=self.config.get_int("num.recovery.threads.per.data.dir"),
            producer_id_expiration_ms=self._expiration_ms(),
        )
        self._loading = True
        count = loader.load()
        self._loading = False
        return count

    @property
    def persistent_backends(self) -> list[StorageBackend]:
        """The backends whose logs are still there after a restart."""
        return [each for each in self._backends.values() if each.persistent]

    def start(self) -> None:
        """Begins the background work: retention, flushes, checkpoints, expiry of producers."""
        self.tasks.start()
        if self._runs_cleaner and self.config.get_bool("log.cleaner.enable"):
            self.tasks.cleaner_runs = True
            self.cleaner.start()

    # ---- the table of logs ----

    @property
    def dirs(self) -> list[LogDir]:
        """The log directories, in the order of log.dirs."""
        return self.table.dirs

    @property
    def live_dirs(self) -> list[LogDir]:
        """The directories that work."""
        return self.table.live_dirs

    @property
    def offline_dirs(self) -> list[LogDir]:
        """The directories that failed."""
        return self.table.offline_dirs

    def get(self, tp: TopicPartition) -> PartitionLog | None:
        """The log of a partition hosted here, or None."""
        return self.table.get(tp)

    def logs(self) -> dict[TopicPartition, PartitionLog]:
        """A copy of the table."""
        return self.table.logs()

    def dir_of(self, tp: TopicPartition) -> Path | None:
        """The log directory that a partition is in, or None."""
        return self.table.dir_of(tp)

    # ---- making and deleting logs ----

    def get_or_create(
        self, tp: TopicPartition, topic_id: uuid.UUID = ZERO_UUID, config: LogConfig | None = None
    ) -> PartitionLog:
        """The partition's log; a missing one is made. Blocking.

        The new log goes on the directory with the fewest logs that is not cordoned.

        InconsistentTopicIdError when the log belongs to an earlier topic of that name; KafkaStorageError when no
        directory works; OSError (`is_shortage`) while descriptors or memory are short.
        """
        return insist(self._get_or_create, tp, topic_id, config)

    def _get_or_create(self, tp: TopicPartition, topic_id: uuid.UUID, config: LogConfig | None) -> PartitionLog:
        if tp not in self.table:
            # What is left of an earlier one (its log is gone, or was on a disk that is) must not become a part of this.
            self.futures.remove(tp)
        with self.table.lock:
            log = self.table.get(tp)
            if log is not None:
                if log.topic_id == topic_id.bytes:
                    return log
                known = uuid.UUID(bytes=log.topic_id)
                if topic_id != ZERO_UUID and known == ZERO_UUID:
                    write_topic_id(log.storage, topic_id)
                    log.topic_id = topic_id.bytes
                elif topic_id not in (ZERO_UUID, known):
                    raise error_for(
                        INCONSISTENT_TOPIC_ID,
                        f"The log of {tp} has topic id {uuid_to_string(known)}, not {uuid_to_string(topic_id)}",
                    )
                return log
            return self._create(tp, topic_id, config or self._topic_config(tp.topic))

    def _create(self, tp: TopicPartition, topic_id: uuid.UUID, config: LogConfig) -> PartitionLog:
        backend = self._backend(config)
        name = str(tp)
        while True:
            log_dir = self.table.dir_for(tp)
            if log_dir is None:
                raise error_for(KAFKA_STORAGE_ERROR, f"{tp} cannot be created: no log directory works")
            try:
                log_dir.forget(tp)
                storage = backend.open_log(log_dir.path, name, create=True)
                if topic_id != ZERO_UUID:
                    write_topic_id(storage, topic_id)
                log, _ = load_log(
                    storage,
                    tp,
                    config,
                    events=self._queue,
                    topic_id=topic_id,
                    producer_id_expiration_ms=self._expiration_ms(),
                )
            except OSError as error:
                if is_shortage(error):
                    raise
                self.table.fail_dir(log_dir.path, error)
                continue
            self.table.add(tp, log, Place(log_dir, name, backend))
            logger.info("The log of partition %s was created in %s", tp, log_dir.path)
            return log

    def _backend(self, config: LogConfig) -> StorageBackend:
        name = config.kafkapy_storage_backend
        backend = self._backends.get(name)
        if backend is None:
            raise error_for(
                KAFKA_STORAGE_ERROR,
                f"No storage backend is named {name!r}; known are {', '.join(sorted(self._backends))}",
            )
        return backend

    def delete(self, tp: TopicPartition, *, delay_ms: int | None = None) -> bool:
        """Takes the partition's log away, with a future log; False without one.

        The directory is renamed now and removed after file.delete.delay.ms. Blocking.
        """
        # A cleaning must not write into the directory of a new partition of that name.
        with self.cleaner.manager.paused(tp):
            taken = None
            while taken is None and tp in self.table:
                # The future log goes first, so that a crash in between leaves no future log without a log.
                self.futures.remove(tp)
                taken = self._take_out(tp)
        if taken is None:
            return False
        log, place = taken
        if place.log_dir.failure is None:
            self._work.delete_later(place, log.config.file_delete_delay_ms if delay_ms is None else delay_ms, log)
        return True

    def set_aside(self, tp: TopicPartition) -> bool:
        """Takes the log of an earlier topic away and keeps it.

        False when there is none. Blocking.
        """
        with self.cleaner.manager.paused(tp):
            taken = None
            while taken is None and tp in self.table:
                self.futures.remove(tp)
                self._release_space(tp)
                taken = self._take_out(tp, stray_name)
        if taken is not None:
            log, place = taken
            log.close()
            logger.warning("Partition %s of an earlier topic is set aside as %s", tp, place.log_dir.path / place.name)
        return taken is not None

    def _release_space(self, tp: TopicPartition) -> None:
        """Gives back the disk space ahead of appends that do not come any more."""
        log = self.get(tp)
        if log is not None:
            for _ in range(2):
                self._work.guarded(log, PartitionLog.release_idle_space)

    def _take_out(
        self, tp: TopicPartition, new_name: Callable[[TopicPartition], str] = deleted_name
    ) -> tuple[PartitionLog, Place] | None:
        """Takes the log out of the table and renames its directory.

        The place says the new name. None when there is no log, or a move has begun. A failure to rename takes the
        directory offline.
        """
        with self.table.lock:
            if tp not in self.table or self.futures.get(tp) is not None:
                return None
            log, place = self.table.remove(tp)
            log.mark_deleted()
            log.storage.retire()
            self._forget_cleaned(place.log_dir.path, tp)
            renamed = new_name(tp)
            try:
                place.backend.rename_log(place.log_dir.path, place.name, renamed)
            except OSError as error:
                self.table.fail_dir(place.log_dir.path, error)
        return log, place._replace(name=renamed)

    def _forget_cleaned(self, directory: Path, tp: TopicPartition) -> None:
        try:
            self.cleaner.manager.forget(directory, tp)
        except OSError as error:
            self.table.fail_dir(directory, error)

    # ---- changes of a log ----

    def update_config(self, topic: str, config: LogConfig) -> None:
        """Gives all logs of a topic a new configuration."""
        for tp, log in self.logs().items():
            if tp.topic == topic:
                log.update_config(config)

    def truncate_to(
        self, tp: TopicPartition, offset: int, *, followed: PartitionLog | None = None, leader_epoch: int = -1
    ) -> bool:
        """Drops a follower's records that its leader does not have.

        Its future log drops them as well, and the cleaner learns of it. True when something was dropped.
        KafkaStorageError; OSError (`is_shortage`) while descriptors or memory are short; blocking. `followed`: the log
        that the partition must still have, and `leader_epoch` the epoch in which it follows: FENCED_LEADER_EPOCH
        otherwise.
        """

        def cut(log: PartitionLog, epoch: int) -> bool:
            return log.truncate_to(offset, leader_epoch=epoch)

        return self._truncate(tp, cut, followed, leader_epoch)

    def truncate_fully_and_start_at(
        self, tp: TopicPartition, offset: int, *, followed: PartitionLog | None = None, leader_epoch: int = -1
    ) -> None:
        """Drops all records; the log goes on, empty, at `offset`.

        So does a future log. Arguments and errors as in `truncate_to`; blocking.
        """

        def cut(log: PartitionLog, epoch: int) -> bool:
            log.truncate_fully_and_start_at(offset, leader_epoch=epoch)
            return True

        self._truncate(tp, cut, followed, leader_epoch)

    def _truncate(
        self,
        tp: TopicPartition,
        cut: Callable[[PartitionLog, int], bool],
        followed: PartitionLog | None,
        leader_epoch: int,
    ) -> bool:
        manager = self.cleaner.manager
        with manager.paused(tp), self.futures.held(tp) as future:
            log, directory = self.table.log_at(tp)
            if followed is not None and log is not followed:
                raise error_for(ErrorCode.FENCED_LEADER_EPOCH, f"{tp} has another log")
            if future is not None:
                # The copy comes first: what it lacks is copied again, what it has too much would stay.
                try:
                    cut(future.log, -1)
                except OSError as error:
                    if is_shortage(error):
                        raise
                    self.table.fail_dir(future.place.log_dir.path, error)
            try:
                dropped = cut(log, leader_epoch)
                manager.truncated(tp, log.log_end_offset)
            except OSError as error:
                if is_shortage(error):
                    raise
                self.table.fail_dir(directory, error)
                raise error_for(KAFKA_STORAGE_ERROR, f"{tp} cannot be truncated: {error.strerror}") from error
        return dropped

    def update_broker_config(self, config: BrokerConfig) -> None:
        """Follow a changed configuration: cordoned directories, cleaner, and expiry of producer ids."""
        before = self._expiration_ms()
        self.config = config
        self.table.cordoned = config.cordoned_log_dirs
        self.cleaner.reconfigure()
        if self._expiration_ms() != before:
            for log in self.logs().values():
                log.producer_id_expiration_ms = self._expiration_ms()

    def _expiration_ms(self) -> int:
        """producer.id.expiration.ms as it is configured now."""
        return self.config.get_int("producer.id.expiration.ms")

    # ---- stop ----

    def shutdown(self, broker_epoch: int = -1) -> None:
        """Closes all logs cleanly. Blocking.

        In order: no more appends, indexes cut, everything synced, snapshots, checkpoints, then the marker; the last two
        unless `load` failed.
        """
        with self.table.lock:
            if self.table.closed:
                return
            by_dir = self.table.close()
        self.tasks.stop()
        self.cleaner.shutdown()
        self.events.stop()
        for workers in self._workers.values():
            workers.stop()
        unclean: set[Path] = set()
        threads = self.config.get_int("num.recovery.threads.per.data.dir")
        with ThreadPoolExecutor(max_workers=max(1, threads * len(self.dirs)), thread_name_prefix="log-closing") as pool:
            for log_dir, failures in [
                (log_dir, list(pool.map(_close_log, by_dir[log_dir.path]))) for log_dir in self.live_dirs
            ]:
                for error in filter(None, failures):
                    self.table.fail_dir(log_dir.path, error)
                    unclean.add(log_dir.path)
        if self._loading:
            # Logs that were not loaded have offsets in the checkpoints, and may need a recovery.
            unclean |= {log_dir.path for log_dir in self.dirs}
        else:
            unclean |= self.checkpoints.write_all()
        for log_dir in self.dirs:
            if log_dir.failure is None and log_dir.path not in unclean:
                try:
                    log_dir.write_clean_shutdown_marker(broker_epoch)
                except OSError as error:
                    self.table.fail_dir(log_dir.path, error)
            log_dir.release()
        self.table.clear()
        self._queue = None
        logger.info("The log manager stopped")


def _close_log(log: PartitionLog) -> OSError | None:
    if log.offline_errno:
        # The event may still be on its way; without this the directory would be marked as closed cleanly.
        return OSError(log.offline_errno, f"{log.topic}-{log.partition} is offline")
    try:
        log.close()
        log.flush()
        log.take_producer_snapshot()
    except OSError as error:
        return error
    return None
