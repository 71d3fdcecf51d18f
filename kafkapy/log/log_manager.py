"""Every partition log of this broker: loading, creating, deleting, flushing, retention. Source: kafka.log.LogManager.

manager = LogManager(config, backends={"local": LocalBackend()}, events=queue, scheduler=scheduler)
manager.acquire()                     # locks the directories
manager.load()                        # recovery; blocking
manager.start()                       # background work
log = manager.get_or_create(TopicPartition("orders", 0), topic_id, config)
manager.shutdown(broker_epoch)
"""

from __future__ import annotations

import errno
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol

from kafkapy._speedups.event_queue import EventQueue
from kafkapy._speedups.partition_log import PartitionLog
from kafkapy.config.topic import LogConfig
from kafkapy.errors import error_for
from kafkapy.log.backends.base import StorageBackend
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.cleaner import LogCleaner
from kafkapy.log.loader import load_log, read_topic_id, write_topic_id
from kafkapy.log.log_dir import LogDir, LogDirError
from kafkapy.log.retention import apply_retention
from kafkapy.types import ZERO_UUID, TopicPartition, uuid_to_string

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

__all__ = ["LogManager", "Scheduler", "parse_directory_name"]

logger = logging.getLogger("kafka.log.LogManager")

KAFKA_STORAGE_ERROR = 56
INCONSISTENT_TOPIC_ID = 103
DELETE_SUFFIX = "-delete"
NEVER = (1 << 63) - 1
LOADS_AT_ONCE = 16
"""Logs that a recovery thread loads in one piece of work."""
NOT_THE_DISK = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Failures that say nothing about a directory."""


class Scheduler(Protocol):
    """The part of KafkaScheduler that is used here; a plain function runs on a worker thread."""

    def schedule(self, name: str, fn: Callable[[], Any], delay_ms: int = 0, period_ms: int = -1) -> Any:
        """Runs fn after delay_ms, then every period_ms after the end of a run (-1: once)."""


def parse_directory_name(name: str) -> TopicPartition | None:
    """The partition a directory is named after ("orders-0"); None when the name is no partition's."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isdigit() or not number.isascii():
        return None
    return TopicPartition(topic, int(number))


class LogManager:
    """Owns the log directories and all PartitionLogs of the broker, under one lock that is held for table work only,
    except that creating
    and deleting one log holds it through a few file calls, so that no partition is made twice.

    `load`, `get_or_create`, `delete` and `shutdown` block on files: callers run them on worker threads. The `on_...`
    methods take
    the data plane's events on the control loop and return at once.
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
    ) -> None:
        self.config = config
        self.events = events
        self.dirs = [LogDir(Path(path).absolute()) for path in config.log_dirs]
        self._backends = dict(backends) if backends is not None else {"local": LocalBackend()}
        local = self._backends.get("local")
        if isinstance(local, LocalBackend) and local.later is None and scheduler is not None:
            local.later = self._later
        self._scheduler = scheduler
        self._topic_config = topic_config or (lambda topic: LogConfig.create(config))
        self._on_log_dir_failure = on_log_dir_failure
        self._lock = RLock()
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._by_id: dict[int, PartitionLog] = {}
        # The backend that has the log; the configuration may name another one by now.
        self._places: dict[TopicPartition, tuple[LogDir, str, StorageBackend]] = {}
        self._counts = {log_dir.path: 0 for log_dir in self.dirs}
        self._last_flush: dict[TopicPartition, float] = {}
        self._tasks: list[Any] = []
        # Its own threads: a produce that waits for a segment must not wait behind a slow flush.
        self._segments = ThreadPoolExecutor(max_workers=2, thread_name_prefix="kafka-log-segment")
        self._closed = False
        self.cleaner = LogCleaner(lambda: self.config, self.logs, self.dir_of, self._cleaning_failed)
        self._cleaner_runs = False

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
                log_dir.failure = error
                logger.error("Log directory %s cannot be used: %s", log_dir.path, error.strerror)
        if not self.live_dirs:
            reason = self.dirs[0].failure.strerror if self.dirs and self.dirs[0].failure else "none is configured"
            where = ", ".join(str(log_dir.path) for log_dir in self.dirs)
            raise LogDirError(f"No log directory can be used ({where}): {reason}.")

    def load(self) -> int:
        """Loads the logs of all directories, each with num.recovery.threads.per.data.dir threads; how many.
        Blocking."""
        started = time.monotonic()
        threads = self.config.get_int("num.recovery.threads.per.data.dir")
        recovered = 0
        pools = []
        for log_dir in self.live_dirs:
            pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix=f"kafka-recovery-{log_dir.path.name}")
            pools.append((log_dir, pool, self._submit_loads(log_dir, pool)))
        for log_dir, pool, futures in pools:
            for future in futures:
                segments, failures = future.result()
                recovered += segments
                for error in failures:
                    self.fail_dir(log_dir.path, error)
            pool.shutdown()
        seconds = time.monotonic() - started
        logger.info("Loaded %d logs (%d segments recovered) in %d ms", len(self._logs), recovered, seconds * 1000)
        return len(self._logs)

    def _submit_loads(self, log_dir: LogDir, pool: ThreadPoolExecutor) -> list[Any]:
        try:
            clean = log_dir.take_clean_shutdown_marker()
            offsets = log_dir.read_offsets()
            names = [(name, backend) for backend in self._persistent() for name in backend.list_logs(log_dir.path)]
        except OSError as error:
            self.fail_dir(log_dir.path, error)
            return []
        if not clean and names:
            logger.warning("Log directory %s was not closed cleanly: its logs are recovered", log_dir.path)
        jobs: list[Callable[[], int]] = []
        for name, backend in names:
            if name.endswith(DELETE_SUFFIX):
                jobs.append(partial(self._finish_delete, log_dir, backend, name))
                continue
            tp = parse_directory_name(name)
            if tp is None:
                logger.warning("%s in %s is no partition's directory and is left alone", name, log_dir.path)
                continue
            jobs.append(partial(self._load_one, log_dir, backend, name, tp, clean, offsets))
        starts = range(0, len(jobs), LOADS_AT_ONCE)
        return [pool.submit(_run_all, jobs[start : start + LOADS_AT_ONCE]) for start in starts]

    def _load_one(
        self,
        log_dir: LogDir,
        backend: StorageBackend,
        name: str,
        tp: TopicPartition,
        clean: bool,
        offsets: tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int], Mapping[TopicPartition, int]],
    ) -> int:
        recovery_points, log_starts, high_watermarks = offsets
        storage = backend.open_log(log_dir.path, name, create=False)
        try:
            topic_id = read_topic_id(storage)
        except ValueError as error:
            raise OSError(5, f"{tp}: {error}") from None
        log, report = load_log(
            storage,
            tp,
            self._topic_config(tp.topic),
            events=self.events,
            topic_id=topic_id,
            clean=clean,
            recovery_point=recovery_points.get(tp, 0),
            log_start_offset=log_starts.get(tp, 0),
            high_watermark=high_watermarks.get(tp, 0),
            producer_id_expiration_ms=self._producer_expiration_ms(),
        )
        with self._lock:
            other = self._places.get(tp)
            if other is not None:
                raise OSError(17, f"{tp} is in two log directories: {other[0].path} and {log_dir.path}")
            self._add(tp, log, log_dir, name, backend)
        return report.recovered_segments

    def _finish_delete(self, log_dir: LogDir, backend: StorageBackend, name: str) -> int:
        backend.delete_log(log_dir.path, name)
        return 0

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
        with self._lock:
            return dict(self._logs)

    def dir_of(self, tp: TopicPartition) -> Path | None:
        """The log directory that a partition is in, or None."""
        place = self._places.get(tp)
        return place[0].path if place else None

    def get_or_create(
        self, tp: TopicPartition, topic_id: uuid.UUID = ZERO_UUID, config: LogConfig | None = None
    ) -> PartitionLog:
        """The partition's log, made on the directory with the fewest logs if there is none. Blocking.

        InconsistentTopicIdError when the log belongs to an earlier topic of that name; KafkaStorageError when no
        directory works.
        """
        with self._lock:
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
            live = self.live_dirs
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
                    producer_id_expiration_ms=self._producer_expiration_ms(),
                )
            except OSError as error:
                if error.errno in NOT_THE_DISK:
                    raise error_for(KAFKA_STORAGE_ERROR, f"{tp} cannot be created: {error.strerror}") from error
                self.fail_dir(log_dir.path, error)
                continue
            self._add(tp, log, log_dir, name, backend)
            logger.info("Created log for partition %s in %s", tp, log_dir.path)
            return log

    def delete(self, tp: TopicPartition, *, delay_ms: int | None = None) -> bool:
        """Takes the partition's log away: its directory is renamed now and removed after file.delete.delay.ms. False
        when there is none. Blocking."""
        with self._lock:
            log = self._logs.pop(tp, None)
            if log is None:
                return False
            self._by_id.pop(log.id, None)
            self._last_flush.pop(tp, None)
            log_dir, name, backend = self._places.pop(tp)
            self._counts[log_dir.path] -= 1
            log.mark_deleted()
            log.storage.retire()
            self._forget_cleaned(log_dir.path, tp)
            # Kafka's name; cut so that a long topic name still fits in 255 bytes.
            suffix = f".{uuid.uuid4().hex}{DELETE_SUFFIX}"
            renamed = f"{name[: 255 - len(suffix)]}{suffix}"
            try:
                backend.rename_log(log_dir.path, name, renamed)
            except OSError as error:
                self.fail_dir(log_dir.path, error)
                return True
        delay = log.config.file_delete_delay_ms if delay_ms is None else delay_ms

        def remove() -> None:
            try:
                log.close()
                backend.delete_log(log_dir.path, renamed)
            except OSError as error:
                self.fail_dir(log_dir.path, error)
            logger.info("Deleted log for partition %s in %s", tp, log_dir.path)

        self._later(remove, delay)
        return True

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

    def _add(
        self, tp: TopicPartition, log: PartitionLog, log_dir: LogDir, name: str, backend: StorageBackend
    ) -> None:
        self._logs[tp] = log
        self._by_id[log.id] = log
        self._places[tp] = (log_dir, name, backend)
        self._counts[log_dir.path] += 1
        self._last_flush[tp] = time.monotonic()

    def _backend(self, config: LogConfig) -> StorageBackend:
        name = config.kafkapy_storage_backend
        backend = self._backends.get(name)
        if backend is None:
            raise error_for(
                KAFKA_STORAGE_ERROR,
                f"No storage backend is named {name!r}; known are {', '.join(sorted(self._backends))}",
            )
        return backend

    def _persistent(self) -> list[StorageBackend]:
        return [backend for backend in self._backends.values() if backend.persistent]

    def _producer_expiration_ms(self) -> int:
        return self.config.get_int("producer.id.expiration.ms")

    def _later(self, function: Callable[[], None], delay_ms: int) -> None:
        if self._scheduler is None or self._closed:
            function()
        else:
            self._scheduler.schedule("kafka-delete-logs", function, delay_ms)

    # ---- the data plane's events (control loop) ----

    def on_segment_wanted(self, handle: int, argument: int = 0, text: bytes = b"") -> None:
        """A log needs its next segment soon, or now."""
        self._on_segment_worker(handle, lambda log: log.prepare_segment())

    def on_segment_rolled(self, handle: int, argument: int = 0, text: bytes = b"") -> None:
        """A log has a new active segment: the closed one is cut to size and, in the background, synced."""
        self._on_segment_worker(handle, self._after_roll)

    def on_log_offline(self, handle: int, argument: int, text: bytes = b"") -> None:
        """A log met a disk error; `argument` is the errno. Its whole directory goes offline."""
        log = self._by_id.get(handle)
        path = self._path_of(log) if log is not None else None
        if path is not None:
            self.fail_dir(path, OSError(argument, text.decode(errors="replace")))

    def _path_of(self, log: PartitionLog) -> Path | None:
        """The directory of this very log; None when it is deleted, even if there is a new one of its name."""
        with self._lock:
            place = self._places.get(TopicPartition(log.topic, log.partition))
            return place[0].path if place is not None and log.id in self._by_id else None

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
            if path is not None:
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
        """Syncs logs whose flush.ms has passed or that hold flush.messages unsynced messages."""
        now = time.monotonic()
        for tp, log in self.logs().items():
            config = log.config
            if config.flush_ms == NEVER and config.flush_messages == NEVER:
                continue
            waited_ms = (now - self._last_flush.get(tp, now)) * 1000
            _, end, _, _, recovery_point = log.offsets()
            if end > recovery_point and (
                waited_ms >= config.flush_ms or log.unflushed_messages >= config.flush_messages
            ):
                self._last_flush[tp] = now
                self._guarded(log, _flush)

    def expire_producers(self) -> None:
        """Forgets idle producers (producer.id.expiration.ms)."""
        now_ms = time.time_ns() // 1_000_000
        for log in self.logs().values():
            log.producer_id_expiration_ms = self._producer_expiration_ms()
            log.expire_producers(now_ms)

    def checkpoint_recovery_points(self) -> None:
        """Writes recovery-point-offset-checkpoint in every directory."""
        self._checkpoint(LogDir.write_recovery_points, lambda log: log.recovery_point)

    def checkpoint_log_starts(self) -> None:
        """Writes log-start-offset-checkpoint: only logs that start above their first segment need an entry."""

        def start(log: PartitionLog) -> int | None:
            segments = log.segments()
            offset = log.log_start_offset
            return offset if not segments or offset > segments[0][0] else None

        self._checkpoint(LogDir.write_log_starts, start)

    def checkpoint_high_watermarks(self) -> None:
        """Writes replication-offset-checkpoint in every directory."""
        self._checkpoint(LogDir.write_high_watermarks, lambda log: log.high_watermark)

    def _checkpoint(
        self, write: Callable[[LogDir, Mapping[TopicPartition, int]], None], value: Callable[[PartitionLog], int | None]
    ) -> None:
        with self._lock:
            placed = [(tp, self._places[tp][0], log) for tp, log in self._logs.items() if log.storage.directory]
        tables: dict[Path, dict[TopicPartition, int]] = {log_dir.path: {} for log_dir in self.dirs}
        for tp, log_dir, log in placed:
            offset = value(log)
            if offset is not None:
                tables[log_dir.path][tp] = offset
        for log_dir in self.live_dirs:
            try:
                write(log_dir, tables[log_dir.path])
            except OSError as error:
                self.fail_dir(log_dir.path, error)

    def fail_dir(self, path: Path, error: OSError) -> None:
        """Takes a directory offline with all its logs: they answer KAFKA_STORAGE_ERROR; other directories live on.
        Any thread."""
        with self._lock:
            log_dir = next((candidate for candidate in self.dirs if candidate.path == path), None)
            if log_dir is None or log_dir.failure is not None:
                return
            log_dir.failure = error
            affected = [tp for tp, place in self._places.items() if place[0] is log_dir]
            logs = [self._logs[tp] for tp in affected]
        logger.error("Log directory %s is offline with %d logs: %s", path, len(affected), error)
        for log in logs:
            log.go_offline(error.errno or 5)
        if self._on_log_dir_failure is not None:
            self._on_log_dir_failure(path, affected)

    def _cleaning_failed(self, tp: TopicPartition, error: OSError) -> None:
        place = self._places.get(tp)
        if place is not None:
            self.fail_dir(place[0].path, error)

    # ---- stop ----

    def shutdown(self, broker_epoch: int = -1) -> None:
        """Closes all logs cleanly: no more appends, indexes cut, everything synced, snapshots, checkpoints, then the
        marker. Blocking."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            by_dir: dict[Path, list[PartitionLog]] = {log_dir.path: [] for log_dir in self.dirs}
            for tp, log in self._logs.items():
                by_dir[self._places[tp][0].path].append(log)
        for task in self._tasks:
            task.cancel()
        self.cleaner.shutdown()
        self._segments.shutdown(wait=True)
        threads = self.config.get_int("num.recovery.threads.per.data.dir")
        with ThreadPoolExecutor(max_workers=max(1, threads * len(self.dirs)), thread_name_prefix="log-closing") as pool:
            for log_dir, failures in [
                (log_dir, list(pool.map(_close_log, by_dir[log_dir.path]))) for log_dir in self.live_dirs
            ]:
                for error in filter(None, failures):
                    self.fail_dir(log_dir.path, error)
        self.checkpoint_recovery_points()
        self.checkpoint_log_starts()
        self.checkpoint_high_watermarks()
        for log_dir in self.dirs:
            if log_dir.failure is None:
                try:
                    log_dir.write_clean_shutdown_marker(broker_epoch)
                except OSError as error:
                    self.fail_dir(log_dir.path, error)
            log_dir.release()
        logger.info("Shutdown of the log manager complete")


def _run_all(jobs: Sequence[Callable[[], int]]) -> tuple[int, list[OSError]]:
    """The sum of what the jobs return, and the failures; one does not keep the others from running."""
    total, failures = 0, []
    for job in jobs:
        try:
            total += job()
        except OSError as error:
            failures.append(error)
    return total, failures


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
