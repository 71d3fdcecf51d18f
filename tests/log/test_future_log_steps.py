"""The steps of a move between directories: what each outcome of a copy leads to, and how errors are taken."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from log.moving import TP, directories, elsewhere, everything, lead, log_config, managers, move
from noting import Noting

from kafkapy._speedups.log import future_log
from kafkapy.errors import KafkaStorageError
from kafkapy.log import future_logs
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.backends.memory import MemoryBackend
from kafkapy.log.future_logs import FutureLogs, Progress
from kafkapy.log.log_manager import LogManager
from kafkapy.types import TopicPartition

EIO = OSError(errno.EIO, "broken")


def numbers(**values: Any) -> Any:
    """A log by its numbers."""
    plain = {"offline_errno": 0, "size": 10, "log_start_offset": 3, "log_end_offset": 8, "high_watermark": 8}
    return Noting(**plain | values)


@pytest.fixture
def futures() -> FutureLogs:
    table: Any = SimpleNamespace(futures={})
    nothing: Any = None
    return FutureLogs(table, nothing, nothing, nothing, lambda: 0)


@pytest.mark.parametrize(
    ("outcome", "values", "calls", "skipped", "progress"),
    [
        ("MORE", {}, [], [], Progress.COPYING),
        ("FAILED", {}, [], [], Progress.COPYING),
        ("NEEDS_SEGMENT", {}, [("prepare_segment",), ("seal_segments",)], [], Progress.COPYING),
        ("OUT_OF_RANGE", {}, [("truncate_to", 9)], [], Progress.COPYING),
        ("MISALIGNED", {"size": 0}, [("truncate_fully_and_start_at", 7)], [], Progress.COPYING),
        ("MISALIGNED", {"log_end_offset": 4}, [("truncate_fully_and_start_at", 7)], [], Progress.COPYING),
        ("MISALIGNED", {"log_end_offset": 3}, [("truncate_fully_and_start_at", 7)], [], Progress.COPYING),
        ("MISALIGNED", {"log_end_offset": 5}, [], [("stop",)], Progress.FAILED),
        ("HOLE", {}, [], [("skip_hole", 7)], Progress.COPYING),
        ("HOLE", {"active": 1}, [], [("stop",)], Progress.FAILED),
        ("ENDED", {}, [], [], Progress.ENDED),
        ("CORRUPT", {}, [], [("stop",)], Progress.FAILED),
        ("CAUGHT_UP", {}, [], [], Progress.COPYING),
        ("CAUGHT_UP", {"replaced": True}, [], [], Progress.DONE),
        ("MORE", {"replaced": True}, [], [], Progress.COPYING),
    ],
)
def test_what_follows_a_copy(
    futures: FutureLogs,
    monkeypatch: pytest.MonkeyPatch,
    outcome: str,
    values: dict[str, Any],
    calls: list[tuple[Any, ...]],
    skipped: list[tuple[Any, ...]],
    progress: Progress,
) -> None:
    """The log begins at 4 and ends at 9; the copy was asked for offset 7."""
    replaced, active = values.pop("replaced", False), values.pop("active", 0)
    log = numbers(log_start_offset=4, log_end_offset=9, segments=lambda: [(0, 5), (4, active)])
    copy, copying = numbers(**values), Noting()
    future: Any = SimpleNamespace(tp=TP, log=copy, copy=copying, stopped=False)
    kept: list[Any] = []
    monkeypatch.setattr(futures, "_keep_in_line", lambda *which: kept.append(which))
    monkeypatch.setattr(futures, "_replace", lambda *which: replaced)
    assert futures._after_copy(future, log, getattr(future_log, outcome), 7) is progress
    assert (copy.calls, copying.calls) == (calls, skipped)
    assert future.stopped == (progress is Progress.FAILED)
    assert kept == ([] if progress in (Progress.ENDED, Progress.FAILED) else [(future, log)])


def test_a_copy_that_is_offline_is_an_error_of_its_disk(futures: FutureLogs) -> None:
    future: Any = SimpleNamespace(tp=TP, log=numbers(offline_errno=errno.EROFS), copy=Noting())
    with pytest.raises(OSError, match="the future log of t-0 met a disk error") as raised:
        futures._after_copy(future, numbers(), future_log.MORE, 7)
    assert raised.value.errno == errno.EROFS


CONFIG, OTHER_CONFIG = object(), object()
EPOCHS = [(1, 0)]


@pytest.mark.parametrize(
    ("start", "high_watermark", "copied", "log_calls", "copy_calls"),
    [
        # The copy begins at 3; its high watermark follows.
        (3, 9, {}, [], []),
        (2, 9, {}, [("delete_records", 3)], []),
        (2, 3, {}, [("delete_records", 3)], []),
        (1, 2, {}, [], []),
        (4, 9, {}, [], [("delete_records", 4), ("delete_segments_below", 4)]),
        (8, 9, {}, [], [("delete_records", 8), ("delete_segments_below", 8)]),
        (9, 9, {}, [], []),
    ],
)
@pytest.mark.parametrize(("unflushed", "flushed"), [(99, False), (100, True), (101, True)])
def test_a_copy_follows_its_log(
    futures: FutureLogs,
    monkeypatch: pytest.MonkeyPatch,
    start: int,
    high_watermark: int,
    copied: dict[str, Any],
    log_calls: list[Any],
    copy_calls: list[Any],
    unflushed: int,
    flushed: bool,
) -> None:
    monkeypatch.setattr(future_logs, "FLUSH_BYTES", 100)
    log = numbers(offsets=lambda: (start, 9, high_watermark, 0, 0), config=CONFIG)
    copy = numbers(leader_epochs=lambda: EPOCHS, config=CONFIG, **copied)
    future: Any = SimpleNamespace(log=copy, written_epochs=[(1, 0)], unflushed=unflushed)
    futures._keep_in_line(future, log)
    assert log.calls == log_calls
    flush = [("flush",)] if flushed else []
    assert copy.calls == [("set_high_watermark", high_watermark), *copy_calls, *flush]
    assert future.unflushed == (0 if flushed else unflushed)


def test_a_copy_takes_over_a_changed_configuration_and_new_epochs(futures: FutureLogs) -> None:
    log = numbers(offsets=lambda: (3, 9, 9, 0, 0), config=CONFIG)
    copy = numbers(leader_epochs=lambda: EPOCHS, config=OTHER_CONFIG)
    future: Any = SimpleNamespace(log=copy, written_epochs=[], unflushed=0)
    futures._keep_in_line(future, log)
    assert copy.calls == [("update_config", CONFIG), ("set_high_watermark", 9), ("write_leader_epochs",)]
    assert future.written_epochs == EPOCHS


@pytest.mark.parametrize(
    ("log_end", "copy_end", "copied", "known", "common"),
    [
        (9, 9, [], {}, 9),
        (9, 7, [], {}, 7),
        (7, 9, [], {}, 7),
        (9, 9, [(1, 0)], {1: (1, 9)}, 9),
        (9, 9, [(1, 0)], {1: (1, 5)}, 5),
        (4, 9, [(1, 0)], {1: (1, 5)}, 4),
        # The log does not know the last epoch of the copy, or knows none at all.
        (9, 9, [(1, 0), (3, 6)], {1: (1, 8), 3: (2, 8)}, 6),
        (9, 9, [(1, 0), (3, 6)], {1: (1, 4), 3: (2, 8)}, 4),
        (9, 9, [(1, 2), (3, 6)], {1: (-1, -1), 3: (-1, -1)}, 2),
        (9, 5, [(1, 0), (3, 6)], {1: (1, 8), 3: (2, 8)}, 5),
    ],
)
def test_the_common_part_ends_with_the_last_common_epoch(
    log_end: int, copy_end: int, copied: list[tuple[int, int]], known: dict[int, tuple[int, int]], common: int
) -> None:
    log = numbers(log_end_offset=log_end, offset_for_leader_epoch=known.get)
    copy = numbers(log_end_offset=copy_end, leader_epochs=lambda: copied)
    assert future_logs._common_end(log, copy) == common


# ---- with directories ----


@pytest.fixture
def manage(tmp_path: Path) -> Iterator[Callable[..., LogManager]]:
    yield from managers(tmp_path)


def offline(manager: LogManager) -> list[Path]:
    return [each.path for each in manager.offline_dirs]


def free(manager: LogManager, tp: TopicPartition = TP) -> bool:
    """Whether the log may be cleaned, so that nobody has paused it for ever."""
    claimed = manager.cleaner.manager.claim(tp)
    if claimed:
        manager.cleaner.manager.release(tp)
    return claimed


def test_a_move_needs_a_log_with_files_and_another_directory(manage: Any, batch: Any) -> None:
    manager = manage(backends={"local": LocalBackend(), "memory": MemoryBackend()})
    lead(manager)
    target, memory = elsewhere(manager), TopicPartition("m", 0)
    manager.get_or_create(memory, config=log_config(kafkapy_storage_backend="memory"))
    futures = manager.futures
    assert not futures.create(TopicPartition("none", 0), target)
    assert not futures.create(TP, manager.dir_of(TP))
    elsewhere_of_memory = next(each.path for each in manager.dirs if each.path != manager.dir_of(memory))
    with pytest.raises(KafkaStorageError, match="m-0 has no files that could be moved"):
        futures.create(memory, elsewhere_of_memory)
    assert (futures.all(), free(manager), free(manager, memory)) == ({}, True, True)
    assert futures.create(TP, target)
    assert not free(manager)
    # Another thread was faster, or the log is gone.
    third = next(each.path for each in manager.dirs if each.path not in (target, manager.dir_of(TP)))
    assert not futures._create(TP, third)
    assert not futures._create(TopicPartition("none", 0), third)
    assert not futures.create(TP, target)
    assert (futures.is_moving(TP), futures.is_moving(memory)) == (True, False)
    assert (futures.position(TP), futures.position(memory)) == (0, -1)


def test_a_future_log_that_cannot_be_made_takes_its_directory_offline(
    manage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = manage()
    lead(manager)
    home, target = manager.dir_of(TP), elsewhere(manager)

    def fail(*_: Any, **__: Any) -> None:
        raise EIO

    with monkeypatch.context() as patch:
        patch.setattr(LocalBackend, "open_log", fail)
        with pytest.raises(KafkaStorageError, match=f"t-0 cannot be moved to {target}: broken"):
            manager.futures.create(TP, target)
    assert (offline(manager), manager.futures.all(), free(manager)) == ([target], {}, True)
    third = next(each.path for each in manager.dirs if each.path not in (home, target))
    with pytest.raises(KafkaStorageError, match=f"t-0 is not moved while log directories are offline: {target}"):
        manager.futures.create(TP, third)
    assert free(manager)


def test_a_future_log_whose_directory_cannot_be_renamed_is_forgotten(
    manage: Any, batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = manage()
    lead(manager).append_as_leader(batch(), api_version=9)
    target = elsewhere(manager)
    manager.futures.create(TP, target)
    future = manager.futures.get(TP)
    with monkeypatch.context() as patch:
        patch.setattr(LocalBackend, "rename_log", failing(EIO))
        assert manager.futures.remove(TP)
    assert (offline(manager), manager.futures.get(TP), free(manager)) == ([target], None, True)
    assert future.stopped
    assert not manager.futures._drop(future), "it is gone already"


def failing(error: OSError) -> Callable[..., None]:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    return fail


def copied(manager: LogManager, batch: Any) -> tuple[Any, Any]:
    """A log of three records that are all copied; the log and the future log."""
    log = lead(manager)
    for _ in range(3):
        log.append_as_leader(batch(), api_version=9)
    assert manager.futures.create(TP, elsewhere(manager))
    while manager.futures.position(TP) < 3:
        assert manager.futures.advance(TP, 1) is Progress.COPYING
    return log, manager.futures.get(TP)


class Step:
    """The copy of a future log, of which one step fails."""

    def __init__(self, copy: Any, step: str, error: OSError | None) -> None:
        self._copy, self._step, self._error = copy, step, error
        self.steps = 0

    def __getattr__(self, name: str) -> Any:
        if name == self._step:
            self.steps += 1
            if self._error is None:
                return lambda *_: False
            return failing(self._error)
        return getattr(self._copy, name)


@pytest.mark.parametrize("step", ["copy", "begin_swap"])
@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_a_log_that_cannot_be_read_before_the_swap_stays_where_it_is(
    manage: Any, batch: Any, step: str, number: int
) -> None:
    manager = manage()
    log, future = copied(manager, batch)
    home = manager.dir_of(TP)
    copy, future.copy = future.copy, Step(future.copy, step, OSError(number, os.strerror(number)))
    assert not manager.futures._replace(future, log)
    assert future.copy.steps == 1
    assert offline(manager) == ([home] if number == errno.EIO else [])
    assert (manager.dir_of(TP), future.swapping) == (home, False)
    future.copy = copy
    if number == errno.EMFILE:
        assert move(manager) is Progress.DONE


def test_a_swap_that_must_wait_is_tried_again(manage: Any, batch: Any) -> None:
    manager = manage()
    log, future = copied(manager, batch)
    copy, future.copy = future.copy, Step(future.copy, "begin_swap", None)
    assert not manager.futures._replace(future, log)
    assert (offline(manager), future.swapping, manager.futures.get(TP) is future) == ([], False, True)
    future.copy = copy
    assert move(manager) is Progress.DONE


@pytest.mark.parametrize("what", ["stopped", "another log", "another future log", "deleted"])
def test_a_move_that_ended_during_the_flush_is_not_finished(
    manage: Any, batch: Any, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    manager = manage()
    log, future = copied(manager, batch)
    home = manager.dir_of(TP)
    with monkeypatch.context() as patch:
        if what == "stopped":
            future.stopped = True
        elif what == "another log":
            patch.setattr(manager.table, "get", lambda tp: object())
        elif what == "another future log":
            patch.setitem(manager.table.futures, TP, SimpleNamespace(place=future.place, log=future.log))
        else:
            patch.setattr(manager.table, "place", lambda tp: None)
        patch.setattr(manager.futures, "_begin_swap", lambda future: pytest.fail("it began"))
        assert not manager.futures._replace(future, log)
    assert not future.swapping
    future.stopped = False
    assert (manager.dir_of(TP), manager.futures.advance(TP)) == (home, Progress.DONE)


@pytest.mark.parametrize(("flush_messages", "synced"), [(None, 2), ("100", 2), (None, 3)])
def test_the_swap_flushes_what_the_log_had_on_the_disk(
    manage: Any, batch: Any, monkeypatch: pytest.MonkeyPatch, flush_messages: str | None, synced: int
) -> None:
    """What came to the log after the last flush of the copy, where somebody has been told that it is on the disk."""
    manager = manage()
    log, future = copied(manager, batch)
    log.flush()
    if flush_messages is not None:
        log.update_config(log_config(flush_messages=flush_messages))
    write = manager.checkpoints.write_directory

    def append_meanwhile(log_dir: Any) -> None:
        monkeypatch.undo()
        log.append_as_leader(batch(), api_version=9)
        if synced == 3:
            log.flush()
        write(log_dir)

    monkeypatch.setattr(manager.checkpoints, "write_directory", append_meanwhile)
    assert manager.futures._replace(future, log)
    assert log.log_end_offset == 4
    assert log.recovery_point == (3 if flush_messages is None and synced == 2 else 4)


def test_a_mistake_amid_the_swap_lets_appends_go_on(manage: Any, batch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = manage()
    log, future = copied(manager, batch)

    def fail(*_: Any) -> None:
        raise ValueError("a mistake")

    with monkeypatch.context() as patch:
        patch.setattr(manager.futures, "_rename", fail)
        with pytest.raises(ValueError, match="a mistake"):
            manager.futures._replace(future, log)
    assert (future.swapping, manager.futures.get(TP) is future, offline(manager)) == (False, True, [])
    log.append_as_leader(batch(), api_version=9)
    assert move(manager) is Progress.DONE
    assert len(everything(log)) == 4


@pytest.mark.parametrize("ends", ["-delete", "t-0"])
def test_a_swap_whose_rename_fails_leaves_the_log_in_its_place(
    manage: Any, batch: Any, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    manager = manage()
    log, future = copied(manager, batch)
    home, target = manager.dir_of(TP), future.place.log_dir.path
    expected = everything(log)
    rename = LocalBackend.rename_log
    failed: list[str] = []

    def fail(self: LocalBackend, log_dir: Path, old: str, new: str) -> None:
        if new.endswith(ends) and not failed:
            failed.append(new)
            raise EIO
        rename(self, log_dir, old, new)

    with monkeypatch.context() as patch:
        patch.setattr(LocalBackend, "rename_log", fail)
        assert move(manager) is not Progress.DONE
    # The directory in which the rename failed is offline: that of the log, or that of the copy.
    assert offline(manager) == [home if ends == "-delete" else target]
    assert manager.dir_of(TP) == home
    assert directories(manager)[:1] == [f"{home.name}/t-0"]
    assert manager.futures.is_moving(TP) is False
    if ends == "t-0":
        assert manager.futures.get(TP) is None
        log.append_as_leader(batch(), api_version=9)
    manager = manage()
    assert everything(manager.get(TP))[:3] == expected


@pytest.mark.parametrize("where", ["home", "target"])
def test_a_checkpoint_that_cannot_be_written_after_the_move_is_of_its_directory(
    manage: Any, batch: Any, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    manager = manage()
    _, future = copied(manager, batch)
    home, target = manager.dir_of(TP), future.place.log_dir.path
    place = manager.table.place(TP)
    with monkeypatch.context() as patch:
        if where == "home":
            patch.setattr(place.log_dir, "forget", failing(EIO))
        else:
            patch.setattr(future_logs, "write_topic_id", failing(EIO))
        assert move(manager) is Progress.DONE
    assert offline(manager) == [home if where == "home" else target]
    assert manager.dir_of(TP) == target
    assert free(manager)


@pytest.mark.parametrize("where", ["home", "target", "elsewhere"])
def test_a_directory_that_fails_stops_the_moves_that_it_has_a_part_in(manage: Any, batch: Any, where: str) -> None:
    manager = manage()
    log, future = copied(manager, batch)
    home, target = manager.dir_of(TP), future.place.log_dir.path
    third = next(each.path for each in manager.dirs if each.path not in (home, target))
    stopped: list[int] = []
    future.copy = SimpleNamespace(stop=lambda: stopped.append(1))
    manager.table.fail_dir({"home": home, "target": target, "elsewhere": third}[where], EIO)
    assert (future.stopped, len(stopped)) == (where != "elsewhere", int(where != "elsewhere"))
    assert (log.offline_errno, future.log.offline_errno) == (
        errno.EIO if where == "home" else 0,
        errno.EIO if where == "target" else 0,
    )
    assert manager.futures.is_moving(TP) == (where == "elsewhere")
    assert (manager.futures.get(TP) is future) == (where != "target")
    assert free(manager) == (where == "target")


@pytest.mark.parametrize(("number", "told"), [(errno.EIO, errno.EIO), (errno.EROFS, errno.EROFS), (None, errno.EIO)])
def test_a_future_log_that_fails_takes_its_directory_offline(
    manage: Any, batch: Any, monkeypatch: pytest.MonkeyPatch, number: int | None, told: int
) -> None:
    manager = manage()
    _, future = copied(manager, batch)
    error = OSError("broken") if number is None else OSError(number, "broken")
    monkeypatch.setattr(manager.futures, "_after_copy", failing(error))
    assert manager.futures.advance(TP) is Progress.ENDED
    assert offline(manager) == [future.place.log_dir.path]
    assert (future.stopped, future.log.offline_errno) == (True, told)


def test_a_shortage_stops_no_move(manage: Any, batch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = manage()
    _, future = copied(manager, batch)
    with monkeypatch.context() as patch:
        patch.setattr(manager.futures, "_after_copy", failing(OSError(errno.EMFILE, "short")))
        assert manager.futures.advance(TP) is Progress.ENDED
    assert (offline(manager), future.stopped) == ([], False)
    assert move(manager) is Progress.DONE


def test_what_was_copied_counts_until_the_flush(manage: Any, batch: Any) -> None:
    manager = manage()
    log = lead(manager)
    for _ in range(3):
        log.append_as_leader(batch(), api_version=9)
    manager.futures.create(TP, elsewhere(manager))
    future = manager.futures.get(TP)
    seen = []
    while manager.futures.position(TP) < 3:
        manager.futures.advance(TP, 1)
        seen.append(future.unflushed)
    assert seen[-1] == log.size
    assert seen == sorted(seen)
