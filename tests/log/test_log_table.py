"""The table of logs: where a new log goes, which paths name a directory, and what the end of a directory brings."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import pytest

from kafkapy.errors import KafkaStorageError, LogDirNotFoundError
from kafkapy.log import log_table
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.dir_scan import Place
from kafkapy.log.log_dir import LogDir, MemoryLogDir
from kafkapy.log.log_table import LogTable
from kafkapy.types import TopicPartition


class Log:
    """A log of a name, which notes its end."""

    number = 0

    def __init__(self, tp: TopicPartition) -> None:
        Log.number += 1
        self.topic, self.partition, self.id = *tp, Log.number
        self.offline: list[int] = []

    def go_offline(self, number: int) -> None:
        self.offline.append(number)


@pytest.fixture
def failed() -> list[tuple[Path, list[TopicPartition]]]:
    return []


@pytest.fixture
def table(tmp_path: Path, failed: list[Any]) -> LogTable:
    dirs = [LogDir(tmp_path / name) for name in ("one", "two", "three")]
    return LogTable(dirs, on_log_dir_failure=lambda path, partitions: failed.append((path, partitions)))


def add(table: LogTable, number: int, log_dir: LogDir) -> Any:
    tp = TopicPartition("t", number)
    log: Any = Log(tp)
    table.add(tp, log, Place(log_dir, str(tp), LocalBackend()))
    return log


def test_a_new_log_goes_where_the_fewest_are(table: LogTable) -> None:
    one, two, three = table.dirs
    tp = TopicPartition("new", 0)
    places = []
    for number in range(7):
        log_dir = table.dir_for(tp)
        assert log_dir is not None
        places.append(log_dir)
        add(table, number, log_dir)
    assert places == [one, two, three, one, two, three, one]
    table.remove(TopicPartition("t", 2))
    table.count(one.path, -3)
    table.count(two.path, 1)
    assert table.dir_for(tp) is one
    table.cordoned = frozenset({one.path})
    assert table.dir_for(tp) is three
    # All are cordoned: the controller has placed it here all the same.
    table.cordoned = frozenset(each.path for each in table.dirs)
    assert table.dir_for(tp) is one
    one.failure = OSError(errno.EIO, "broken")
    assert table.dir_for(tp) is three
    table.close()
    assert table.dir_for(tp) is None


def test_a_preferred_directory_is_taken_once_or_none(table: LogTable, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, three = table.dirs
    tp = TopicPartition("t", 0)
    table.prefer(tp, three.path)
    table.cordoned = frozenset({three.path})
    assert table.dir_for(tp) is three
    three.failure = OSError(errno.EIO, "broken")
    assert table.dir_for(tp) is None, "elsewhere it would not be where it was asked for"
    three.failure = None
    add(table, 0, three)
    assert table.dir_for(tp) is one
    table.prefer(tp, two.path)
    assert table.dir_for(tp) is one, "it is here already"
    monkeypatch.setattr(log_table, "MAX_PREFERRED", 2)
    for number in (1, 2, 3):
        table.prefer(TopicPartition("t", number), two.path)
    assert [table.dir_for(TopicPartition("t", number)) for number in (1, 2, 3)] == [one, two, two]


def test_a_path_has_to_be_that_of_a_directory_that_works(table: LogTable) -> None:
    one = table.dirs[0]
    table.check_dir(one.path)
    with pytest.raises(LogDirNotFoundError, match=r"Log dir /elsewhere is not found in the config\."):
        table.check_dir(Path("/elsewhere"))
    one.failure = OSError(errno.EIO, "broken")
    with pytest.raises(KafkaStorageError, match=f"Log directory {one.path} is offline"):
        table.check_dir(one.path)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, None])
def test_a_failed_directory_takes_its_logs_along_once(
    table: LogTable, failed: list[Any], caplog: pytest.LogCaptureFixture, number: int | None
) -> None:
    one, two, three = table.dirs
    logs = [add(table, each, log_dir) for each, log_dir in enumerate((one, two, one))]
    future: Any = Log(TopicPartition("moving", 0))
    table.future_logs_of = lambda path: [future] if path == one.path else []
    error = OSError("broken") if number is None else OSError(number, "broken")
    for _ in range(2):
        table.fail_dir(one.path, error)
    table.fail_dir(Path("/elsewhere"), error)
    table.log_failed(TopicPartition("none", 0), error)
    affected = [TopicPartition("t", 0), TopicPartition("t", 2)]
    assert failed == [(one.path, affected)]
    assert [each.offline for each in (*logs, future)] == [[number or 5], [], [number or 5], [number or 5]]
    assert (table.offline_dirs, table.live_dirs) == ([one], [two, three])
    assert caplog.record_tuples == [
        ("kafka.log.LogManager", logging.ERROR, f"Log directory {one.path} is offline with 2 logs: {error}")
    ]
    caplog.clear()
    table.log_failed(TopicPartition("t", 1), error)
    assert failed[1:] == [(two.path, [TopicPartition("t", 1)])]
    assert [each.levelno for each in caplog.records] == [logging.ERROR]
    table.fail_dir(three.path, error)
    paths = ", ".join(str(each.path) for each in table.dirs)
    last = caplog.record_tuples[-1]
    assert last[1:] == (logging.CRITICAL, f"Shutdown broker because all log dirs in {paths} have failed")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM])
def test_a_shortage_is_no_failed_directory(table: LogTable, failed: list[Any], number: int) -> None:
    log = add(table, 0, table.dirs[0])
    table.fail_dir(table.dirs[0].path, OSError(number, "short"))
    assert (failed, table.offline_dirs, log.offline) == ([], [], [])


def test_a_log_that_comes_into_a_failed_directory_goes_offline(table: LogTable, failed: list[Any]) -> None:
    one, two, _ = table.dirs
    tp = TopicPartition("t", 0)
    log = add(table, 0, one)
    table.fail_dir(two.path, OSError(errno.EROFS, "read-only"))
    table.fail_late(tp)
    assert log.offline == []
    table.count(two.path, 1)
    table.replaced(tp, Place(two, "t-0", LocalBackend()))
    table.fail_late(tp)
    assert (log.offline, failed[-1]) == ([errno.EROFS], (two.path, [tp]))
    assert table.log_at(tp) == (log, two.path)
    table.fail_late(TopicPartition("none", 0))
    assert len(failed) == 2


def test_only_the_log_that_is_in_the_table_has_a_place(table: LogTable) -> None:
    one, two, _ = table.dirs
    tp = TopicPartition("t", 0)
    old = add(table, 0, one)
    assert (table.path_of(old), table.by_handle(old.id), tp in table) == (one.path, old, True)
    assert table.remove(tp)[0] is old
    assert (table.path_of(old), table.by_handle(old.id), tp in table, table.flushed_at) == (None, None, False, {})
    assert (table.get(tp), table.place(tp), table.dir_of(tp)) == (None, None, None)
    new = add(table, 0, two)
    assert (table.path_of(old), table.path_of(new), list(table.flushed_at)) == (None, two.path, [tp])
    with pytest.raises(KeyError):
        table.log_at(TopicPartition("t", 1))
    assert table.close() == {one.path: [], two.path: [new], table.dirs[2].path: []}
    table.clear()
    assert (table.logs(), table.place(tp), table.by_handle(new.id)) == ({}, None, None)


def test_a_directory_that_is_only_a_name_keeps_nothing(tmp_path: Path) -> None:
    path = tmp_path / "none"
    one, other = MemoryLogDir(path), MemoryLogDir(path)
    for each in (one, other):
        each.acquire()
        each.write_clean_shutdown_marker(3)
        each.write_recovery_points({TopicPartition("t", 0): 5})
        each.write_log_starts({TopicPartition("t", 0): 5})
        each.write_high_watermarks({TopicPartition("t", 0): 5})
        each.forget(TopicPartition("t", 0))
        assert each.take_clean_shutdown_marker()
        assert (each.volume(), each.read_offsets(), each.persistent) == ((-1, -1), ({}, {}, {}), False)
        each.release()
    assert not path.exists()
    assert LogDir(tmp_path).persistent
    total, usable = LogDir(tmp_path).volume()
    assert 0 < usable <= total
