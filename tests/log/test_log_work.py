"""LogWork: background work that meets disk errors, shortages and deleted logs; delayed removal."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkapy.config.broker import BrokerConfig
from kafkapy.log.dir_scan import Place
from kafkapy.log.log_manager import LogManager
from kafkapy.log.log_work import RETRY_MS, LogWork
from kafkapy.types import TopicPartition

ORDERS = TopicPartition("orders", 0)


class Calls:
    """A scheduler that keeps its calls for the test."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, int, int]] = []
        self._functions: list[Callable[[], Any]] = []

    def schedule(self, name: str, fn: Callable[[], Any], delay_ms: int = 0, period_ms: int = -1) -> None:
        self.waiting.append((name, delay_ms, period_ms))
        self._functions.append(fn)

    def run(self) -> None:
        functions, self._functions, self.waiting = self._functions, [], []
        for each in functions:
            each()


def failing(number: int) -> Callable[..., None]:
    def work(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return work


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[LogManager]:
    dirs = ",".join(str(tmp_path / f"logs{number}") for number in range(2))
    manager = LogManager(BrokerConfig({"broker.id": "1", "log.dirs": dirs}))
    manager.acquire()
    manager.load()
    manager.get_or_create(ORDERS)
    yield manager
    manager.shutdown()


def offline(manager: LogManager) -> list[Path]:
    return [each.path for each in manager.offline_dirs]


def test_a_disk_error_takes_the_logs_directory_offline(manager: Any) -> None:
    log, calls = manager.get(ORDERS), Calls()
    LogWork(manager.table, calls).guarded(log, failing(errno.EIO))
    assert offline(manager) == [manager.dir_of(ORDERS)]
    assert log.offline_errno == errno.EIO
    assert not calls.waiting


def test_a_deleted_log_has_no_work_and_its_errors_are_nobodys(manager: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Not even those of the new log of its name."""
    log, work = manager.get(ORDERS), LogWork(manager.table, None)
    seen: list[Any] = []

    def delete_amid(log: Any) -> None:
        manager.delete(ORDERS, delay_ms=0)
        manager.get_or_create(ORDERS)
        failing(errno.EIO)()

    caplog.clear()
    work.guarded(log, delete_amid)
    assert offline(manager) == []
    assert not [each for each in caplog.records if each.levelname == "ERROR"]
    work.guarded(log, seen.append)
    assert seen == []
    new = manager.get(ORDERS)
    work.guarded(new, seen.append)
    assert seen == [new]


def test_work_that_lacks_descriptors_is_tried_again_later(manager: Any) -> None:
    log, calls, tries = manager.get(ORDERS), Calls(), []

    def work(log: Any) -> None:
        tries.append(log)
        if len(tries) < 3:
            failing(errno.EMFILE)()

    LogWork(manager.table, calls).guarded(log, work)
    for number in (1, 2):
        assert (len(tries), calls.waiting) == (number, [("retry", RETRY_MS, -1)])
        calls.run()
    assert (tries, calls.waiting) == ([log] * 3, [])
    LogWork(manager.table, None).guarded(log, failing(errno.EMFILE))
    manager.table.close()
    LogWork(manager.table, calls).guarded(log, failing(errno.EMFILE))
    assert (offline(manager), calls.waiting) == ([], [])


def test_a_mistake_is_logged_and_hurts_no_directory(manager: Any, caplog: pytest.LogCaptureFixture) -> None:
    def work(log: Any) -> None:
        raise ValueError("no such thing")

    LogWork(manager.table, None).guarded(manager.get(ORDERS), work)
    assert "The background work of" in caplog.text
    assert "no such thing" in caplog.text
    assert offline(manager) == []


def test_a_sync_waits_for_a_thread_while_there_are_some(manager: Any) -> None:
    log, calls = manager.get(ORDERS), Calls()
    synced: list[Any] = []
    LogWork(manager.table, None).flush_later(log, synced.append)
    work = LogWork(manager.table, calls)
    work.flush_later(log, synced.append)
    assert (synced, calls.waiting) == ([], [("flush-log", 0, -1)])
    calls.run()
    assert synced == [log]
    manager.table.close()
    work.flush_later(log, synced.append)
    assert not calls.waiting


def test_files_are_removed_after_the_delay_or_at_once_when_nothing_comes_later(manager: Any) -> None:
    calls, work = Calls(), LogWork(manager.table, None)
    log_dir, _, backend = manager.table.place(ORDERS)
    path = log_dir.path / "old-0.1-delete"

    def remove(work: LogWork, **how: Any) -> bool:
        """Whether the directory is gone at once."""
        path.mkdir(exist_ok=True)
        work.delete_later(Place(log_dir, path.name, backend), 500, **how)
        return not path.exists()

    assert remove(work)
    later = LogWork(manager.table, calls)
    assert not remove(later)
    assert calls.waiting == [("kafka-delete-logs", 500, -1)]
    calls.run()
    assert not path.exists()
    other = next(each for each in manager.dirs if each is not log_dir)
    assert remove(work, successor=other)
    manager.table.fail_dir(other.path, OSError(errno.EIO, "no disk"))
    assert not remove(work, successor=other)
    manager.table.close()
    assert remove(later)
    assert not calls.waiting


def test_a_directory_that_cannot_be_removed_is_of_a_failed_disk(manager: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    place = manager.table.place(ORDERS)
    monkeypatch.setattr(place.backend, "delete_log", failing(errno.EIO))
    manager.delete(ORDERS, delay_ms=0)
    assert offline(manager) == [place.log_dir.path]
