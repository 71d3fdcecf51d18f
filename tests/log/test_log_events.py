"""The data plane's events about logs, checkpoints of all directories, shortages of files, offsets by time."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy._speedups.records.memory_records import Record
from kafkapy.log import shortage, workers
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.dir_scan import Place
from kafkapy.log.log_dir import LogDir
from kafkapy.log.log_events import LogEvents
from kafkapy.log.log_table import FutureLog, LogTable
from kafkapy.log.offset_checkpoints import OffsetCheckpoints
from kafkapy.log.timestamps import TimestampOffset, offset_for_timestamp, offset_of_max_timestamp
from kafkapy.log.workers import DirWorkers
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.records.legacy import build_message_set
from kafkapy.types import TopicPartition

TP = TopicPartition("t", 0)


class Log:
    """A log of numbers, which notes the work on it."""

    def __init__(self, tp: TopicPartition = TP, **values: Any) -> None:
        self.topic, self.partition, self.id = *tp, 7 + tp.partition
        self.storage = SimpleNamespace(directory="/files")
        self.recovery_point, self.log_start_offset, self.high_watermark = 4, 5, 6
        self.starts: list[tuple[int, int]] = [(0, 10), (20, 30), (40, 50)]
        self.calls: list[Any] = []
        self.__dict__.update(values)

    def segments(self) -> list[tuple[int, int]]:
        return self.starts

    def prepare_segment(self) -> None:
        self.calls.append("prepare")

    def seal_segments(self) -> None:
        self.calls.append("seal")

    def flush_due(self) -> None:
        self.calls.append("flush due")

    def go_offline(self, number: int) -> None:
        self.calls.append(number)


class Work:
    """Does work at once and notes that it is a flush."""

    def __init__(self) -> None:
        self.flushed: list[Any] = []

    def guarded(self, log: Any, work: Callable[[Any], object]) -> None:
        work(log)

    def flush_later(self, log: Any, flush: Callable[[Any], object]) -> None:
        self.flushed.append((log, flush))


@pytest.fixture
def table(tmp_path: Path) -> LogTable:
    return LogTable([LogDir(tmp_path / name) for name in ("one", "two")])


def add(table: LogTable, log: Any, where: int = 0) -> None:
    tp = TopicPartition(log.topic, log.partition)
    table.add(tp, log, Place(table.dirs[where], str(tp), LocalBackend()))


@pytest.fixture
def work() -> Any:
    return Work()


def test_a_segment_is_made_where_the_log_is_known_and_open(table: LogTable, work: Any) -> None:
    log = Log()
    add(table, log)
    events = LogEvents(table, work)
    events.segment_wanted(99)
    events.segment_wanted(7)
    table.closed = True
    events.segment_wanted(7)
    events.stop()
    assert log.calls == ["prepare"]


@pytest.mark.parametrize(
    ("argument", "told"), [(60, (40, 50)), (41, (40, 50)), (40, (20, 30)), (21, (20, 30)), (20, (0, 10)), (0, None)]
)
def test_a_rolled_segment_is_sealed_flushed_and_told(
    table: LogTable, work: Any, argument: int, told: tuple[int, int] | None
) -> None:
    """The segment that ends at `argument`: its base offset and size."""
    log = Log()
    add(table, log)
    heard: list[Any] = []
    events = LogEvents(table, work, lambda *what: heard.append(what))
    events.segment_rolled(7, argument)
    events.segment_rolled(99, argument)
    events.stop()
    assert heard == ([] if told is None else [(TP, told[0], argument, told[1])])
    assert log.calls == ["seal"]
    [(flushed, flush)] = work.flushed
    assert (flushed, flush.__name__) == (log, "flush")


def test_a_rolled_segment_is_sealed_when_nobody_wants_to_hear(table: LogTable, work: Any) -> None:
    log = Log()
    add(table, log)
    events = LogEvents(table, work)
    events.segment_rolled(7, 60)
    events.stop()
    assert log.calls == ["seal"]


def test_a_flush_is_of_what_is_due(table: LogTable, work: Any) -> None:
    log = Log()
    add(table, log)
    events = LogEvents(table, work)
    events.flush_wanted(99)
    assert work.flushed == []
    events.flush_wanted(7)
    [(flushed, flush)] = work.flushed
    flush(log)
    assert (flushed, log.calls) == (log, ["flush due"])
    events.stop()


def test_a_failed_log_takes_its_directory_along(table: LogTable, work: Any, caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    add(table, log)
    events = LogEvents(table, work)
    events.log_offline(99, errno.EIO)
    assert table.offline_dirs == []
    events.log_offline(7, errno.EROFS, b"read\xff only")
    assert (table.offline_dirs, log.calls) == (table.dirs[:1], [errno.EROFS])
    failure = table.dirs[0].failure
    assert failure is not None
    assert (failure.errno, failure.strerror) == (errno.EROFS, "read\N{REPLACEMENT CHARACTER} only")
    table.remove(TP)
    events.log_offline(7, errno.EIO)
    events.stop()


# ---- checkpoints ----


class Written:
    """Notes what is written into the checkpoint files of directories; the second one fails if it shall."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failing: str = "") -> None:
        self.files: dict[tuple[str, str], dict[TopicPartition, int]] = {}

        def noting(kind: str) -> Callable[..., None]:
            def write(log_dir: LogDir, offsets: dict[TopicPartition, int]) -> None:
                if log_dir.path.name == "two" and failing == kind:
                    raise OSError(errno.EIO, "broken")
                self.files[log_dir.path.name, kind] = dict(offsets)

            return write

        for kind in ("recovery_points", "log_starts", "high_watermarks"):
            monkeypatch.setattr(LogDir, f"write_{kind}", noting(kind))


def test_each_directory_gets_the_offsets_of_its_logs(table: LogTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log start is kept where it is not that of the first segment; logs in memory have no files."""
    tps = [TopicPartition("t", number) for number in range(5)]
    for number, values in enumerate(
        [{}, {"starts": [(5, 1)]}, {"starts": [(4, 1)]}, {"storage": SimpleNamespace(directory="")}, {"starts": []}]
    ):
        add(table, Log(tps[number], **values), number % 2)
    future: Any = Log(TopicPartition("f", 0), recovery_point=14, log_start_offset=15, high_watermark=16)
    place = Place(table.dirs[0], "f", LocalBackend())
    table.futures[TopicPartition("f", 0)] = FutureLog(TopicPartition("f", 0), future, place)
    files = Written(monkeypatch).files
    checkpoints = OffsetCheckpoints(table)
    f = TopicPartition("f", 0)
    expected = {
        ("one", "recovery_points"): {tps[0]: 4, tps[2]: 4, tps[4]: 4, f: 14},
        ("two", "recovery_points"): {tps[1]: 4},
        ("one", "log_starts"): {tps[0]: 5, tps[2]: 5, tps[4]: 5, f: 15},
        ("two", "log_starts"): {},
        ("one", "high_watermarks"): {tps[0]: 6, tps[2]: 6, tps[4]: 6, f: 16},
        ("two", "high_watermarks"): {tps[1]: 6},
    }
    assert checkpoints.write_all() == set()
    assert files == expected
    files.clear()
    for log_dir in table.dirs:
        checkpoints.write_directory(log_dir)
    assert files == expected
    files.clear()
    table.dirs[1].failure = OSError(errno.EIO, "broken")
    assert checkpoints.write_all() == set()
    assert files == {key: value for key, value in expected.items() if key[0] == "one"}


@pytest.mark.parametrize("kind", ["recovery_points", "log_starts", "high_watermarks"])
def test_a_directory_whose_checkpoint_cannot_be_written_goes_offline(
    table: LogTable, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    log = Log()
    add(table, log, 1)
    Written(monkeypatch, kind)
    checkpoints = OffsetCheckpoints(table)
    two = table.dirs[1].path
    assert checkpoints.write_all() == {two}
    assert (table.offline_dirs, log.calls) == (table.dirs[1:], [errno.EIO])
    assert getattr(checkpoints, f"write_{kind}")() == set(), "it is offline already"


# ---- shortages ----


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is done between two tries."""
    done: list[Any] = []
    monkeypatch.setattr(shortage, "close_idle", lambda count: done.append(f"close {count}"))
    monkeypatch.setattr(shortage.time, "sleep", done.append)
    monkeypatch.setattr(shortage, "_warned_at", 1e30)
    return done


@pytest.mark.parametrize("failures", [0, 1, 2, 6, 7])
def test_what_lacks_descriptors_is_tried_seven_times(pauses: list[Any], failures: int) -> None:
    tries: list[Any] = []

    def work(*arguments: Any, **named: Any) -> str:
        tries.append((arguments, named))
        if len(tries) <= failures:
            raise OSError(errno.EMFILE, "Too many open files")
        return "done"

    if failures < 7:
        assert shortage.insist(work, 1, two=3) == "done"
    else:
        with pytest.raises(OSError, match="Too many open files"):
            shortage.insist(work, 1, two=3)
    assert tries == [((1,), {"two": 3})] * min(failures + 1, 7)
    waits = [0.0, 0.01, 0.05, 0.1, 0.2, 0.4][:failures]
    assert pauses == [each for wait in waits for each in ("close 32", wait)]


def test_another_error_is_raised_at_once(pauses: list[Any]) -> None:
    tries: list[int] = []

    def work() -> None:
        tries.append(1)
        raise OSError(errno.EIO, "broken")

    with pytest.raises(OSError, match="broken"):
        shortage.insist(work)
    assert (len(tries), pauses) == (1, [])


@pytest.mark.parametrize(
    ("number", "short"),
    [(getattr(errno, name), True) for name in ("EMFILE", "ENFILE", "ENOMEM", "EAGAIN", "ENOBUFS")]
    + [(getattr(errno, name), False) for name in ("EIO", "ENOSPC", "EROFS", "ENOENT", "EACCES")]
    + [(None, False)],
)
def test_only_some_errors_say_that_something_is_short(number: int | None, short: bool) -> None:
    assert shortage.is_shortage(OSError("text") if number is None else OSError(number, "text")) == short


def test_the_operator_is_warned_once_in_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert shortage.WARN_EVERY_S == 60
    monkeypatch.setattr(shortage, "_warned_at", -60.0)
    for now, count in ((0.0, 1), (59.9, 1), (60.0, 2), (119.0, 2), (120.1, 3)):
        monkeypatch.setattr(shortage.time, "monotonic", lambda now=now: now)
        shortage.warn_of_shortage(OSError(errno.EMFILE, "Too many open files") if now else OSError("short"))
        assert len(caplog.records) == count
    assert caplog.messages[0].startswith("A file operation failed and is retried: short. Raise the limit")
    assert caplog.messages[1].startswith("A file operation failed and is retried: Too many open files. Raise")


# ---- threads of a directory ----


def test_each_kind_of_work_has_four_threads_that_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    stopped: list[str] = []

    class Threads:
        def __init__(self, name: str, count: int) -> None:
            self.name = name
            made.append((name, count))

        def stop(self) -> None:
            stopped.append(self.name)

    monkeypatch.setattr(workers, "LogWorkers", Threads)
    threads = DirWorkers()
    assert made == [("kafka-segments", 4), ("kafka-flushes", 4), ("kafka-appends", 4)]
    threads.stop()
    # An append may want a segment and a flush.
    assert stopped == ["kafka-appends", "kafka-segments", "kafka-flushes"]


# ---- offsets by time ----


def timed(base_offset: int, *timestamps: int, epoch: int = 3) -> bytes:
    builder = RecordBatchBuilder()
    for timestamp in timestamps:
        builder.append(timestamp, b"k", b"v")
    data = bytearray(builder.build())
    data[:8] = base_offset.to_bytes(8, "big")
    data[12:16] = epoch.to_bytes(4, "big", signed=True)
    return bytes(data)


def message(offset: int, timestamp: int) -> bytes:
    return build_message_set([Record(offset, timestamp, 0, b"k", b"v")], 1)


class Timed:
    """A log that finds batches by their header's newest timestamp, as the kernel does."""

    def __init__(self, *batches: tuple[int, int, int, bytes], start: int = 0, end: int = 100) -> None:
        self.log_start_offset, self.log_end_offset = start, end
        self.batches = batches
        """(base offset, last offset, newest timestamp, bytes)."""
        self.asked: list[tuple[int, int, int]] = []

    def find_timestamp(self, timestamp: int, limit: int, offset: int) -> bytes | None:
        self.asked.append((timestamp, limit, offset))
        found = (each for each in self.batches if each[1] >= offset and each[0] < limit and each[2] >= timestamp)
        return next((data for *_, data in found), None)

    def newest_record_timestamp(self) -> int:
        return max((newest for _, _, newest, _ in self.batches), default=-1)


def log_of_times(**how: int) -> Any:
    return Timed(
        (0, 2, 30, timed(0, 10, 30, 20)), (3, 4, 50, timed(3, 40, 50)), (5, 5, 50, timed(5, 50, epoch=-1)), **how
    )


@pytest.mark.parametrize(
    ("timestamp", "how", "expected", "next_offsets"),
    [
        (10, {}, (10, 0, 3), [0]),
        (11, {}, (30, 1, 3), [0]),
        (31, {}, (40, 3, 3), [0]),
        (50, {}, (50, 4, 3), [0]),
        (51, {}, None, [0]),
        (11, {"start": 1}, (30, 1, 3), [1]),
        (25, {"start": 2}, (40, 3, 3), [2, 3]),
        (50, {"start": 5}, (50, 5, -1), [5]),
        (50, {"end": 4}, None, [0, 5]),
        (50, {"end": 5}, (50, 4, 3), [0]),
    ],
)
def test_the_first_record_at_or_after_a_time(
    timestamp: int, how: dict[str, int], expected: tuple[int, int, int] | None, next_offsets: list[int]
) -> None:
    log = log_of_times(**how)
    wanted = None if expected is None else TimestampOffset(*expected)
    assert offset_for_timestamp(log, timestamp) == wanted
    assert log.asked == [(timestamp, log.log_end_offset, offset) for offset in next_offsets]


@pytest.mark.parametrize(("end", "expected"), [(-1, 4), (5, 4), (4, None), (0, None), (6, 4)])
def test_the_newest_record_lies_below_the_asked_end(end: int, expected: int | None) -> None:
    found = offset_of_max_timestamp(log_of_times(), end_offset=end)
    assert (found and found.offset) == expected
    empty: Any = Timed()
    assert offset_of_max_timestamp(empty) is None
    assert empty.asked == []
    epoch: Any = Timed((0, 0, 0, timed(0, 0)))
    assert offset_of_max_timestamp(epoch) == (0, 0, 3)


def test_messages_of_old_formats_have_no_leader_epoch() -> None:
    log: Any = Timed((2, 2, 10, message(2, 10)), (3, 3, 10, message(3, 10)))
    assert offset_for_timestamp(log, 10) == (10, 2, -1)
    log.log_start_offset = 3
    assert offset_for_timestamp(log, 10) == (10, 3, -1)
    # The next one is looked for behind it.
    asked: list[int] = []
    log.log_start_offset, log.log_end_offset = 0, 2
    log.find_timestamp = lambda *what: (asked.append(what[2]), log.batches[0][3] if what[2] < 3 else None)[1]
    assert offset_for_timestamp(log, 10) is None
    assert asked == [0, 3]
