"""Every partition log of this broker: loading, creating, deleting, flushing, retention. Source: kafka.log.LogManager.

manager = LogManager(config, backends={"local": LocalBackend()}, events=queue, scheduler=scheduler)
manager.acquire()                     # locks the directories
manager.load()                        # recovery; blocking
manager.start()                       # background work
log = manager.get_or_create(TopicPartition("orders", 0), topic_id, config)
manager.shutdown(broker_epoch)
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol

from kafkapy._speedups.base.event_queue import EventQueue
from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy.config.topic import LogConfig
from kafkapy.errors import error_for
from kafkapy.log.backends.base import StorageBackend
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.cleaner import LogCleaner
from kafkapy.log.cleaner_checkpoint import CleanerCheckpoints
from kafkapy.log.dir_loader import DirLoader
from kafkapy.log.dir_scan import Place, deleted_name
from kafkapy.log.future_logs import FutureLogs
from kafkapy.log.loader import load_log, write_topic_id
from kafkapy.log.log_dir import LogDir, LogDirError, MemoryLogDir
from kafkapy.log.retention import apply_retention
from kafkapy.log.shortage import insist, is_shortage, warn_of_shortage
from kafkapy.log.workers import DirWorkers
from kafkapy.types import ZERO_UUID, TopicPartition, uuid_to_string

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

__all__ = ["LogManager", "Scheduler"]

logger = logging.getLogger("kafka.log.LogManager")

KAFKA_STORAGE_ERROR = 56
LOG_DIR_NOT_FOUND = 57
INCONSISTENT_TOPIC_ID = 103
NEVER = (1 << 63) - 1
RETRY_MS = 250
"""When work is tried again that failed for want of descriptors or memory."""
MAX_PREFERRED = 10_000
"""Partitions that may come some day, and whose directory is remembered."""


SegmentSealed = Callable[[TopicPartition, int, int, int], None]
"""Hears of a segment that takes no more records: its partition, base offset, next offset and size in bytes."""


class Scheduler(Protocol):
    """The part of KafkaScheduler that is used here; a plain function runs on a worker thread."""

    def schedule(self, name: str, fn: Callable[[], Any], delay_ms: int = 0, period_ms: int = -1) -> Any:
        """Runs fn after delay_ms, then every period_ms after the end of a run (-1: once)."""


class LogManager:
    """Owns the log directories and all PartitionLogs of the broker, under one lock that is held for table work only,
    except that creating and deleting one log holds it through a few file calls, so that no partition is made twice.

    `load`, `get_or_create`, `delete` and `shutdown` block on files: callers run them on worker threads. The `on_...`
    methods take the data plane's events on the control loop and return at once.
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
        self.events = events
        make = MemoryLogDir if config.keeps_nothing else LogDir
        self.dirs = [make(Path(path).absolute()) for path in config.log_dirs]
        self._backends = dict(backends) if backends is not None else {"local": LocalBackend()}
        if config.keeps_nothing:
            self._backends = {name: each for name, each in self._backends.items() if not each.persistent}
        local = self._backends.get("local")
        if isinstance(local, LocalBackend) and local.later is None and scheduler is not None:
            local.later = self._later
        self._scheduler = scheduler
        self._topic_config = topic_config or (lambda topic: LogConfig.create(config))
        self._on_log_dir_failure = on_log_dir_failure
        self._on_segment_sealed = on_segment_sealed
        self.lock = RLock()
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._by_id: dict[int, PartitionLog] = {}
        # The backend that has the log; the configuration may name another one by now.
        self._places: dict[TopicPartition, Place] = {}
        # Where a partition that is not here yet shall be made (AlterReplicaLogDirs).
        self._preferred: dict[TopicPartition, LogDir] = {}
        self._counts = {log_dir.path: 0 for log_dir in self.dirs}
        self._last_flush: dict[TopicPartition, float] = {}
        self._tasks: list[Any] = []
        # Only appends of a data plane leave work to them.
        self._workers = {log_dir.path: DirWorkers() for log_dir in self.dirs} if events is not None else {}
        # For storage backends that make segments in Python, and for what follows a roll.
        self._segments = ThreadPoolExecutor(max_workers=2, thread_name_prefix="kafka-log-segment")
        self._closed = False
        checkpoints = CleanerCheckpoints(files=not config.keeps_nothing)
        self.cleaner = LogCleaner(lambda: self.config, self.logs, self.dir_of, self.log_failed, checkpoints)
        self._cleaner_runs = False
        self.futures = FutureLogs(self)

    # ---- start ----

    def acquire(self) -> None:
        """Makes and locks the log directories. LogDirError, one sentence, when another broker has one or none can be
        used.

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
        persistent = [backend for backend in self._backends.values() if backend.persistent]
        return DirLoader(self, persistent, self._topic_config).load()

    def start(self) -> None:
        """Begins the background work: retention, flushes, checkpoints, expiry of producers."""
        if self._scheduler is None:
            return
        config = self.config
        schedule = self._scheduler.schedule
        flush_ms = min(config.get_int("log.flush.scheduler.interval.ms"), 1000)
        checkpoint_ms = config.get_int("log.flush.offset.checkpoint.interval.ms")
        start_ms = config.get_int("log.flush.start.offset.checkpoint.interval.ms")
        retention_ms = config.get_int("log.retention.check.interval.ms")
        initial_ms = config.get_int("log.initial.task.delay.ms")
        expiry_ms = config.get_int("producer.id.expiration.check.interval.ms")
        watermark_ms = config.get_int("replica.high.watermark.checkpoint.interval.ms")
        self._tasks = [
            schedule("kafka-log-retention", self.apply_retention, initial_ms, retention_ms),
            schedule("kafka-log-flusher", self.flush_dirty_logs, flush_ms, flush_ms),
            schedule("kafka-recovery-point-checkpoint", self.checkpoint_recovery_points, checkpoint_ms, checkpoint_ms),
            schedule("kafka-log-start-offset-checkpoint", self.checkpoint_log_starts, start_ms, start_ms),
            schedule("highwatermark-checkpoint", self.checkpoint_high_watermarks, watermark_ms, watermark_ms),
            schedule("PeriodicProducerExpirationCheck", self.expire_producers, expiry_ms, expiry_ms),
        ]
        if config.get_bool("log.cleaner.enable"):
            self._cleaner_runs = True
            self.cleaner.start()

    # ---- the table of logs ----

    @property
    def live_dirs(self) -> list[LogDir]:
        """The directories that work."""
        return [log_dir for log_dir in self.dirs if log_dir.failure is None]

    @property
    def offline_dirs(self) -> list[LogDir]:
        """The directories that failed."""
        return [log_dir for log_dir in self.dirs if log_dir.failure is not None]

    def get(self, tp: TopicPartition) -> PartitionLog | None:
        """The log of a partition hosted here, or None."""
        return self._logs.get(tp)

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

    def check_dir(self, path: Path) -> None:
        """LogDirNotFoundError for a path that is no log directory of this broker, KafkaStorageError when it is offline.
        A path has to be written as Kafka shows it: absolute."""
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

    def get_or_create(
        self, tp: TopicPartition, topic_id: uuid.UUID = ZERO_UUID, config: LogConfig | None = None
    ) -> PartitionLog:
        """The partition's log, made on the directory with the fewest logs if there is none. Blocking.

        InconsistentTopicIdError when the log belongs to an earlier topic of that name; KafkaStorageError when no
        directory works; OSError (`is_shortage`) while descriptors or memory are short.
        """
        return insist(self._get_or_create, tp, topic_id, config)

    def _get_or_create(self, tp: TopicPartition, topic_id: uuid.UUID, config: LogConfig | None) -> PartitionLog:
        if tp not in self._logs:
            # What is left of an earlier one (its log is gone, or was on a disk that is) must not become a part of this.
            self.futures.remove(tp)
        with self.lock:
            log = self._logs.get(tp)
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
            preferred = self._preferred.get(tp)
            live = self.live_dirs if preferred is None else [preferred][: preferred.failure is None]
            if not live or self._closed:
                raise error_for(KAFKA_STORAGE_ERROR, f"{tp} cannot be created: no log directory works")
            log_dir = min(live, key=lambda candidate: self._counts[candidate.path])
            try:
                log_dir.forget(tp)
                storage = backend.open_log(log_dir.path, name, create=True)
                if topic_id != ZERO_UUID:
                    write_topic_id(storage, topic_id)
                log, _ = load_log(
                    storage,
                    tp,
                    config,
                    events=self.events,
                    topic_id=topic_id,
                    producer_id_expiration_ms=self.producer_expiration_ms(),
                )
            except OSError as error:
                if is_shortage(error):
                    raise
                self.fail_dir(log_dir.path, error)
                continue
            self.add(tp, log, Place(log_dir, name, backend))
            self._preferred.pop(tp, None)
            logger.info("Created log for partition %s in %s", tp, log_dir.path)
            return log

    def delete(self, tp: TopicPartition, *, delay_ms: int | None = None) -> bool:
        """Takes the partition's log away, with a future log: its directory is renamed now and removed after
        file.delete.delay.ms. False when there is none. Blocking."""
        # A cleaning must not write into the directory of a new partition of that name.
        with self.cleaner.manager.paused(tp):
            taken = None
            while taken is None and tp in self._logs:
                # The future log goes first, so that a crash in between leaves no future log without a log.
                self.futures.remove(tp)
                taken = self._take_out(tp)
        if taken is None:
            return False
        log, place = taken
        if place.log_dir.failure is None:
            self.delete_later(place, log.config.file_delete_delay_ms if delay_ms is None else delay_ms, log)
        return True

    def _take_out(self, tp: TopicPartition) -> tuple[PartitionLog, Place] | None:
        """Takes the log out of the table and renames its directory, to what the place says; None when there is none, or
        a move has begun. A failure to rename takes the directory offline."""
        with self.lock:
            if tp not in self._logs or self.futures.get(tp) is not None:
                return None
            log, place = self._logs.pop(tp), self._places.pop(tp)
            self._by_id.pop(log.id, None)
            self._last_flush.pop(tp, None)
            self.count(place.log_dir.path, -1)
            log.mark_deleted()
            log.storage.retire()
            self._forget_cleaned(place.log_dir.path, tp)
            renamed = deleted_name(tp)
            try:
                place.backend.rename_log(place.log_dir.path, place.name, renamed)
            except OSError as error:
                self.fail_dir(place.log_dir.path, error)
        return log, place._replace(name=renamed)

    def delete_later(
        self, place: Place, delay_ms: int, log: PartitionLog | None = None, *, successor: LogDir | None = None
    ) -> None:
        """Removes a directory that has its deleted name already; `log` is closed before. It is kept when `successor`,
        the directory that its log was moved to, has failed by then."""

        def remove() -> None:
            if successor is not None and successor.failure is not None:
                logger.warning("%s is kept: %s has failed", place.log_dir.path / place.name, successor.path)
                return
            try:
                if log is not None:
                    log.close()
                place.backend.delete_log(place.log_dir.path, place.name)
            except OSError as error:
                self.fail_dir(place.log_dir.path, error)
            else:
                logger.info("Deleted %s in %s", place.name, place.log_dir.path)

        self._later(remove, delay_ms)

    def _forget_cleaned(self, directory: Path, tp: TopicPartition) -> None:
        try:
            self.cleaner.manager.forget(directory, tp)
        except OSError as error:
            self.fail_dir(directory, error)

    def update_config(self, topic: str, config: LogConfig) -> None:
        """Gives all logs of a topic a new configuration."""
        for tp, log in self.logs().items():
            if tp.topic == topic:
                log.update_config(config)

    def add(self, tp: TopicPartition, log: PartitionLog, place: Place) -> None:
        """Takes a log into the table that was loaded or made. Under the lock."""
        self._logs[tp] = log
        self._by_id[log.id] = log
        self._places[tp] = place
        self._use_workers(log, place)
        self.count(place.log_dir.path, 1)
        self._last_flush[tp] = time.monotonic()

    def count(self, path: Path, change: int) -> None:
        """A directory has got so many more logs, or future logs. Under the lock."""
        self._counts[path] += change

    def replaced(self, tp: TopicPartition, place: Place) -> None:
        """The partition's log is at `place` now, which counted it as a future log before. Under the lock."""
        self.count(self._places[tp].log_dir.path, -1)
        self._places[tp] = place
        self._use_workers(self._logs[tp], place)

    def _use_workers(self, log: PartitionLog, place: Place) -> None:
        workers = self._workers.get(place.log_dir.path)
        if workers is not None:
            log.use_workers(workers.segments, workers.flushes, workers.appends)

    def truncate_to(self, tp: TopicPartition, offset: int) -> bool:
        """A follower drops what its leader does not have, from its future log as well, and the cleaner learns of it.
        True when something was dropped. KafkaStorageError; blocking."""
        return self._truncate(tp, lambda log: log.truncate_to(min(offset, log.log_end_offset)))

    def truncate_fully_and_start_at(self, tp: TopicPartition, offset: int) -> None:
        """Drops everything, of a future log too; the log goes on, empty, at `offset`. KafkaStorageError; blocking."""
        self._truncate(tp, lambda log: log.truncate_fully_and_start_at(offset))

    def _truncate(self, tp: TopicPartition, cut: Callable[[PartitionLog], bool | None]) -> bool:
        manager = self.cleaner.manager
        with manager.paused(tp), self.futures.held(tp) as future:
            log, directory = self._logs[tp], self._places[tp].log_dir.path
            try:
                dropped = bool(cut(log))
                manager.truncated(tp, log.log_end_offset)
                if future is not None:
                    directory = future.place.log_dir.path
                    cut(future.log)
            except OSError as error:
                self.fail_dir(directory, error)
                if future is None or directory != future.place.log_dir.path:
                    raise error_for(KAFKA_STORAGE_ERROR, f"{tp} cannot be truncated: {error.strerror}") from error
        return dropped

    def _backend(self, config: LogConfig) -> StorageBackend:
        name = config.kafkapy_storage_backend
        backend = self._backends.get(name)
        if backend is None:
            raise error_for(
                KAFKA_STORAGE_ERROR,
                f"No storage backend is named {name!r}; known are {', '.join(sorted(self._backends))}",
            )
        return backend

    def producer_expiration_ms(self) -> int:
        """producer.id.expiration.ms as it is configured now."""
        return self.config.get_int("producer.id.expiration.ms")

    def _later(self, function: Callable[[], None], delay_ms: int) -> None:
        if self._scheduler is None or self._closed:
            function()
        else:
            self._scheduler.schedule("kafka-delete-logs", function, delay_ms)

    # ---- the data plane's events (control loop) ----

    def on_segment_wanted(self, handle: int, argument: int = 0, text: bytes = b"") -> None:
        """A log needs its next segment soon, or now, and its storage backend makes segments in Python."""
        self._on_segment_worker(handle, lambda log: log.prepare_segment())

    def on_segment_rolled(self, handle: int, argument: int = 0, text: bytes = b"") -> None:
        """A log has a new active segment: the closed one is cut to size and, in the background, synced."""
        self._on_segment_worker(handle, self._after_roll)
        log = self._by_id.get(handle)
        if log is not None and self._on_segment_sealed is not None:
            for base_offset, size, *_ in reversed(log.segments()):
                if base_offset < argument:
                    tp = TopicPartition(log.topic, log.partition)
                    self._on_segment_sealed(tp, base_offset, argument, size)
                    break

    def on_flush_wanted(self, handle: int, argument: int = 0, text: bytes = b"") -> None:
        """Produces wait for a flush that flush.messages has made due, and no native thread could take it over."""
        log = self._by_id.get(handle)
        if log is not None and self._scheduler is not None and not self._closed:
            self._scheduler.schedule("flush-log", lambda: self._guarded(log, lambda each: each.flush_due()))

    def on_log_offline(self, handle: int, argument: int, text: bytes = b"") -> None:
        """A log met a disk error; `argument` is the errno. Its whole directory goes offline."""
        log = self._by_id.get(handle)
        path = self._path_of(log) if log is not None else None
        if path is not None:
            self.fail_dir(path, OSError(argument, text.decode(errors="replace")))

    def _path_of(self, log: PartitionLog) -> Path | None:
        """The directory of this very log; None when it is deleted, even if there is a new one of its name."""
        with self.lock:
            place = self._places.get(TopicPartition(log.topic, log.partition))
            return place.log_dir.path if place is not None and log.id in self._by_id else None

    def _on_segment_worker(self, handle: int, work: Callable[[PartitionLog], None]) -> None:
        log = self._by_id.get(handle)
        if log is not None and not self._closed:
            self._segments.submit(self._guarded, log, work)

    def _guarded(self, log: PartitionLog, work: Callable[[PartitionLog], None]) -> None:
        if self._path_of(log) is None:
            return
        try:
            work(log)
        except OSError as error:
            path = self._path_of(log)
            if is_shortage(error) and self._scheduler is not None and not self._closed:
                # Appends may be waiting for this work.
                warn_of_shortage(error)
                self._scheduler.schedule("retry", lambda: self._guarded(log, work), RETRY_MS)
            elif path is not None:
                self.fail_dir(path, error)
        except Exception:
            logger.exception("Background work on %s failed", log)

    def _after_roll(self, log: PartitionLog) -> None:
        log.seal_segments()
        if self._scheduler is not None and not self._closed:
            self._scheduler.schedule("flush-log", lambda: self._guarded(log, _flush))

    # ---- background work (worker threads) ----

    def apply_retention(self) -> int:
        """Deletes what retention allows, everywhere; how many segments. Compacted logs are the cleaner's while it
        runs."""
        now_ms = time.time_ns() // 1_000_000
        deleted = 0
        for log in self.logs().values():
            if not log.offline_errno and not (self._cleaner_runs and "compact" in log.config.cleanup_policy):

                def work(log: PartitionLog) -> None:
                    nonlocal deleted
                    deleted += apply_retention(log, now_ms)

                self._guarded(log, work)
        return deleted

    def flush_dirty_logs(self) -> None:
        """Syncs logs whose flush.ms has passed. Where flush.messages is set, the appends have synced the messages
        already; this moves the recovery point over them."""
        now = time.monotonic()
        for tp, log in self.logs().items():
            config = log.config
            if config.flush_ms == NEVER and config.flush_messages == NEVER:
                continue
            waited_ms = (now - self._last_flush.get(tp, now)) * 1000
            _, end, _, _, recovery_point = log.offsets()
            if end > recovery_point and (waited_ms >= config.flush_ms or end - recovery_point >= config.flush_messages):
                self._last_flush[tp] = now
                self._guarded(log, _flush)

    def expire_producers(self) -> None:
        """Forgets idle producers (producer.id.expiration.ms)."""
        now_ms = time.time_ns() // 1_000_000
        for log in self.logs().values():
            log.producer_id_expiration_ms = self.producer_expiration_ms()
            log.expire_producers(now_ms)

    def checkpoint_recovery_points(self) -> set[Path]:
        """Writes recovery-point-offset-checkpoint in every directory; those where it failed."""
        return self._checkpoint(LogDir.write_recovery_points, lambda log: log.recovery_point)

    def checkpoint_log_starts(self) -> set[Path]:
        """Writes log-start-offset-checkpoint: only logs that start above their first segment need an entry."""
        return self._checkpoint(LogDir.write_log_starts, _start_to_keep)

    def checkpoint_high_watermarks(self) -> set[Path]:
        """Writes replication-offset-checkpoint in every directory; those where it failed."""
        return self._checkpoint(LogDir.write_high_watermarks, lambda log: log.high_watermark)

    def _checkpoint(
        self, write: Callable[[LogDir, Mapping[TopicPartition, int]], None], value: Callable[[PartitionLog], int | None]
    ) -> set[Path]:
        failed: set[Path] = set()
        tables: dict[Path, dict[TopicPartition, int]] = {log_dir.path: {} for log_dir in self.dirs}
        for tp, log_dir, log in self._placed():
            offset = value(log)
            if offset is not None:
                tables[log_dir.path][tp] = offset
        for log_dir in self.live_dirs:
            try:
                write(log_dir, tables[log_dir.path])
            except OSError as error:
                failed.add(log_dir.path)
                self.fail_dir(log_dir.path, error)
        return failed

    def checkpoint_directory(self, log_dir: LogDir) -> None:
        """Writes all offsets of one directory. OSError."""
        logs = [(tp, log) for tp, place, log in self._placed() if place is log_dir]
        log_dir.write_recovery_points({tp: log.recovery_point for tp, log in logs})
        log_dir.write_log_starts({tp: start for tp, log in logs if (start := _start_to_keep(log)) is not None})
        log_dir.write_high_watermarks({tp: log.high_watermark for tp, log in logs})

    def _placed(self) -> list[tuple[TopicPartition, LogDir, PartitionLog]]:
        """The logs and future logs that have files, with their directories. No directory has both of a partition."""
        with self.lock:
            placed = [(tp, self._places[tp].log_dir, log) for tp, log in self._logs.items() if log.storage.directory]
            return placed + [(tp, each.place.log_dir, each.log) for tp, each in self.futures.all().items()]

    def fail_dir(self, path: Path, error: OSError) -> None:
        """Takes a directory offline with all its logs: they answer KAFKA_STORAGE_ERROR; other directories live on.
        Nothing happens while only descriptors or memory are short. Any thread."""
        if is_shortage(error):
            warn_of_shortage(error)
            return
        with self.lock:
            log_dir = next((candidate for candidate in self.dirs if candidate.path == path), None)
            if log_dir is None or log_dir.failure is not None:
                return
            log_dir.failure = error
            affected = [tp for tp, place in self._places.items() if place.log_dir is log_dir]
            logs = [self._logs[tp] for tp in affected] + self.futures.dir_failed(path)
        logger.error("Log directory %s is offline with %d logs: %s", path, len(affected), error)
        if not self.live_dirs:
            paths = ", ".join(str(each.path) for each in self.dirs)
            logger.critical("Shutdown broker because all log dirs in %s have failed", paths)
        self._take_offline(path, error, affected, logs)

    def fail_late(self, tp: TopicPartition) -> None:
        """Takes the partition's log offline if it was moved into a directory that failed meanwhile."""
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
        """A file of the partition's log could not be read or written: its directory goes offline. Any thread."""
        place = self._places.get(tp)
        if place is not None:
            self.fail_dir(place.log_dir.path, error)

    # ---- stop ----

    def shutdown(self, broker_epoch: int = -1) -> None:
        """Closes all logs cleanly: no more appends, indexes cut, everything synced, snapshots, checkpoints, then the
        marker. Blocking."""
        with self.lock:
            if self._closed:
                return
            self._closed = True
            by_dir: dict[Path, list[PartitionLog]] = {log_dir.path: [] for log_dir in self.dirs}
            for tp, log in self._logs.items():
                by_dir[self._places[tp].log_dir.path].append(log)
            for future in self.futures.all().values():
                by_dir[future.place.log_dir.path].append(future.log)
        for task in self._tasks:
            task.cancel()
        self.cleaner.shutdown()
        self._segments.shutdown(wait=True)
        for workers in self._workers.values():
            workers.stop()
        unclean: set[Path] = set()
        threads = self.config.get_int("num.recovery.threads.per.data.dir")
        with ThreadPoolExecutor(max_workers=max(1, threads * len(self.dirs)), thread_name_prefix="log-closing") as pool:
            for log_dir, failures in [
                (log_dir, list(pool.map(_close_log, by_dir[log_dir.path]))) for log_dir in self.live_dirs
            ]:
                for error in filter(None, failures):
                    self.fail_dir(log_dir.path, error)
                    unclean.add(log_dir.path)
        unclean |= self.checkpoint_recovery_points() | self.checkpoint_log_starts() | self.checkpoint_high_watermarks()
        for log_dir in self.dirs:
            if log_dir.failure is None and log_dir.path not in unclean:
                try:
                    log_dir.write_clean_shutdown_marker(broker_epoch)
                except OSError as error:
                    self.fail_dir(log_dir.path, error)
            log_dir.release()
        with self.lock:
            # Descriptors and memory go with the logs, not with the last reference to the broker that had them.
            self._logs.clear()
            self._by_id.clear()
            self._places.clear()
            self.futures.clear()
        self.events = None
        logger.info("Shutdown of the log manager complete")


def _start_to_keep(log: PartitionLog) -> int | None:
    """The log start for the checkpoint; None when it is that of the first segment."""
    segments = log.segments()
    offset = log.log_start_offset
    return offset if not segments or offset > segments[0][0] else None


def _flush(log: PartitionLog) -> None:
    log.flush()


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
