"""Moves between log directories when disks fail, are away and come back, and a kill at any point."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import signal
import sys
import tempfile
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from log.moving import (
    TOPIC_ID,
    TP,
    directories,
    elsewhere,
    everything,
    lead,
    log_config,
    managers,
    move,
    open_manager,
    records,
)

from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.future_logs import Progress
from kafkapy.log.log_manager import LogManager
from kafkapy.types import TopicPartition


@pytest.fixture
def manage(tmp_path: Path) -> Iterator[Callable[..., LogManager]]:
    yield from managers(tmp_path)


# --- what a disk that was away brings back ---------------------------------------------------------------------------


def leave_future_log(manager: LogManager, batch: Any) -> Path:
    """Two batches are copied, of three; then the broker stops and the future log's disk, returned, is empty."""
    log = lead(manager)
    for number in range(3):
        log.append_as_leader(batch(2, value=b"old%d" % number), api_version=9)
    target = elsewhere(manager)
    manager.futures.create(TP, target)
    while manager.futures.position(TP) < 4:
        assert manager.futures.advance(TP, 100) is Progress.COPYING
    manager.shutdown()
    target.rename(target.with_name("hidden"))
    target.mkdir()
    return target


def bring_back(manager: LogManager, target: Path) -> None:
    manager.shutdown()
    assert not list(target.glob("t-0*"))
    shutil.rmtree(target)
    target.with_name("hidden").rename(target)


def test_a_future_log_of_a_deleted_topic_is_not_the_new_ones(manage: Any, batch: Any) -> None:
    manager = manage()
    target = leave_future_log(manager, batch)
    manager = manage()
    assert manager.delete(TP)
    log = manager.get_or_create(TP, uuid.UUID(int=78), log_config())
    log.become_leader(1, 0, [1])
    for _ in range(3):
        log.append_as_leader(batch(value=b"new"), api_version=9)
    bring_back(manager, target)
    manager = manage()
    assert manager.futures.get(TP) is None
    assert {record.value for record in records(manager.get(TP))} == {b"new"}
    assert len(directories(manager)) == 1


def test_a_future_log_without_a_log_is_no_part_of_a_new_partition(manage: Any, batch: Any) -> None:
    """As when the log's own disk was taken away for good."""
    manager = manage()
    target = leave_future_log(manager, batch)
    manager = manage()
    assert manager.delete(TP)
    bring_back(manager, target)
    manager = manage()
    assert manager.get(TP) is None
    assert manager.futures.get(TP) is not None
    log = lead(manager)
    assert manager.futures.get(TP) is None
    log.append_as_leader(batch(value=b"new"), api_version=9)
    manager.futures.create(TP, elsewhere(manager))
    assert move(manager) is Progress.DONE
    assert {record.value for record in records(log)} == {b"new"}


def test_a_future_log_loses_what_its_leader_epochs_say_is_another_history(manage: Any, batch: Any) -> None:
    manager = manage()
    target = leave_future_log(manager, batch)
    manager = manage()
    log = manager.get(TP)
    log.become_follower(2, 1)
    assert manager.truncate_to(TP, 2)
    log.become_leader(1, 2, [1])
    for number in range(4):
        log.append_as_leader(batch(2, value=b"new%d" % number), api_version=9)
    expected = everything(log)
    bring_back(manager, target)
    manager = manage()
    assert manager.futures.position(TP) == 2
    assert move(manager) is Progress.DONE
    assert everything(manager.get(TP)) == expected


def test_a_log_that_never_held_a_record_gives_way(manage: Any, batch: Any) -> None:
    """Its disk failed while it was made, so it was made on another one, where it was used."""
    manager = manage()
    log = lead(manager)
    log.append_as_leader(batch(), api_version=9)
    expected = everything(log)
    used = manager.dir_of(TP)
    unused = elsewhere(manager)
    manager.shutdown()
    (unused / "t-0").mkdir()
    (unused / "t-0" / f"{0:020d}.log").touch()
    manager = manage()
    assert manager.dir_of(TP) == used
    assert everything(manager.get(TP)) == expected
    assert directories(manager) == [f"{used.name}/t-0"]


def test_a_topic_id_that_a_power_failure_made_zeros_is_not_known(manage: Any, batch: Any) -> None:
    manager = manage()
    lead(manager).append_as_leader(batch(), api_version=9)
    path = manager.dir_of(TP) / "t-0" / "partition.metadata"
    manager.shutdown()
    path.write_bytes(bytes(path.stat().st_size))
    manager = manage()
    assert manager.get(TP).topic_id == bytes(16)
    assert lead(manager).topic_id == TOPIC_ID.bytes
    assert manage().get(TP).topic_id == TOPIC_ID.bytes


def test_a_rename_that_may_not_outlive_a_power_failure_is_taken_back(
    manage: Any, batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the disk could come back with the log under its old name, beside the one that has taken its place."""
    manager = manage()
    log = lead(manager)
    log.append_as_leader(batch(), api_version=9)
    expected = everything(log)
    source, target = manager.dir_of(TP), elsewhere(manager)
    rename = LocalBackend.rename_log

    def fail(self: LocalBackend, log_dir: Path, old: str, new: str) -> None:
        rename(self, log_dir, old, new)
        if log_dir == source:
            raise OSError(5, "the directory cannot be synced")

    monkeypatch.setattr(LocalBackend, "rename_log", fail)
    manager.futures.create(TP, target)
    assert move(manager) is Progress.ENDED
    monkeypatch.undo()
    assert log.offline_errno == 5
    assert [log_dir.path for log_dir in manager.offline_dirs] == [source]
    assert directories(manager)[0] == f"{source.name}/t-0"
    assert len(directories(manager)) == 2
    manager = manage()
    assert manager.dir_of(TP) == source
    assert move(manager) is Progress.DONE
    assert everything(manager.get(TP)) == expected


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_what_cannot_be_read_is_the_fault_of_the_logs_own_disk(manage: Any, batch: Any, number: int) -> None:
    manager = manage()
    log = lead(manager)
    log.append_as_leader(batch(), api_version=9)
    home = manager.dir_of(TP)
    manager.futures.create(TP, elsewhere(manager))
    future = manager.futures.get(TP)

    class Unreadable:
        """The copy of a log whose file cannot be read."""

        def __init__(self) -> None:
            self.log = log

        def copy(self, max_bytes: int) -> tuple[int, int, int]:
            raise OSError(number, os.strerror(number))

        def stop(self) -> None:
            """Nothing is under way."""

    future.copy = Unreadable()
    assert manager.futures.advance(TP) is Progress.ENDED
    if number == errno.EIO:
        assert [each.path for each in manager.offline_dirs] == [home]
        assert log.offline_errno == errno.EIO
    else:
        assert (manager.offline_dirs, log.offline_errno) == ([], 0)
        assert manager.futures.get(TP) is future


def test_a_disk_error_of_the_future_log_is_not_the_logs(manage: Any, batch: Any) -> None:
    manager = manage()
    log = lead(manager)
    log.append_as_leader(batch(), api_version=9)
    target = elsewhere(manager)
    manager.futures.create(TP, target)
    manager.futures.get(TP).log.go_offline(errno.EIO)
    assert manager.futures.advance(TP) is Progress.ENDED
    assert [each.path for each in manager.offline_dirs] == [target]
    assert manager.futures.get(TP) is None
    log.append_as_leader(batch(), api_version=9)


def test_the_tables_are_free_while_directories_are_renamed(
    manage: Any, batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control loop wants them; a disk may take its time."""
    manager = manage()
    log = lead(manager)
    log.append_as_leader(batch(), api_version=9)
    rename = LocalBackend.rename_log
    seen: list[int] = []

    def look(self: LocalBackend, log_dir: Path, old: str, new: str) -> None:
        thread = threading.Thread(target=lambda: seen.append(len(manager.logs())))
        thread.start()
        thread.join(20)
        rename(self, log_dir, old, new)

    monkeypatch.setattr(LocalBackend, "rename_log", look)
    manager.futures.create(TP, elsewhere(manager))
    count = len(seen)
    assert move(manager) is Progress.DONE
    assert seen[count:] == [1, 1]


@pytest.mark.parametrize("failing", ("source", "target"))
@pytest.mark.parametrize("at", ("-delete", "t-0"))
def test_a_directory_fails_while_directories_are_renamed(
    manage: Any, batch: Any, monkeypatch: pytest.MonkeyPatch, failing: str, at: str
) -> None:
    told: list[tuple[Path, list[TopicPartition]]] = []
    manager = manage(on_log_dir_failure=lambda path, partitions: told.append((path, partitions)))
    log = lead(manager)
    log.append_as_leader(batch(), api_version=9)
    expected = everything(log)
    source, target = manager.dir_of(TP), elsewhere(manager)
    fails = source if failing == "source" else target
    rename = LocalBackend.rename_log

    def fail(self: LocalBackend, log_dir: Path, old: str, new: str) -> None:
        if new.endswith(at):
            manager.table.fail_dir(fails, OSError(5, "gone"))
        rename(self, log_dir, old, new)

    monkeypatch.setattr(LocalBackend, "rename_log", fail)
    manager.futures.create(TP, target)
    assert move(manager) is Progress.DONE
    monkeypatch.undo()
    assert manager.dir_of(TP) == target
    assert manager.futures.get(TP) is None
    assert log.offline_errno == 5
    assert TP in told[-1][1]
    assert (target / "t-0").is_dir()
    manager = manage()
    assert manager.dir_of(TP) == target
    assert everything(manager.get(TP)) == expected
    assert directories(manager) == [f"{target.name}/t-0"]


def test_a_partition_is_deleted_as_soon_as_it_has_moved(
    manage: Any, batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = manage()
    lead(manager).append_as_leader(batch(), api_version=9)
    fail_late = manager.table.fail_late

    def delete_first(tp: TopicPartition) -> None:
        assert manager.delete(tp)
        fail_late(tp)

    monkeypatch.setattr(manager.table, "fail_late", delete_first)
    manager.futures.create(TP, elsewhere(manager))
    assert move(manager) is Progress.DONE
    assert directories(manager) == []
    assert manager.cleaner.manager.claim(TP), "it is paused for ever"


def test_a_stop_amid_a_move_lets_go_of_all_files(manage: Any, batch: Any, tmp_path: Path) -> None:
    manager = manage()
    log = lead(manager)
    for _ in range(4):
        log.append_as_leader(batch(), api_version=9)
    source, target = manager.dir_of(TP), elsewhere(manager)
    manager.futures.create(TP, target)
    assert manager.futures.advance(TP, 100) is Progress.COPYING
    del log
    manager.shutdown()
    gc.collect()
    opened = [os.path.realpath(fd) for fd in Path("/proc/self/fd").iterdir()]
    assert [path for path in opened if path.startswith(str(tmp_path))] == []
    for path in (source, target):
        manager.table.fail_dir(path, OSError(5, "gone"))
    assert manager.offline_dirs


# --- a kill at every point ------------------------------------------------------------------------------------------


def run_and_die(root: Path, die_at: int, acknowledged: int, batches: list[bytes]) -> None:
    """In a process of its own: a move with appends in between, until the file operation of number `die_at`."""
    manager = open_manager(root)
    log = lead(manager)
    seen = 0

    def hook(event: str, arguments: Any) -> None:
        nonlocal seen
        if event not in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"):
            return
        if not str(arguments[0]).startswith(str(root)):
            return
        seen += 1
        if seen == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def append(count: int) -> None:
        for _ in range(count):
            log.append_as_leader(batches.pop(0), api_version=9)
            os.write(acknowledged, b".")

    append(8)
    sys.addaudithook(hook)
    manager.futures.create(TP, elsewhere(manager))
    append(4)
    log.delete_records(3)
    move(manager, step=150, steps=3)
    append(6)
    assert move(manager) is Progress.DONE
    append(2)
    os.write(acknowledged, b"!")


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory that needs no disk: a kill loses nothing that was written."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        yield Path(name)


def test_a_kill_at_any_file_operation_leaves_one_right_log(memory: Path, batch: Any) -> None:
    die_at, finished, states = 0, False, set()
    while not finished:
        die_at += 1
        resume = die_at % 2 == 0
        root = memory / str(die_at)
        batches = [batch(2, value=b"%04d" % number) for number in range(20)]
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                run_and_die(root, die_at, tell, list(batches))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(tell)
        with os.fdopen(told, "rb") as pipe:
            said = pipe.read()
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
        finished = said.endswith(b"!")
        count = said.count(b".")

        left = {path.parent.name + path.name[3:4] + path.name[-6:] for path in root.glob("*/t-0*")}
        states.add(tuple(sorted(each[-6:] for each in left)))
        manager = open_manager(root)
        log = manager.get(TP)
        assert log is not None, (die_at, left)
        log.become_leader(1, 1, [1])
        if manager.futures.get(TP) is not None:
            if resume:
                assert move(manager) is Progress.DONE
            else:
                assert manager.futures.remove(TP)
        assert len(directories(manager)) == 1, (die_at, directories(manager))
        # The last append may have been written and not acknowledged.
        assert count * 2 <= log.log_end_offset <= count * 2 + 2
        found = [(r.offset, r.value) for r in records(log)]
        assert found == [(n, b"%04d" % (n // 2)) for n in range(log.log_start_offset, log.log_end_offset)]
        log.append_as_leader(batch(value=b"after"), api_version=9)
        end = log.log_end_offset
        manager.shutdown()
        manager = open_manager(root)
        assert manager.get(TP).log_end_offset == end
        assert [(r.offset, r.value) for r in records(manager.get(TP))][:-1] == found
        manager.shutdown()
        shutil.rmtree(root)
    assert die_at > 30
    # Before, during the copy, between the two renames, and after the second.
    assert {("-0",), ("-0", "future"), ("delete", "future"), ("-0", "delete")} <= {
        tuple(sorted(each if each in ("delete", "future") else "-0" for each in state)) for state in states
    }
