"""Disk space that a segment holds ahead of its appends: when it is there, and that it is given back."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from log.moving import open_manager
from log.test_threads import run as at_once
from system.slow_files import TRUNCATE, SlowFiles

from kafkapy._speedups.records.reservation import most_reserved, set_reservation
from kafkapy.config.topic import LogConfig
from kafkapy.errors import KafkaError
from kafkapy.log.backends.memory import MemoryBackend
from kafkapy.log.loader import load_log
from kafkapy.types import TopicPartition

HERE = Path(__file__).parent
MB = 1 << 20
KEEP_SIZE = 1
MOST = 4 * MB
SECONDS = 3
MOST_OFFSETS = 3000
SLACK = 300_000
"""What a file system takes for its own ends, at most."""


def reserves(directory: Path) -> bool:
    """Whether the file system can hold space beyond a file's size."""
    with (directory / "probe").open("wb") as file:
        done = ctypes.CDLL(None).fallocate(file.fileno(), KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(MB))
        return done == 0 and os.fstat(file.fileno()).st_blocks * 512 >= MB


@pytest.fixture(autouse=True)
def reservation(tmp_path: Path) -> Iterator[None]:
    """As a broker does it, but also where it doesn't pay or little space is free."""
    if not reserves(tmp_path):
        pytest.skip("this file system reserves no space beyond a file's size")
    before = most_reserved()
    set_reservation(MOST, least_free=0, anywhere=True)
    yield
    set_reservation(before)


def active(log: Any, logs: Any) -> Path:
    """The file of the newest segment."""
    return logs.directory / f"{log.segments()[-1][0]:020}.log"


def ahead(path: Path) -> int:
    """Bytes on disk beyond the file's size."""
    found = path.stat()
    return found.st_blocks * 512 - found.st_size


def usual(directory: Path, size: int) -> int:
    """The same of a file that somebody else writes: XFS holds some space for each."""
    path = directory / "usual"
    with path.open("wb", buffering=0) as file:
        for _ in range(size // 100_000):
            file.write(bytes(100_000))
        return ahead(path)


def fill(log: Any, batch: Any, size: int) -> int:
    """Appends so many bytes; the offset behind them."""
    data = batch(1, value=bytes(100_000))
    for _ in range(-(-size // len(data))):
        log.append_as_leader(data, api_version=9)
    return int(log.log_end_offset)


def test_space_is_reserved_from_one_megabyte_on(logs: Any, batch: Any, read_all: Any) -> None:
    log = logs.open()
    fill(log, batch, MB - 150_000)
    path = active(log, logs)
    assert ahead(path) <= usual(logs.directory, MB - 150_000) + SLACK
    end = fill(log, batch, 150_000)
    # As much as the file has.
    assert MB // 2 < ahead(path) < 2 * MB
    end = fill(log, batch, 16 * MB)
    assert ahead(path) < MOST + MB
    assert path.stat().st_size == log.segments()[-1][1]
    assert len(read_all(log, max_bytes=MB)) == end


def test_small_segments_reserve_nothing(logs: Any, batch: Any) -> None:
    log = logs.open()
    fill(log, batch, MB // 2)
    assert ahead(active(log, logs)) <= usual(logs.directory, MB // 2) + SLACK


@pytest.mark.parametrize("how", ["roll", "flush of a rolled one", "close", "truncation", "truncation of all", "idle"])
def test_space_is_given_back(logs: Any, batch: Any, read_all: Any, how: str) -> None:
    log = logs.open()
    end = fill(log, batch, 3 * MB)
    path = active(log, logs)
    assert ahead(path) > MB
    before = read_all(log, max_bytes=MB)
    if how == "roll":
        log.roll()
        log.seal_segments()
    elif how == "flush of a rolled one":
        log.roll()
        log.flush()
    elif how == "close":
        logs.stop(log)
        log = logs.open()
    elif how.startswith("truncation"):
        end = 0 if how.endswith("all") else end - 5
        log.become_follower(2, 1)
        log.truncate_to(end)
    else:
        log.release_idle_space()
        log.release_idle_space()
    assert ahead(path) < SLACK
    assert read_all(log, max_bytes=MB) == before[:end]
    # And the log goes on, with space ahead again.
    log.become_leader(1, 3, [1])
    assert max(ahead(active(log, logs)) for _ in range(30) if fill(log, batch, 1)) > MB
    assert len(read_all(log, max_bytes=MB)) == end + 30


def test_a_log_that_grows_is_not_idle(logs: Any, batch: Any) -> None:
    log = logs.open()
    fill(log, batch, 3 * MB)
    path = active(log, logs)
    for _ in range(3):
        fill(log, batch, 1)
        log.release_idle_space()
        assert ahead(path) > MB
    log.release_idle_space()
    assert ahead(path) < SLACK
    log.release_idle_space()


def test_a_start_gives_back_what_a_killed_process_held(logs: Any, batch: Any, read_all: Any) -> None:
    log = logs.open()
    fill(log, batch, 3 * MB)
    log.roll()
    end = fill(log, batch, 3 * MB)
    before = read_all(log, max_bytes=MB)
    paths = sorted(logs.directory.glob("*.log"))[:2]
    assert all(ahead(path) > MB for path in paths)
    del log
    again = logs.open(clean=False)
    assert all(ahead(path) < SLACK for path in paths)
    assert again.log_end_offset == end
    assert [each[2] for each in read_all(again, max_bytes=MB)] == [each[2] for each in before]


def test_a_log_that_is_set_aside_gives_its_space_back(tmp_path: Path, batch: Any) -> None:
    manager = open_manager(tmp_path)
    set_reservation(MOST, least_free=0, anywhere=True)
    tp = TopicPartition("aside", 0)
    log = manager.get_or_create(tp, uuid.UUID(int=1), LogConfig.create())
    log.become_leader(1, 0, [1])
    fill(log, batch, 3 * MB)
    assert manager.set_aside(tp)
    (path,) = (each for each in tmp_path.rglob("aside*/*.log") if each.stat().st_size)
    assert ahead(path) < SLACK
    manager.shutdown()


def test_the_periodic_task_gives_back_the_space_of_idle_logs(tmp_path: Path, batch: Any) -> None:
    tasks: dict[str, tuple[Callable[[], Any], int]] = {}

    class Scheduler:
        def schedule(self, name: str, fn: Callable[[], Any], delay_ms: int = 0, period_ms: int = -1) -> Any:
            tasks[name] = fn, period_ms
            return self

        def cancel(self) -> None:
            return None

    manager = open_manager(tmp_path, scheduler=Scheduler())
    manager.tasks.start()
    set_reservation(MOST, least_free=0, anywhere=True)
    log = manager.get_or_create(TopicPartition("idle", 0), uuid.UUID(int=1), LogConfig.create())
    log.become_leader(1, 0, [1])
    fill(log, batch, 3 * MB)
    (path,) = (each for each in tmp_path.rglob("idle-0/*.log") if each.stat().st_size)
    assert ahead(path) > MB
    work, period_ms = tasks["kafka-log-idle-space"]
    assert 0 < period_ms <= 30_000
    work()
    work()
    assert ahead(path) < SLACK
    manager.shutdown()


def test_nothing_is_reserved_while_the_disk_is_nearly_full(logs: Any, batch: Any) -> None:
    set_reservation(MOST, least_free=1 << 60, anywhere=True)
    log = logs.open()
    fill(log, batch, 3 * MB)
    assert ahead(active(log, logs)) <= usual(logs.directory, 3 * MB) + SLACK


def test_zero_reserves_nothing(logs: Any, batch: Any) -> None:
    set_reservation(0, least_free=0, anywhere=True)
    log = logs.open()
    fill(log, batch, 3 * MB)
    assert ahead(active(log, logs)) <= usual(logs.directory, 3 * MB) + SLACK


def in_memory() -> set[Path]:
    """The files in memory that this process has open; others may be left of earlier tests."""
    files = Path("/proc/self/fd").iterdir()
    return {each for each in files if each.is_symlink() and "memfd:" in str(each.readlink())}


def test_a_log_in_memory_reserves_nothing_and_has_nothing_to_give_back(batch: Any) -> None:
    tp = TopicPartition("t", 0)
    before = in_memory()
    storage = MemoryBackend().open_log(Path("nowhere"), str(tp), create=True)
    log, _ = load_log(storage, tp, LogConfig.create(), clean=True, recovery_point=0, log_start_offset=0)
    log.become_leader(1, 0, [1])
    end = fill(log, batch, 3 * MB)
    log.become_follower(2, 1)
    log.truncate_to(end - 5)
    log.become_leader(1, 2, [1])
    fill(log, batch, 3 * MB)
    for _ in range(3):
        log.release_idle_space()
    made = in_memory() - before
    assert made and sum(map(ahead, made)) < SLACK
    log.close()


@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="preloaded libraries in each other's way")
def test_no_append_is_cut_off_while_space_is_given_back_slowly(tmp_path: Path) -> None:
    slow = SlowFiles(tmp_path / "slow", tmp_path / "logs")
    slow.be_slow(".log", 1500, TRUNCATE)
    path = os.pathsep.join(map(str, (HERE.parent, HERE.parents[1])))
    environment = os.environ | slow.environment | {"PYTHONPATH": path}
    command = [sys.executable, str(HERE / "idle_space_runner.py"), str(tmp_path / "logs")]
    subprocess.run(command, check=True, env=environment, timeout=240)
    assert slow.hits == 1


def test_space_is_given_back_beside_appends_rolls_and_truncations(logs: Any, batch: Any) -> None:
    """Whatever comes between, each append that was acknowledged is read again, and nothing else."""
    set_reservation(4000, start=300, least_free=0, anywhere=True)
    log = logs.open(segment_bytes=20_000, index_interval_bytes=200, segment_index_bytes=4000, file_delete_delay_ms=0)
    until = time.monotonic() + SECONDS
    taken: list[dict[int, bytes]] = [{}, {}]
    released = 0

    def repeated(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            while time.monotonic() < until:
                work()

        return run

    def appender(which: int) -> Any:
        number = 0

        def work() -> None:
            nonlocal number
            if log.log_end_offset - log.log_start_offset > MOST_OFFSETS:
                time.sleep(0.001)
                return
            number += 1
            value = b"%d-%06d" % (which, number) + bytes(number % 600)
            taken[which][log.append_as_leader(batch(1, value=value), api_version=9)[0]] = value
            if not number % 2:
                time.sleep(0.0002)  # idle

        return work

    def release() -> None:
        nonlocal released
        log.release_idle_space()
        log.release_idle_space()
        released += 1

    def maintain() -> None:
        log.roll()
        log.seal_segments()
        log.flush()
        time.sleep(0.01)

    def read() -> None:
        try:
            log.read(log.log_start_offset, 1 << 16, isolation=0)
        except KafkaError:
            time.sleep(0.001)

    at_once([repeated(work) for work in (appender(0), appender(1), release, release, maintain, read)])
    assert released > 10
    wanted = taken[0] | taken[1]
    assert sorted(wanted) == list(range(log.log_end_offset))
    for again in (log, logs.open(clean=False)):
        offset = 0
        while offset < len(wanted):
            data = again.read(offset, 1 << 16)[0]
            while data:
                size = int.from_bytes(data[8:12], "big") + 12
                if size > len(data):
                    break
                assert wanted[offset] in data[:size]
                offset, data = offset + 1, data[size:]
