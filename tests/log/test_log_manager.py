"""LogManager: directories, locks, markers, checkpoints, placement, deletion, failure of one directory."""

from __future__ import annotations

import errno
import gc
import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkapy._speedups.base.event_queue import SEGMENT_ROLLED, SEGMENT_WANTED, EventQueue
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.topic import LogConfig
from kafkapy.errors import (
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
)
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.backends.memory import MemoryBackend
from kafkapy.log.dir_scan import parse_directory_name
from kafkapy.log.log_dir import LogDirError
from kafkapy.log.log_manager import LogManager
from kafkapy.log.retention import apply_retention
from kafkapy.log.timestamps import offset_for_timestamp, offset_of_max_timestamp
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.types import CompressionType, TopicPartition, uuid_to_string

ORDERS = TopicPartition("orders", 0)
UNUSABLE = {
    "no line": b"0\n1\nothers 0 7\n",
    "empty": b"",
    "another version": b"1\n1\norders 0 7\n",
    "too few entries": b"0\n2\norders 0 7\n",
    "too many entries": b"0\n1\norders 0 7\nothers 0 7\n",
    "no number": b"0\n1\norders 0 seven\n",
    "no offset": b"0\n1\norders 0\n",
    "no count": b"0\n",
    "no text": b"0\n1\norders 0 7\n\xff\n",
}
"""Checkpoint files that do not say where the log of ORDERS begins."""


@pytest.fixture
def manage(tmp_path: Path) -> Callable[..., LogManager]:
    def make(*, dirs: int = 2, load: bool = True, **how: Any) -> LogManager:
        path = tmp_path / "server.properties"
        names = ",".join(str(tmp_path / f"logs{number}") for number in range(dirs))
        path.write_text(f"broker.id=1\nlog.dirs={names}\nlog.segment.delete.delay.ms=0\n")
        how.setdefault("backends", {"local": LocalBackend(), "memory": MemoryBackend()})
        manager = LogManager(BrokerConfig.load(str(path)), **how)
        if load:
            manager.acquire()
            manager.load()
        return manager

    return make


def test_logs_come_back_after_a_clean_stop(manage: Any, batch: Any) -> None:
    manager = manage()
    topic_id = uuid.uuid4()
    log = manager.get_or_create(ORDERS, topic_id)
    log.become_leader(1, 0, [1])
    for _ in range(5):
        log.append_as_leader(batch(2), api_version=9)
    log.delete_records(3)
    directory = manager.dir_of(ORDERS)
    manager.shutdown(17)
    assert json.loads((directory / ".kafka_cleanshutdown").read_text()) == {"version": 0, "brokerEpoch": 17}
    assert (directory / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 10\n"
    assert (directory / "replication-offset-checkpoint").read_text() == "0\n1\norders 0 10\n"
    assert (directory / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 3\n"
    metadata = (directory / "orders-0" / "partition.metadata").read_text()
    assert metadata == f"version: 0\ntopic_id: {uuid_to_string(topic_id)}\n"
    with pytest.raises(NotLeaderOrFollowerError):
        log.append_as_leader(batch(), api_version=9)

    manager = manage()
    log = manager.get(ORDERS)
    assert log.offsets() == (3, 10, 10, 10, 10)
    assert log.topic_id == topic_id.bytes
    assert not (directory / ".kafka_cleanshutdown").exists()
    with pytest.raises(InconsistentTopicIdError):
        manager.get_or_create(ORDERS, uuid.uuid4())
    manager.shutdown()


@pytest.mark.parametrize(
    ("lost", "expected"),
    [
        ("replication-offset-checkpoint", (3, 10, 3, 3, 10)),
        ("log-start-offset-checkpoint", (0, 10, 10, 10, 10)),
        ("recovery-point-offset-checkpoint", (3, 10, 10, 10, 3)),
    ],
)
@pytest.mark.parametrize("content", [None, *UNUSABLE.values()], ids=["no file", *UNUSABLE])
def test_a_log_that_a_checkpoint_does_not_name_begins_at_nothing(
    manage: Any, batch: Any, lost: str, expected: tuple[int, ...], content: bytes | None
) -> None:
    """Not at what another log has, nor at what a malformed file says, and not at one record: offsets() has start, end,
    high watermark, last stable offset and recovery point."""
    manager = manage(dirs=1)
    log = manager.get_or_create(ORDERS)
    log.become_leader(1, 0, [1])
    for _ in range(5):
        log.append_as_leader(batch(2), api_version=9)
    log.delete_records(3)
    path = manager.dir_of(ORDERS) / lost
    manager.shutdown()
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    manager = manage(dirs=1)
    assert manager.get(ORDERS).offsets() == expected
    manager.shutdown()


def test_a_second_broker_on_the_directory_is_refused(manage: Any) -> None:
    manager = manage()
    other = manage(load=False)
    with pytest.raises(LogDirError, match=r"Another broker .* is locked"):
        other.acquire()
    manager.shutdown()
    other.acquire()


def test_partitions_go_to_the_directory_with_the_fewest(manage: Any) -> None:
    manager = manage(dirs=3)
    for number in range(9):
        manager.get_or_create(TopicPartition("t", number))
    places = [manager.dir_of(TopicPartition("t", number)) for number in range(9)]
    assert all(places.count(log_dir.path) == 3 for log_dir in manager.dirs)
    manager.shutdown()


def test_a_deleted_log_is_gone_and_an_interrupted_delete_is_finished(manage: Any, batch: Any) -> None:
    manager = manage(dirs=1)
    log = manager.get_or_create(ORDERS)
    log.become_leader(1, 0, [1])
    log.append_as_leader(batch(), api_version=9)
    assert manager.delete(ORDERS)
    assert not manager.delete(ORDERS)
    assert manager.get(ORDERS) is None
    with pytest.raises(NotLeaderOrFollowerError):
        log.append_as_leader(batch(), api_version=9)
    root = manager.dirs[0].path
    assert not list(root.glob("orders*"))
    manager.shutdown()
    left = root / f"orders-0.{uuid.uuid4().hex}-delete"
    left.mkdir()
    (left / f"{0:020d}.log").write_bytes(b"x")
    manager = manage(dirs=1)
    assert not left.exists()
    assert not manager.logs()
    manager.shutdown()


def test_one_failed_directory_leaves_the_others(manage: Any, batch: Any) -> None:
    failed: list[Any] = []
    manager = manage(on_log_dir_failure=lambda path, partitions: failed.append((path, partitions)))
    logs = [manager.get_or_create(TopicPartition("t", number)) for number in range(4)]
    for log in logs:
        log.become_leader(1, 0, [1])
    broken = manager.dir_of(TopicPartition("t", 0))
    manager.events.log_offline(logs[0].id, 5, b"t-0: append failed")
    affected = [number for number in range(4) if manager.dir_of(TopicPartition("t", number)) == broken]
    assert failed == [(broken, [TopicPartition("t", number) for number in affected])]
    for number, log in enumerate(logs):
        if number in affected:
            with pytest.raises(KafkaStorageError):
                log.append_as_leader(batch(), api_version=9)
        else:
            log.append_as_leader(batch(), api_version=9)
    assert manager.dir_of(TopicPartition("t", affected[0])) == broken
    manager.get_or_create(TopicPartition("new", 0))
    assert manager.dir_of(TopicPartition("new", 0)) != broken
    manager.shutdown()
    assert not (broken / ".kafka_cleanshutdown").exists()


def test_unusable_directories_are_one_clear_sentence(manage: Any, tmp_path: Path) -> None:
    (tmp_path / "logs0").write_text("a file")
    with pytest.raises(LogDirError, match="not a directory"):
        manage(dirs=1)


class ShortOfDescriptors(LocalBackend):
    """Cannot open the log of one partition."""

    def open_log(self, log_dir: Path, name: str, *, create: bool) -> Any:
        if name == "orders-1":
            raise OSError(errno.EMFILE, "Too many open files")
        return super().open_log(log_dir, name, create=create)


def test_a_start_that_could_not_load_all_logs_leaves_no_mark_of_a_clean_stop(manage: Any, batch: Any) -> None:
    manager = manage(dirs=1)
    for number in range(2):
        log = manager.get_or_create(TopicPartition("orders", number))
        log.become_leader(1, 0, [1])
        log.append_as_leader(batch(2), api_version=9)
        log.delete_records(1)
    manager.shutdown()
    (directory,) = (each.path for each in manager.dirs)
    files = [directory / name for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint")]
    before = [path.read_text() for path in files]
    starting = manage(dirs=1, load=False, backends={"local": ShortOfDescriptors()})
    starting.acquire()
    with pytest.raises(LogDirError, match="ulimit -n"):
        starting.load()
    starting.shutdown()
    assert [path.read_text() for path in files] == before
    assert not (directory / ".kafka_cleanshutdown").exists()
    after = manage(dirs=1)
    assert [after.get(TopicPartition("orders", number)).log_start_offset for number in range(2)] == [1, 1]
    after.shutdown()


def test_segments_are_prepared_and_sealed_on_the_data_planes_events(manage: Any, batch: Any) -> None:
    events = EventQueue()
    manager = manage(dirs=1, events=events)
    log = manager.get_or_create(ORDERS, config=LogConfig.create(overrides={"segment.bytes": "500"}))
    log.become_leader(1, 0, [1])
    handlers = {SEGMENT_WANTED: manager.events.segment_wanted, SEGMENT_ROLLED: manager.events.segment_rolled}
    for _ in range(20):
        log.append_as_leader(batch(2), api_version=9)
        for kind, handle, argument, text in events.drain():
            if kind in handlers:
                handlers[kind](handle, argument, text)
    manager.shutdown()
    segments = log.segments()
    assert len(segments) >= 4
    assert all(segment[4] for segment in segments[:-1])
    assert not list((manager.dirs[0].path / "orders-0").glob("*.deleted"))


def test_logs_are_synced_when_flush_ms_or_flush_messages_are_due(manage: Any, batch: Any) -> None:
    manager = manage(dirs=1)
    logs = []
    for number, keys in enumerate(({"flush.ms": "0"}, {"flush.ms": "3600000"}, {"flush.messages": "100"}, {})):
        log = manager.get_or_create(TopicPartition("orders", number), config=LogConfig.create(overrides=keys))
        log.become_leader(1, 0, [1])
        log.append_as_leader(batch(2), api_version=9)
        logs.append(log)
    manager.tasks.flush_dirty_logs()
    assert [log.recovery_point for log in logs] == [2, 0, 0, 0]
    logs[1].update_config(LogConfig.create(overrides={"flush.ms": "0"}))
    # The appends were not many enough to be synced; the key is another one by now.
    logs[2].update_config(LogConfig.create(overrides={"flush.messages": "2"}))
    manager.tasks.flush_dirty_logs()
    assert [log.recovery_point for log in logs] == [2, 2, 2, 0]
    manager.shutdown()


class CutFails:
    """A log whose truncation meets an error of the system."""

    def __init__(self, number: int) -> None:
        self.number = number

    def truncate_to(self, offset: int, *, leader_epoch: int) -> bool:
        raise OSError(self.number, os.strerror(self.number))

    def go_offline(self, number: int) -> None:
        """Its directory has failed."""


def moving(manager: Any, batch: Any) -> tuple[Any, Path, Path]:
    """A log of three records on its way into another directory; its directory, and the other one."""
    log = manager.get_or_create(ORDERS)
    log.become_leader(1, 0, [1])
    for _ in range(3):
        log.append_as_leader(batch(), api_version=9)
    home = manager.dir_of(ORDERS)
    other = next(each.path for each in manager.dirs if each.path != home)
    manager.futures.create(ORDERS, other)
    return log, home, other


@pytest.mark.parametrize("which", ["log", "future log"])
def test_a_truncation_that_lacks_descriptors_is_tried_again_and_no_failed_disk(
    manage: Any, batch: Any, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """Only the error of the system says so: KAFKA_STORAGE_ERROR would tell of a disk."""
    manager = manage()
    log, home, _ = moving(manager, batch)
    with monkeypatch.context() as patch:
        if which == "log":
            patch.setattr(manager.table, "log_at", lambda tp: (CutFails(errno.EMFILE), home))
        else:
            patch.setattr(manager.futures.get(ORDERS), "log", CutFails(errno.EMFILE))
        with pytest.raises(OSError) as raised:
            manager.truncate_to(ORDERS, 1)
    assert raised.value.errno == errno.EMFILE
    assert (manager.offline_dirs, log.log_end_offset) == ([], 3)
    assert manager.truncate_to(ORDERS, 1)
    assert log.log_end_offset == 1
    manager.shutdown()


def test_a_truncation_takes_the_directory_offline_whose_disk_failed(
    manage: Any, batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = manage()
    log, home, other = moving(manager, batch)
    future = manager.futures.get(ORDERS)
    with monkeypatch.context() as patch:
        # The copy is of no more use; the log itself is cut.
        patch.setattr(future, "log", CutFails(errno.EIO))
        assert manager.truncate_to(ORDERS, 1)
    assert ([each.path for each in manager.offline_dirs], log.log_end_offset) == ([other], 1)
    with monkeypatch.context() as patch:
        patch.setattr(manager.table, "log_at", lambda tp: (CutFails(errno.EIO), home))
        with pytest.raises(KafkaStorageError, match="orders-0 cannot be truncated"):
            manager.truncate_to(ORDERS, 0)
    assert {each.path for each in manager.offline_dirs} == {home, other}
    assert log.offline_errno == errno.EIO
    manager.shutdown()


def test_a_truncation_is_of_the_log_and_the_epoch_that_are_followed(manage: Any, batch: Any) -> None:
    """The leader's answer may come when the partition has been deleted and made again, or follows another leader."""
    manager = manage()
    old = manager.get_or_create(ORDERS)
    assert manager.delete(ORDERS)
    log = manager.get_or_create(ORDERS)
    log.become_leader(1, 0, [1])
    for _ in range(3):
        log.append_as_leader(batch(), api_version=9)
    log.become_follower(2, 4)
    for cut in (manager.truncate_to, manager.truncate_fully_and_start_at):
        for how in ({"followed": old}, {"followed": log, "leader_epoch": 3}, {"leader_epoch": 5}):
            with pytest.raises(FencedLeaderEpochError):
                cut(ORDERS, 1, **how)
    assert log.offsets()[:2] == (0, 3)
    assert manager.truncate_to(ORDERS, 2, followed=log, leader_epoch=4)
    assert not manager.truncate_to(ORDERS, 2, followed=log, leader_epoch=4)
    assert log.offsets()[:2] == (0, 2)
    manager.truncate_fully_and_start_at(ORDERS, 9, followed=log, leader_epoch=4)
    assert log.offsets()[:2] == (9, 9)
    manager.shutdown()


def test_memory_logs_are_empty_after_a_restart(manage: Any, batch: Any) -> None:
    manager = manage(dirs=1)
    config = LogConfig.create(overrides={"kafkapy.storage.backend": "memory"})
    log = manager.get_or_create(ORDERS, config=config)
    log.become_leader(1, 0, [1])
    log.append_as_leader(batch(2), api_version=9)
    assert len(log.read(0)[0]) == log.size > 0
    log.truncate_to(0)
    log.append_as_leader(batch(2), api_version=9)
    assert log.offsets()[:2] == (0, 2)
    assert not list(manager.dirs[0].path.glob("orders*"))
    manager.shutdown()
    manager = manage(dirs=1)
    assert manager.get(ORDERS) is None
    manager.shutdown()


def test_retention_by_size_and_time(manage: Any, batch: Any) -> None:
    manager = manage(dirs=1)
    overrides = {
        "segment.bytes": "1000",
        "retention.bytes": "2500",
        "retention.ms": "1000",
        "file.delete.delay.ms": "0",
    }
    log = manager.get_or_create(ORDERS, config=LogConfig.create(overrides=overrides))
    log.become_leader(1, 0, [1])
    for _ in range(60):
        log.append_as_leader(batch(2, timestamp=10_000), api_version=9)
    before = log.segments()
    assert apply_retention(log, 11_000) > 0
    assert 2500 <= log.size < 3500
    assert log.log_start_offset == log.segments()[0][0] > before[0][0]
    apply_retention(log, 11_001)
    assert log.offsets()[:2] == (120, 120)
    assert [path.name for path in (manager.dirs[0].path / "orders-0").glob("*.log")] == [f"{120:020d}.log"]
    manager.shutdown()


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP, CompressionType.ZSTD])
def test_offsets_are_found_by_time_inside_batches(manage: Any, codec: CompressionType) -> None:
    manager = manage(dirs=1)
    config = LogConfig.create(overrides={"index.interval.bytes": "1", "segment.bytes": "600"})
    log = manager.get_or_create(ORDERS, config=config)
    log.become_leader(1, 2, [1])
    for number in range(10):
        builder = RecordBatchBuilder()
        for inner in range(3):
            builder.append(1000 + 10 * number + 3 * inner, b"k", b"v")
        log.append_as_leader(builder.build(codec), api_version=9)
    for wanted in range(990, 1097):
        expected = next(
            (3 * n + i, 1000 + 10 * n + 3 * i) for n in range(10) for i in range(3) if 1000 + 10 * n + 3 * i >= wanted
        )
        found = offset_for_timestamp(log, wanted)
        assert found is not None
        assert (found.offset, found.timestamp, found.leader_epoch) == (*expected, 2)
    assert offset_for_timestamp(log, 1097) is None
    assert offset_of_max_timestamp(log) == (1096, 29, 2)
    log.delete_records(2)
    assert offset_for_timestamp(log, 0) == (1006, 2, 2)
    manager.shutdown()


def test_directory_names() -> None:
    assert parse_directory_name("a-b-12") == ("a-b", 12)
    for name in ("orders", "-1", "orders-", "orders-x", "orders-0.abc-delete", "orders-2147483648"):
        assert parse_directory_name(name) is None


def descriptors() -> int:
    gc.collect()  # what earlier tests left is gone now, and not later
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_directory_that_cannot_be_locked_holds_no_descriptor(manage: Any, tmp_path: Path) -> None:
    manager = manage(dirs=1)
    (log_dir,) = manage(dirs=1, load=False).dirs
    before = descriptors()
    for _ in range(3):
        with pytest.raises(LogDirError, match=f"on the log directory {log_dir.path}: its file .lock is locked"):
            log_dir.acquire()
    assert descriptors() <= before
    manager.shutdown()
    log_dir.acquire()
    log_dir.release()
    log_dir.release()
    assert descriptors() < before


def test_a_lock_that_fails_for_another_reason_says_which(manage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (log_dir,) = manage(dirs=1, load=False).dirs

    def fail(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    before = descriptors()
    monkeypatch.setattr("kafkapy.log.log_dir.fcntl.lockf", fail)
    with pytest.raises(OSError, match="No locks available"):
        log_dir.acquire()
    assert descriptors() <= before


def test_a_directory_that_cannot_be_used_at_the_start_is_offline_and_the_others_are_used(
    manage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    manager = manage(load=False)
    bad, good = manager.dirs
    error = OSError(errno.EIO, "Input/output error")
    monkeypatch.setattr(bad, "acquire", fails_with(error))
    manager.acquire()
    assert f"Log directory {bad.path} cannot be used: Input/output error" in caplog.messages
    assert (manager.offline_dirs, manager.live_dirs, bad.failure) == ([bad], [good], error)
    assert (repr(bad), repr(good)) == (f"<LogDir {bad.path} offline>", f"<LogDir {good.path}>")
    manager.load()
    manager.get_or_create(ORDERS)
    assert manager.dir_of(ORDERS) == good.path
    manager.shutdown()
    assert (good.path / ".kafka_cleanshutdown").exists()


def fails_with(error: OSError) -> Callable[..., None]:
    def fail(*_: Any) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.EIO, r"No log directory can be used \(.*logs0, .*logs1\): broken\."),
        (errno.EMFILE, r"The log directory .*logs0 cannot be used: broken\."),
    ],
)
def test_directories_none_of_which_can_be_used_end_the_start(
    manage: Any, monkeypatch: pytest.MonkeyPatch, number: int, message: str
) -> None:
    """A shortage says nothing of the disks, so it ends the start at the first of them."""
    manager = manage(load=False)
    for each in manager.dirs:
        monkeypatch.setattr(each, "acquire", fails_with(OSError(number, "broken")))
    with pytest.raises(LogDirError, match=message):
        manager.acquire()
    assert len(manager.offline_dirs) == (2 if number == errno.EIO else 0)


def test_a_directory_that_is_listed_twice_is_refused(manage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = manage(load=False)
    manager.table.dirs.append(manager.dirs[0])
    with pytest.raises(LogDirError, match=r"The log directory .*logs0 is listed twice in log\.dirs\."):
        manager.acquire()
    for each in manager.dirs:
        each.release()


def test_a_truncation_makes_what_was_clean_above_it_dirty(manage: Any, batch: Any) -> None:
    """New records come to offsets that the cleaner has been over."""
    manager = manage()
    _, home, _ = moving(manager, batch)
    manager.futures.remove(ORDERS)
    known = manager.cleaner.manager.checkpoints
    for clean, cut, dirty in ((3, 3, 3), (3, 2, 2), (1, 1, 1)):
        known.update(home, ORDERS, clean)
        manager.truncate_to(ORDERS, cut)
        assert known.get(home, ORDERS) == dirty, (clean, cut)
    manager.truncate_fully_and_start_at(ORDERS, 0)
    assert known.get(home, ORDERS) == 0
    manager.shutdown()
