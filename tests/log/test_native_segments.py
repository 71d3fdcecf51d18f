"""Segments made, and syncs done, on the native threads of a log directory: nobody drains the events here."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from log.conftest import config, make_batch

from kafkapy._speedups.base.event_queue import LOG_OFFLINE, SEGMENT_ROLLED, SEGMENT_WANTED, EventQueue
from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.log.workers import LogWorkers
from kafkapy.errors import KafkaStorageError
from kafkapy.log.backends.local import LocalLogStorage
from kafkapy.log.backends.memory import MemoryLogStorage
from kafkapy.log.loader import load_log
from kafkapy.types import TopicPartition

TP = TopicPartition("orders", 0)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.005)


@pytest.fixture
def workers() -> Iterator[tuple[LogWorkers, LogWorkers]]:
    pair = LogWorkers("segments", 2), LogWorkers("flushes", 2)
    yield pair
    for each in pair:
        each.stop()


def opened(storage: Any, workers: tuple[LogWorkers, LogWorkers], events: EventQueue, **keys: Any) -> PartitionLog:
    log, _ = load_log(storage, TP, config(**keys), events=events)
    log.use_workers(*workers)
    log.become_leader(1, 0, [1])
    return log


def waiting(directory: Path) -> list[Path]:
    return list(directory.glob("*.next-segment.deleted"))


def kinds(events: EventQueue) -> list[int]:
    return [kind for kind, *_ in events.drain()]


def test_a_segment_is_made_ahead_of_need_without_the_control_plane(tmp_path: Path, workers: Any) -> None:
    events = EventQueue()
    log = opened(LocalLogStorage(tmp_path), workers, events, segment_bytes=1000)
    for _ in range(30):
        log.append_as_leader(make_batch(value=b"x" * 200), api_version=9)
    eventually(lambda: len(waiting(tmp_path)) <= 1)
    assert len(log.segments()) >= 7
    assert workers[0].threads >= 1
    seen = kinds(events)
    assert SEGMENT_WANTED not in seen
    assert seen.count(SEGMENT_ROLLED) >= 6
    log.close()
    eventually(lambda: not waiting(tmp_path))


@pytest.mark.parametrize("kind", [LocalLogStorage, MemoryLogStorage])
def test_a_storage_that_makes_segments_itself_is_asked_through_the_control_plane(
    tmp_path: Path, workers: Any, kind: type
) -> None:
    made = []

    class Own(kind):  # type: ignore[misc]
        def prepare_segment(self) -> tuple[int, str]:
            made.append(1)
            fd, path = super().prepare_segment()
            return fd, path

    events = EventQueue()
    log = opened(Own(tmp_path if kind is LocalLogStorage else "orders-0"), workers, events, segment_bytes=1000)
    before = len(made)
    for _ in range(3):
        log.append_as_leader(make_batch(value=b"x" * 250), api_version=9)
    assert SEGMENT_WANTED in kinds(events)
    log.prepare_segment()
    assert len(made) == before + 1
    assert workers[0].threads == 0


def test_a_disk_that_makes_no_segment_takes_the_log_offline(tmp_path: Path, workers: Any) -> None:
    events = EventQueue()
    directory = tmp_path / "orders-0"
    directory.mkdir()
    log = opened(LocalLogStorage(directory), workers, events, segment_bytes=1000)
    log.append_as_leader(make_batch(value=b"x" * 250), api_version=9)
    directory.rename(tmp_path / "elsewhere")
    with suppress(KafkaStorageError):  # where the log is offline before the append ends
        log.append_as_leader(make_batch(value=b"x" * 300), api_version=9)
    eventually(lambda: log.offline_errno != 0)
    assert LOG_OFFLINE in kinds(events)


def test_no_descriptor_for_a_segment_is_waited_for(tmp_path: Path, workers: Any) -> None:
    events = EventQueue()
    log = opened(LocalLogStorage(tmp_path), workers, events, segment_bytes=1000)
    log.append_as_leader(make_batch(value=b"x" * 250), api_version=9)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Below what is open already: no file can be opened.
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        log.append_as_leader(make_batch(value=b"x" * 300), api_version=9)
        eventually(lambda: workers[0].threads == 1)
        time.sleep(0.3)
        assert log.offline_errno == 0
        with pytest.raises(OSError, match="Too many open files"):
            os.open("/dev/null", os.O_RDONLY)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    eventually(lambda: len(waiting(tmp_path)) == 1)
    assert log.offline_errno == 0


def test_workers_finish_what_waits_and_take_nothing_after_the_stop(tmp_path: Path, workers: Any) -> None:
    events = EventQueue()
    log = opened(LocalLogStorage(tmp_path), workers, events, segment_bytes=1000)
    log.append_as_leader(make_batch(value=b"x" * 250), api_version=9)
    log.append_as_leader(make_batch(value=b"x" * 300), api_version=9)
    workers[0].stop()
    assert len(waiting(tmp_path)) == 1
    assert workers[0].threads == 0
    log.roll()
    log.append_as_leader(make_batch(value=b"x" * 700), api_version=9)
    assert SEGMENT_WANTED in kinds(events)
    workers[0].stop()


def test_workers_need_a_thread() -> None:
    with pytest.raises(ValueError, match="at least one"):
        LogWorkers("none", 0)
