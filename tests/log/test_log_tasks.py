"""The periodic work on logs: which tasks there are and how often they come, and which logs each of them is about."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.topic import LogConfig
from kafkapy.log.log_manager import LogManager
from kafkapy.types import TopicPartition

ORDERS = TopicPartition("orders", 0)
NOW_MS = 1_700_000_000_000
INTERVALS = {
    "log.flush.scheduler.interval.ms": "901",
    "log.flush.offset.checkpoint.interval.ms": "902",
    "log.flush.start.offset.checkpoint.interval.ms": "903",
    "log.retention.check.interval.ms": "904",
    "log.initial.task.delay.ms": "905",
    "producer.id.expiration.check.interval.ms": "906",
    "replica.high.watermark.checkpoint.interval.ms": "907",
    "log.cleaner.enable": "false",
}


class Scheduler:
    """Runs nothing; notes what it is given and what is cancelled."""

    def __init__(self) -> None:
        self.tasks: dict[str, tuple[Callable[[], Any], int, int]] = {}
        self.cancelled: list[str] = []

    def schedule(self, name: str, fn: Callable[[], Any], delay_ms: int = 0, period_ms: int = -1) -> Any:
        self.tasks[name] = fn, delay_ms, period_ms
        return Task(self, name)


class Task:
    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self._scheduler, self._name = scheduler, name

    def cancel(self) -> None:
        self._scheduler.cancelled.append(self._name)


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler()


@pytest.fixture
def manage(log_manager: Callable[..., LogManager], scheduler: Scheduler) -> Callable[..., LogManager]:
    return lambda **keys: log_manager(scheduler, **INTERVALS, **keys)


@pytest.mark.parametrize("reserved", ["0", "1048576"])
def test_each_task_comes_as_often_as_configured_until_the_end(manage: Any, scheduler: Scheduler, reserved: str) -> None:
    manager = manage(kafkapy_log_reserve_bytes=reserved)
    tasks, write = manager.tasks, manager.checkpoints
    assert scheduler.tasks == {}
    manager.start()
    expected: dict[str, Any] = {
        "kafka-log-retention": (tasks.apply_retention, 905, 904),
        "kafka-log-flusher": (tasks.flush_dirty_logs, 901, 901),
        "kafka-recovery-point-checkpoint": (write.write_recovery_points, 902, 902),
        "kafka-log-start-offset-checkpoint": (write.write_log_starts, 903, 903),
        "highwatermark-checkpoint": (write.write_high_watermarks, 907, 907),
        "PeriodicProducerExpirationCheck": (tasks.expire_producers, 906, 906),
    }
    if reserved != "0":
        expected["kafka-log-idle-space"] = (tasks.release_idle_space, 30_000, 30_000)
    assert scheduler.tasks == expected
    assert scheduler.cancelled == []
    manager.shutdown()
    assert scheduler.cancelled == list(expected)


def test_flushes_are_looked_for_every_second_at_least(manage: Any, scheduler: Scheduler) -> None:
    manage(log_flush_scheduler_interval_ms="9223372036854775807").start()
    assert scheduler.tasks["kafka-log-flusher"][1:] == (1000, 1000)


def test_without_a_scheduler_nothing_comes_by_itself(tmp_path: Path) -> None:
    manager = LogManager(BrokerConfig({"log.dirs": str(tmp_path / "logs"), "broker.id": "1"}))
    manager.acquire()
    manager.load()
    manager.start()
    assert (manager.tasks._tasks, manager.tasks.cleaner_runs) == ([], False)
    manager.shutdown()


def fill(manager: Any, batch: Any, policy: str) -> Any:
    """Two closed segments of records that are too old, and an open one."""
    keys = {"cleanup.policy": policy, "retention.ms": "1000"}
    log = manager.get_or_create(TopicPartition(policy.replace(",", "-"), 0), config=LogConfig.create(overrides=keys))
    log.become_leader(1, 0, (1,))
    for _ in range(2):
        log.append_as_leader(batch(timestamp=1000), api_version=9)
        log.roll()
    return log


@pytest.mark.parametrize("cleaner", ["true", "false"])
def test_retention_leaves_compacted_logs_to_a_cleaner_that_runs(manage: Any, batch: Any, cleaner: str) -> None:
    manager = manage(log_cleaner_enable=cleaner, log_cleaner_backoff_ms="600000000")
    manager.cleaner.start = lambda: None  # its threads would do the same at their own time
    logs = {policy: fill(manager, batch, policy) for policy in ("delete", "compact,delete")}
    broken = fill(manager, batch, "delete,compact")
    broken.go_offline(errno.EIO)
    manager.start()
    assert manager.tasks.cleaner_runs == (cleaner == "true")
    deleted = {"true": 2, "false": 4}[cleaner]
    assert manager.tasks.apply_retention() == deleted
    starts = {policy: log.log_start_offset for policy, log in logs.items()}
    assert starts == {"delete": 2, "compact,delete": deleted - 2}
    assert broken.log_start_offset == 0
    assert manager.tasks.apply_retention() == 0


def test_idle_producers_expire_as_configured_now(manage: Any, batch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = manage(producer_id_expiration_ms="5000")
    log = manager.get_or_create(ORDERS)
    log.become_leader(1, 0, (1,))
    assert log.producer_id_expiration_ms == 5000
    log.append_as_leader(batch(producer_id=7, epoch=0, sequence=0, timestamp=NOW_MS), api_version=9)
    # A changed key counts for the logs that are there, and for new ones.
    config = manager.config.with_dynamic({"producer.id.expiration.ms": "3000"})
    manager.update_broker_config(config)
    assert manager.config is config
    other = manager.get_or_create(TopicPartition("later", 0))
    assert [each.producer_id_expiration_ms for each in (log, other)] == [3000, 3000]
    log.producer_id_expiration_ms = 5000
    for passed, left in ((2999, 1), (3000, 0)):
        monkeypatch.setattr(time, "time_ns", lambda passed=passed: (NOW_MS + passed) * 1_000_000)
        manager.tasks.expire_producers()
        assert (len(log.producers()), log.producer_id_expiration_ms) == (left, 3000)
