"""A log tries again when descriptors or memory are short: that is no failed disk, and nothing is refused for good."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from log.conftest import make_batch
from log.file_faults import build

from kafkapy._speedups.log import open_files
from kafkapy.errors import KafkaError, KafkaStorageError

HERE = Path(__file__).parent


def run(tmp_path: Path, directory: Path, stride: int) -> tuple[int, int]:
    root = directory / "shortage"
    root.mkdir()
    environment = {**os.environ, "LD_PRELOAD": str(build(tmp_path)), "PYTHONPATH": str(HERE.parent.parent)}
    command = [sys.executable, str(HERE / "shortage_runner.py"), str(root), str(stride)]
    said = json.loads(subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE).stdout)
    assert not said["failures"], f"{len(said['failures'])} failed:\n" + "\n".join(said["failures"][:10])
    return said["points"], said["runs"]


preloads = pytest.mark.skipif(bool(os.environ.get("KAFKAPY_ASAN")), reason="preloaded libraries in each other's way")


@preloads
def test_every_second_file_operation_fails_for_want_of_descriptors_or_memory(
    tmp_path: Path, fast_directory: Path
) -> None:
    points, runs = run(tmp_path, fast_directory, 2)
    assert points >= 100
    assert runs >= points // 2


@preloads
@pytest.mark.soak
def test_every_file_operation_fails_in_every_way(tmp_path: Path, fast_directory: Path) -> None:
    points, runs = run(tmp_path, fast_directory, 1)
    assert runs == 8 * points


@pytest.fixture
def limited() -> Iterator[Callable[[int, int], None]]:
    """Sets the limit of open segment files, and takes it away in the end."""
    yield open_files.set_limit
    open_files.set_limit(0, 0)


def test_segment_files_beyond_the_limit_are_closed_and_opened_again(
    tmp_path: Path, open_logs: Callable[[Path], Any], limited: Callable[[int, int], None]
) -> None:
    log = open_logs(tmp_path).open(segment_bytes=200)
    before = open_files.open_count()
    limited(before + 4, 2)
    for number in range(50):
        log.append_as_leader(make_batch(value=b"%03d" % number * 20))
        assert open_files.open_count() <= before + 5
    assert len(log.segments()) >= 25
    for _ in range(2):
        for number in range(50):
            data = log.read(number, 1 << 16, isolation=2)[0]
            assert b"%03d" % number * 20 in data
            assert open_files.open_count() <= before + 5
    log.flush()
    log.close()


def test_a_file_that_is_read_stays_open_whatever_the_limit(
    tmp_path: Path, open_logs: Callable[[Path], Any], limited: Callable[[int, int], None]
) -> None:
    """Many threads read segments and the end of many logs, far over the limit; none meets a closed file."""
    places = [tmp_path / str(number) for number in range(12)]
    for place in places:
        place.mkdir()
    logs = [open_logs(made).open(segment_bytes=300) for made in places]
    for log in logs:
        for number in range(30):
            log.append_as_leader(make_batch(value=b"%03d" % number * 20))
    limited(6, 4)
    stop = time.monotonic() + 2
    wrong: list[object] = []
    rounds = [0] * 6

    def work(which: int) -> None:
        random = Random(which)
        try:
            while time.monotonic() < stop and not wrong:
                log = random.choice(logs)
                number = random.randrange(30)
                try:
                    if random.random() < 0.2:
                        log.append_as_leader(make_batch(value=b"end"))
                    elif b"%03d" % number * 20 not in log.read(number, 1 << 16, isolation=2)[0]:
                        wrong.append((log, number))
                except KafkaError as error:
                    assert error.retriable
                open_files.close_idle(3)
                rounds[which] += 1
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(which,)) for which in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert min(rounds) > 0
    assert not any(log.offline_errno for log in logs)


def test_a_file_that_cannot_be_opened_for_a_moment_is_no_failed_disk(
    tmp_path: Path, open_logs: Callable[[Path], Any], limited: Callable[[int, int], None]
) -> None:
    """Only EIO takes a log offline: what is refused for another reason is there again when that is over."""
    log = open_logs(tmp_path).open(segment_bytes=200)
    limited(open_files.open_count() + 4, 2)
    for number in range(50):
        log.append_as_leader(make_batch(value=b"%03d" % number * 20))
    first = min(tmp_path.rglob("*.log"))
    away = first.rename(first.with_suffix(".away"))
    with pytest.raises(KafkaStorageError):
        log.read(0, 1 << 16, isolation=2)
    assert log.offline_errno == 0
    assert b"049" * 20 in log.read(49, 1 << 16, isolation=2)[0]
    log.append_as_leader(make_batch(value=b"more"))
    away.rename(first)
    assert b"000" * 20 in log.read(0, 1 << 16, isolation=2)[0]
    log.close()
