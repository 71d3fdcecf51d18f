"""Moves between log directories: copies that catch up, the swap, retention, cleaning."""

from __future__ import annotations

import shutil
import struct
import threading
import time
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
    marker_at,
    move,
    open_manager,
    state,
)

from kafkapy._speedups.base.event_queue import EventQueue
from kafkapy._speedups.log import open_files
from kafkapy._speedups.records.memory_records import Record
from kafkapy._speedups.testing.log_waiter import HIGH_WATERMARK, LogWaiter
from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import KafkaStorageError, LogDirNotFoundError
from kafkapy.log import future_logs
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.cleaner import Cleaner
from kafkapy.log.cleaner_manager import log_to_clean
from kafkapy.log.future_logs import Progress
from kafkapy.log.log_dir import LogDirError
from kafkapy.log.log_manager import LogManager
from kafkapy.log.retention import apply_retention
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.records.legacy import build_message_set
from kafkapy.types import CompressionType, TopicPartition

TRIES = 6


@pytest.fixture
def manage(tmp_path: Path) -> Iterator[Callable[..., LogManager]]:
    yield from managers(tmp_path)


def test_a_log_moves_with_all_that_belongs_to_it(manage: Any, batch: Any, marker: Any) -> None:
    manager = manage()
    log = lead(manager)
    source, now = manager.dir_of(TP), time.time_ns() // 1_000_000
    for number in range(20):
        log.append_as_leader(batch(3, value=b"%d" % number), api_version=9)
    log.append_as_leader(batch(producer_id=5, epoch=0, sequence=0, attributes=0x10, timestamp=now), api_version=9)
    log.append_as_leader(marker_at(marker(5, 0, commit=False), now))
    log.become_leader(1, 4, [1])
    log.append_as_leader(batch(2, producer_id=6, epoch=1, sequence=0, timestamp=now), api_version=9)
    log.append_as_leader(batch(producer_id=7, epoch=1, sequence=0, attributes=0x10, timestamp=now), api_version=9)
    log.delete_records(7)
    manager.checkpoints.write_recovery_points()
    before = state(log)
    target = elsewhere(manager)
    assert manager.futures.create(TP, target)
    assert not manager.futures.create(TP, target)
    assert move(manager) is Progress.DONE
    assert manager.get(TP) is log
    assert manager.dir_of(TP) == target
    assert state(log) == before
    assert directories(manager) == [f"{target.name}/t-0"]
    log.append_as_leader(batch(2, producer_id=6, epoch=1, sequence=2, timestamp=now), api_version=9)
    after = state(log)
    assert (source / "recovery-point-offset-checkpoint").read_text() == "0\n0\n"
    assert (target / "log-start-offset-checkpoint").read_text() == "0\n1\nt 0 7\n"

    log = manage().get(TP)
    assert state(log) == after
    assert log.topic_id == TOPIC_ID.bytes


def test_a_clean_and_an_unclean_restart_resume_a_move(manage: Any, tmp_path: Path, batch: Any) -> None:
    manager = manage()
    log = lead(manager)
    for number in range(30):
        log.append_as_leader(batch(2, value=b"%d" % number), api_version=9)
    target = elsewhere(manager)
    manager.futures.create(TP, target)
    assert move(manager, step=100, steps=12) is Progress.COPYING
    copied = manager.futures.get(TP).log.log_end_offset
    assert 0 < copied < log.log_end_offset
    expected = everything(log)
    manager = manage()
    assert manager.futures.get(TP).log.log_end_offset == copied
    assert lead(manager).log_end_offset == 60
    assert move(manager, step=100, steps=5) is Progress.COPYING
    for log_dir in manager.dirs:
        log_dir.release()
    manager = open_manager(tmp_path)  # nothing was closed
    assert manager.futures.get(TP).log.log_end_offset >= copied
    log = lead(manager)
    assert move(manager) is Progress.DONE
    assert everything(log) == expected
    assert directories(manager) == [f"{target.name}/t-0"]
    manager.shutdown()


def test_waiting_requests_notice_nothing(manage: Any, batch: Any) -> None:
    manager = manage()
    log = lead(manager)
    log.append_as_leader(batch(), api_version=9)
    waiter = LogWaiter(log)
    assert not waiter.wait(HIGH_WATERMARK, 1)
    manager.futures.create(TP, elsewhere(manager))
    assert move(manager) is Progress.DONE
    assert waiter.wakes == 0
    log.append_as_leader(batch(), api_version=9)
    assert waiter.wakes == 1


def test_appends_and_reads_go_on_while_a_log_moves_to_and_fro(manage: Any, batch: Any) -> None:
    manager = manage(events=EventQueue())
    log = lead(manager, segment_bytes="200000", segment_index_bytes="4000")
    stop, written, problems = threading.Event(), [], []

    def write() -> None:
        while not stop.is_set():
            base, _, _ = log.append_as_leader(batch(value=b"%08d" % len(written)), api_version=9)
            written.append(base)
            if len(written) > 20_000:
                time.sleep(0.001)

    def read() -> None:
        offset, expected = 0, 0
        while True:
            finished = not writer.is_alive()
            data = log.read(offset, 3000, isolation=0)[0]
            if not data and finished:
                break
            while len(data) >= 12:
                base, length = struct.unpack_from(">qi", data)
                if length + 12 > len(data):
                    break
                if base != expected or b"%08d" % expected not in data[: length + 12]:
                    problems.append((base, expected))
                data, expected = data[length + 12 :], expected + 1
                offset = base + 1
        if expected != len(written):
            problems.append(("end", expected, len(written)))

    writer, reader = threading.Thread(target=write), threading.Thread(target=read)
    writer.start()
    reader.start()
    try:
        for _ in range(8):
            assert manager.futures.create(TP, elsewhere(manager))
            assert move(manager) is Progress.DONE
    finally:
        stop.set()
        writer.join()
        reader.join()
    assert written == list(range(len(written)))
    assert problems == []
    assert len(directories(manager)) == 1


def test_an_append_sleeps_while_a_swap_holds_it_back(manage: Any, batch: Any) -> None:
    """Other threads have the interpreter and the processor meanwhile: the renames need them."""
    manager = manage()
    log = lead(manager)
    for _ in range(2):
        log.append_as_leader(batch(), api_version=9)
    log.prepare_segment()
    manager.futures.create(TP, elsewhere(manager))
    while manager.futures.position(TP) < 1:
        assert manager.futures.advance(TP, 1) is Progress.COPYING
    copy = manager.futures.get(TP).copy
    spent: list[float] = []

    def append() -> None:
        log.append_as_leader(batch(), api_version=9)
        spent.append(time.thread_time())

    for number in range(2, 2 + TRIES):
        assert copy.begin_swap()
        thread = threading.Thread(target=append)
        thread.start()
        time.sleep(0.5)
        assert log.log_end_offset == number
        copy.cancel_swap(log.storage)
        thread.join()
        assert log.log_end_offset == number + 1
        if spent[-1] < 0.2:
            break
        manager.futures.advance(TP, 1)
    assert min(spent) < 0.2
    assert move(manager) is Progress.DONE


def test_readers_open_any_number_of_segments_during_a_swap(
    manage: Any, batch: Any, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Far more than may be open: those of the old and the new directory are closed and opened again meanwhile."""
    before = open_files.open_count()
    open_files.set_limit(before + 12, 4)
    request.addfinalizer(lambda: open_files.set_limit(0, 0))
    manager = manage()
    log = lead(manager, segment_bytes="300")
    count = 100
    for number in range(count):
        log.append_as_leader(batch(value=b"%03d" % number * 60), api_version=9)
        log.prepare_segment()
    assert len(log.segments()) == count
    reads: list[int] = []

    def read_all() -> None:
        reads.append(0)
        for number in range(count):
            assert b"%03d" % number * 60 in log.read(number, 1 << 16, isolation=2)[0]
            assert open_files.open_count() <= before + 16
            reads[-1] += 1

    rename = LocalBackend.rename_log

    def rename_and_read(*arguments: Any) -> None:
        rename(*arguments)
        read_all()

    monkeypatch.setattr(LocalBackend, "rename_log", rename_and_read)
    manager.futures.create(TP, elsewhere(manager))
    while manager.futures.position(TP) < count:
        assert manager.futures.advance(TP, 1) is Progress.COPYING
    copy = manager.futures.get(TP).copy
    assert copy.begin_swap()
    try:
        read_all()
    finally:
        copy.cancel_swap(log.storage)
    read_all()
    log.append_as_leader(batch(value=b"more"), api_version=9)
    assert move(manager) is Progress.DONE
    read_all()
    log.append_as_leader(batch(value=b"more"), api_version=9)
    assert reads == [count] * 5


def test_a_move_is_given_up_or_goes_elsewhere(manage: Any, batch: Any) -> None:
    manager = manage()
    log = lead(manager)
    for _ in range(10):
        log.append_as_leader(batch(5), api_version=9)
    home = manager.dir_of(TP)
    first, second = (log_dir.path for log_dir in manager.dirs if log_dir.path != home)
    assert manager.futures.create(TP, first)
    move(manager, step=100, steps=2)
    assert manager.futures.remove(TP)
    assert not manager.futures.remove(TP)
    assert directories(manager) == [f"{home.name}/t-0"]
    assert manager.futures.advance(TP) is Progress.ENDED
    assert manager.cleaner.manager.claim(TP)
    manager.cleaner.manager.release(TP)
    assert manager.futures.create(TP, second)
    assert not manager.futures.create(TP, home)
    assert move(manager) is Progress.DONE
    assert manager.dir_of(TP) == second
    assert manager.futures.create(TP, home)
    assert manager.delete(TP)
    assert directories(manager) == []
    assert manager.futures.get(TP) is None


@pytest.mark.parametrize("end", ["moved", "given up", "under way", "under way, restarted", "deleted"])
def test_a_log_counts_once_in_each_directory_that_has_files_of_it(manage: Any, end: str) -> None:
    """New logs go to the directory with the fewest."""
    manager = manage()
    lead(manager)
    home, target = manager.dir_of(TP), elsewhere(manager)
    assert home == manager.dirs[0].path
    manager.futures.create(TP, target)
    if end == "moved":
        assert move(manager) is Progress.DONE
    elif end == "given up":
        assert manager.futures.remove(TP)
    elif end == "under way, restarted":
        manager = manage()
        assert manager.futures.is_moving(TP)
    elif end == "deleted":
        assert manager.delete(TP)
    counts = {log_dir.path: 0 for log_dir in manager.dirs}
    counts[home] += end not in ("moved", "deleted")
    counts[target] += end not in ("given up", "deleted")
    for number in range(1, 7):
        fewest = next(path for path, count in counts.items() if count == min(counts.values()))
        manager.get_or_create(TopicPartition("t", number), TOPIC_ID)
        assert manager.dir_of(TopicPartition("t", number)) == fewest
        counts[fewest] += 1


def test_a_copy_that_was_stopped_or_lost_its_log_ends_and_copies_nothing(
    manage: Any, batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The move has neither succeeded nor failed: it may go on from where it was."""
    manager = manage()
    log = lead(manager)
    for _ in range(10):
        log.append_as_leader(batch(5), api_version=9)
    manager.futures.create(TP, elsewhere(manager))
    assert move(manager, step=100, steps=2) is Progress.COPYING
    position = manager.futures.position(TP)
    assert 0 < position < log.log_end_offset
    # The partition's log is another one than that of the copy.
    other = manager.get_or_create(TopicPartition("t", 1), TOPIC_ID)
    with monkeypatch.context() as patch:
        patch.setattr(manager.table, "get", lambda tp: other)
        assert manager.futures.advance(TP, 100) is Progress.ENDED
    manager.futures.get(TP).copy.stop()
    assert manager.futures.advance(TP, 100) is Progress.ENDED
    assert (manager.futures.position(TP), manager.futures.is_moving(TP)) == (position, True)


def test_a_directory_must_exist_and_work(manage: Any, batch: Any) -> None:
    manager = manage()
    log = lead(manager)
    log.append_as_leader(batch(), api_version=9)
    with pytest.raises(LogDirNotFoundError):
        manager.table.check_dir(Path("/nowhere"))
    target = elsewhere(manager)
    third = next(each.path for each in manager.dirs if each.path not in (target, manager.dir_of(TP)))
    manager.futures.create(TP, target)
    manager.table.fail_dir(target, OSError(5, "gone"))
    assert manager.futures.get(TP) is None
    log.append_as_leader(batch(), api_version=9)
    with pytest.raises(KafkaStorageError):
        manager.table.check_dir(target)
    with pytest.raises(KafkaStorageError, match="offline"):
        manager.futures.create(TP, third)


def test_retention_and_deleted_records_follow(manage: Any, batch: Any) -> None:
    manager = manage()
    log = lead(manager, retention_bytes="1200")
    for _ in range(40):
        log.append_as_leader(batch(), api_version=9)
    manager.futures.create(TP, elsewhere(manager))
    move(manager, step=100, steps=4)
    copied = manager.futures.get(TP).log.log_end_offset
    apply_retention(log, 0)
    assert log.log_start_offset > copied > 0
    log.delete_records(log.log_start_offset + 1)
    expected = everything(log)
    assert move(manager) is Progress.DONE
    assert everything(log) == expected
    start = log.log_start_offset
    assert manage().get(TP).log_start_offset == start


def test_a_future_log_is_kept_in_line_while_it_is_copied(
    manage: Any, batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart amid the move finds the log start and the epochs; deleted segments free their space at once."""
    manager = manage()
    log = lead(manager)
    for epoch in range(4):
        log.become_leader(1, epoch, [1])
        for _ in range(10):
            log.append_as_leader(batch(), api_version=9)
    target = elsewhere(manager)
    manager.futures.create(TP, target)
    future = manager.futures.get(TP)
    limit = 20 * len(batch())
    monkeypatch.setattr(future_logs, "FLUSH_BYTES", limit)
    while future.log.log_end_offset < 35:
        assert manager.futures.advance(TP, 100) is Progress.COPYING
        assert (future.log.recovery_point > 0) == (future.log.size >= limit)
        assert future.log.high_watermark == future.log.log_end_offset
    (directory,) = target.glob("t-0.*-future")
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n4\n0 0\n1 10\n2 20\n3 30\n"
    log.delete_records(25)
    manager.futures.advance(TP, 1)
    assert future.log.log_start_offset == 25
    assert future.log.segments()[0][0] <= 25 < future.log.segments()[1][0]


def test_a_log_start_inside_a_batch_moves(manage: Any, batch: Any) -> None:
    manager = manage()
    log = lead(manager)
    for _ in range(12):
        log.append_as_leader(batch(10), api_version=9)
    log.delete_records(55)
    apply_retention(log, 0)
    expected = everything(log)
    manager.futures.create(TP, elsewhere(manager))
    assert move(manager) is Progress.DONE
    assert log.log_start_offset == 55
    assert everything(log) == expected
    log = manage().get(TP)
    assert log.log_start_offset == 55
    assert everything(log) == expected


def test_truncation_reaches_the_future_log(manage: Any, batch: Any) -> None:
    manager = manage()
    log = lead(manager)
    for number in range(20):
        log.append_as_leader(batch(value=b"old%d" % number), api_version=9)
    manager.futures.create(TP, elsewhere(manager))
    for _ in range(60):
        manager.futures.advance(TP, 90)
        if manager.futures.get(TP).log.log_end_offset >= 15:
            break
    manager.cleaner.manager.checkpoints.update(manager.dir_of(TP), TP, 14)
    log.become_follower(2, 1)
    assert manager.truncate_to(TP, 10)
    assert manager.futures.get(TP).log.log_end_offset == 10
    assert manager.cleaner.manager.checkpoints.get(manager.dir_of(TP), TP) == 10
    log.become_leader(1, 2, [1])
    for number in range(20):
        log.append_as_leader(batch(value=b"new%d" % number), api_version=9)
    expected = everything(log)
    assert move(manager) is Progress.DONE
    assert everything(log) == expected
    assert manage().get(TP).leader_epochs() == [(0, 0), (2, 10)]


def test_truncation_to_nothing_reaches_the_future_log(manage: Any, batch: Any) -> None:
    manager = manage()
    log = lead(manager)
    for _ in range(20):
        log.append_as_leader(batch(), api_version=9)
    manager.futures.create(TP, elsewhere(manager))
    move(manager, step=100, steps=3)
    manager.truncate_fully_and_start_at(TP, 500)
    log.append_as_leader(batch(value=b"later"), api_version=9)
    expected = everything(log)
    assert [offset for offset, _ in expected] == [500]
    assert move(manager) is Progress.DONE
    assert everything(log) == expected


def keyed(count: int, timestamp: int = 1_600_000_000_000) -> list[bytes]:
    found = []
    for number in range(count):
        builder = RecordBatchBuilder()
        builder.append(timestamp, b"k%d" % (number % 3), b"%d" % number if number < count - 1 else None)
        found.append(builder.build())
    return found


def test_a_compacted_log_is_not_cleaned_while_it_moves(manage: Any) -> None:
    manager = manage()
    log = lead(manager, cleanup_policy="compact", delete_retention_ms="0")
    for each in keyed(60):
        log.append_as_leader(each)
    log.roll()
    source, now_ms = manager.dir_of(TP), time.time_ns() // 1_000_000
    cleaning = manager.cleaner.manager
    target = log_to_clean(TP, log, None, now_ms)
    assert cleaning.claim(TP)
    end, _ = Cleaner(1 << 20).clean(target, now_ms)
    cleaning.done(TP, end)
    cleaning.release(TP)
    manager.futures.create(TP, elsewhere(manager))
    assert not cleaning.claim(TP)
    assert cleaning.to_clean(now_ms) == []
    for each in keyed(10):
        log.append_as_leader(each)
    expected = everything(log)
    assert len(expected) < 20
    assert move(manager) is Progress.DONE
    assert everything(log) == expected
    assert cleaning.checkpoints.get(manager.dir_of(TP), TP) == end
    assert cleaning.checkpoints.get(source, TP) is None
    assert cleaning.claim(TP)
    cleaning.release(TP)


def test_a_hole_at_the_end_of_a_compacted_log_keeps_its_offsets(manage: Any) -> None:
    manager = manage()
    log = lead(manager, cleanup_policy="compact", delete_retention_ms="0", segment_bytes="100000")
    for each in keyed(30):
        log.append_as_leader(each)
    log.roll()
    cleaner, now_ms = Cleaner(1 << 20), time.time_ns() // 1_000_000
    for later in (0, 1_000_000):  # the tombstone at the very end goes the second time
        cleaner.clean(log_to_clean(TP, log, None, now_ms + later), now_ms + later)
    assert [offset for offset, _ in everything(log)] == [27, 28]
    assert log.log_end_offset == 30
    manager.futures.create(TP, elsewhere(manager))
    assert move(manager) is Progress.DONE
    assert log.log_end_offset == 30
    log = manage().get(TP)
    assert log.log_end_offset == 30
    log.become_leader(1, 1, [1])
    assert log.append_as_leader(keyed(1)[0])[0] == 30


def test_a_future_log_that_missed_a_cleaning_is_copied_anew(manage: Any) -> None:
    manager = manage()
    log = lead(manager, cleanup_policy="compact")
    for each in keyed(40):
        log.append_as_leader(each)
    log.roll()
    source, target = manager.dir_of(TP), elsewhere(manager)
    manager.futures.create(TP, target)
    move(manager, step=300, steps=8)
    assert manager.futures.get(TP).log.log_end_offset > 0
    manager.shutdown()
    # As after a start without that directory, in which the log was cleaned.
    (source / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 40\n")
    manager = manage()
    assert manager.futures.get(TP).log.log_end_offset == 0
    log = lead(manager)
    expected = everything(log)
    assert move(manager) is Progress.DONE
    assert everything(log) == expected


def test_messages_of_old_formats_move(manage: Any, batch: Any) -> None:
    manager = manage()
    manager.get_or_create(TP, TOPIC_ID, log_config())
    directory = manager.dir_of(TP) / "t-0"
    manager.shutdown()
    now = time.time_ns() // 1_000_000
    sets = []
    for number in range(30):
        records = [Record(number * 2 + n, now, 0, None, b"old%d" % n) for n in range(2)]
        sets.append(
            build_message_set(records, number % 2, CompressionType.GZIP if number % 3 else CompressionType.NONE)
        )
    for path in directory.glob("0*"):
        path.unlink()
    (directory / f"{0:020d}.log").write_bytes(b"".join(sets))
    manager = manage()
    log = lead(manager)
    assert log.log_end_offset == 60
    data = log.read(0, 1 << 20)[0]
    log.append_as_leader(batch(), api_version=9)
    manager.futures.create(TP, elsewhere(manager))
    assert move(manager) is Progress.DONE
    assert log.log_end_offset == 61
    offset, copied = 0, b""
    while len(copied) < len(data):
        piece = log.read(offset, 1 << 20)[0]
        copied += piece
        offset = manage_next(piece, offset)
    assert copied[: len(data)] == data
    assert manage().get(TP).log_end_offset == 61


def manage_next(piece: bytes, offset: int) -> int:
    """The offset behind the last entry of `piece`."""
    at = 0
    while at < len(piece):
        base, length = struct.unpack_from(">qi", piece, at)
        offset = base + 1 + (struct.unpack_from(">i", piece, at + 23)[0] if piece[at + 16] == 2 else 0)
        at += length + 12
    return offset


def ten_batches(manager: Any, batch: Any) -> tuple[Any, Path, int]:
    """A log of one segment, the segment's file, and a batch's size in it."""
    log = lead(manager, segment_bytes="100000")
    for _ in range(10):
        log.append_as_leader(batch(), api_version=9)
    path = manager.dir_of(TP) / "t-0" / f"{0:020d}.log"
    return log, path, path.stat().st_size // 10


@pytest.mark.parametrize("at", [3, 7, 8, 11, 16, 40, 60])
def test_what_is_no_batch_ends_the_move_and_leaves_the_log(manage: Any, batch: Any, at: int) -> None:
    manager = manage()
    log, path, size = ten_batches(manager, batch)
    with path.open("r+b") as file:
        file.seek(size * 4 + at)
        byte = file.read(1)[0]
        file.seek(size * 4 + at)
        file.write(bytes([byte ^ 0x55]))
    target = elsewhere(manager)
    manager.futures.create(TP, target)
    assert move(manager, steps=50) is Progress.FAILED
    assert manager.futures.get(TP).place.log_dir.path == target != manager.dir_of(TP)
    assert not manager.futures.is_moving(TP)
    log.append_as_leader(batch(), api_version=9)


@pytest.mark.parametrize("how", ["cut off", "an offset again"])
def test_missing_batches_are_no_hole_that_compaction_left(manage: Any, batch: Any, how: str) -> None:
    """To go on behind them, or from the start, would lose records that a replica may still have."""
    manager = manage()
    log, path, size = ten_batches(manager, batch)
    with path.open("r+b") as file:
        if how == "an offset again":
            file.seek(size * 4)
            file.write(struct.pack(">q", 2))
        else:
            file.truncate(size * 4)
    manager.futures.create(TP, elsewhere(manager))
    assert move(manager, steps=50) is Progress.FAILED
    assert (manager.futures.position(TP), manager.futures.is_moving(TP)) == (4, False)
    assert log.log_end_offset == 10


@pytest.mark.parametrize("kind", ["log", "future log"])
def test_two_logs_of_a_partition_are_for_the_operator_to_sort_out(
    manage: Any, batch: Any, tmp_path: Path, kind: str
) -> None:
    manager = manage()
    lead(manager).append_as_leader(batch(), api_version=9)
    home = manager.dir_of(TP)
    first, second = (log_dir.path for log_dir in manager.dirs if log_dir.path != home)
    manager.shutdown()
    names = ["t-0"] if kind == "log" else [f"t-0.{number:032x}-future" for number in range(2)]
    for path, name in zip((first, second), names, strict=False):
        shutil.copytree(home / "t-0", path / name)
    with pytest.raises(LogDirError, match=f"Partition t-0 has a {kind} in .* and another one in"):
        open_manager(tmp_path)


def test_what_a_move_left_behind_is_kept_while_its_target_is_offline(manage: Any, batch: Any, tmp_path: Path) -> None:
    manager = manage()
    log = lead(manager)
    for _ in range(3):
        log.append_as_leader(batch(), api_version=9)
    expected = everything(log)
    source, target = manager.dir_of(TP), elsewhere(manager)
    manager.futures.create(TP, target)
    assert move(manager, step=1, steps=3) is Progress.COPYING
    assert manager.futures.position(TP) == 3
    manager.shutdown()
    # As a kill leaves it between the two renames; then the disk of the new log does not come up.
    (future,) = target.glob("*-future")
    (source / "t-0").rename(source / (future.name.removesuffix("future") + "delete"))
    hidden = target.with_name("hidden")
    target.rename(hidden)
    target.write_text("no directory")
    keys = {"broker.id": "1", "log.dirs": f"{source},{target}"}
    manager = LogManager(BrokerConfig(keys), topic_config=lambda topic: log_config())
    manager.dirs[1].failure = OSError(5, "gone")
    manager.dirs[0].acquire()
    manager.load()
    assert manager.get(TP) is None
    assert [path.name[-7:] for path in source.glob("t-0*")] == ["-delete"]
    manager.shutdown()
    target.unlink()
    hidden.rename(target)
    manager = manage()
    assert manager.dir_of(TP) == target
    assert everything(manager.get(TP)) == expected
    assert directories(manager) == [f"{target.name}/t-0"]
