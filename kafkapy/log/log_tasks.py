"""Periodic work on all logs: retention, flushes, checkpoints, expiry of producers.

tasks = LogTasks(config, table, work, checkpoints, scheduler)
tasks.start()
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy.log.log_table import LogTable
from kafkapy.log.log_work import LogWork, Scheduler
from kafkapy.log.offset_checkpoints import OffsetCheckpoints
from kafkapy.log.retention import apply_retention

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

__all__ = ["LogTasks"]

NEVER = (1 << 63) - 1
IDLE_SPACE_MS = 30_000
"""Interval after which a log that has not grown gives back the disk space ahead of its appends."""


class LogTasks:
    """Owns the tasks on the scheduler. The tasks run on worker threads."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        table: LogTable,
        work: LogWork,
        checkpoints: OffsetCheckpoints,
        scheduler: Scheduler | None,
    ) -> None:
        self.cleaner_runs = False
        """Whether retention of compacted logs is left to the cleaner."""
        self._config = config
        self._table = table
        self._work = work
        self._checkpoints = checkpoints
        self._scheduler = scheduler
        self._tasks: list[Any] = []

    def start(self) -> None:
        """Begins the tasks, unless there is no scheduler."""
        if self._scheduler is None:
            return
        config, write = self._config(), self._checkpoints
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
            schedule("kafka-recovery-point-checkpoint", write.write_recovery_points, checkpoint_ms, checkpoint_ms),
            schedule("kafka-log-start-offset-checkpoint", write.write_log_starts, start_ms, start_ms),
            schedule("highwatermark-checkpoint", write.write_high_watermarks, watermark_ms, watermark_ms),
            schedule("PeriodicProducerExpirationCheck", self.expire_producers, expiry_ms, expiry_ms),
        ]
        if config.get_int("kafkapy.log.reserve.bytes"):
            idle = schedule("kafka-log-idle-space", self.release_idle_space, IDLE_SPACE_MS, IDLE_SPACE_MS)
            self._tasks.append(idle)

    def stop(self) -> None:
        """Ends the tasks."""
        for task in self._tasks:
            task.cancel()

    def apply_retention(self) -> int:
        """Deletes segments by retention in all logs; the number of segments.

        Compacted logs are the cleaner's while it runs.
        """
        now_ms = time.time_ns() // 1_000_000
        deleted = 0
        for log in self._table.logs().values():
            if not log.offline_errno and not (self.cleaner_runs and "compact" in log.config.cleanup_policy):

                def work(log: PartitionLog) -> None:
                    nonlocal deleted
                    deleted += apply_retention(log, now_ms)

                self._work.guarded(log, work)
        return deleted

    def flush_dirty_logs(self) -> None:
        """Syncs logs whose flush.ms has passed.

        Where flush.messages is set, the appends have synced the messages already; this moves the recovery point over
        them.
        """
        now = time.monotonic()
        for tp, log in self._table.logs().items():
            config = log.config
            if config.flush_ms == NEVER and config.flush_messages == NEVER:
                continue
            waited_ms = (now - self._table.flushed_at.get(tp, now)) * 1000
            _, end, _, _, recovery_point = log.offsets()
            if end > recovery_point and (waited_ms >= config.flush_ms or end - recovery_point >= config.flush_messages):
                self._table.flushed_at[tp] = now
                self._work.guarded(log, PartitionLog.flush)

    def release_idle_space(self) -> None:
        """Gives back the disk space ahead of appends in idle logs."""
        for log in self._table.logs().values():
            self._work.guarded(log, PartitionLog.release_idle_space)

    def expire_producers(self) -> None:
        """Forgets idle producers (producer.id.expiration.ms)."""
        now_ms = time.time_ns() // 1_000_000
        for log in self._table.logs().values():
            log.producer_id_expiration_ms = self._config().get_int("producer.id.expiration.ms")
            log.expire_producers(now_ms)
