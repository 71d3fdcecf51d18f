"""Which part of a log the cleaner may clean, which log it takes, and how it takes errors: logs of numbers only."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy._speedups.log.cleaner import CleaningStopped
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.topic import LogConfig
from kafkapy.log import cleaner as cleaner_module
from kafkapy.log.checkpoints import write_checkpoint
from kafkapy.log.cleaner import MAX_MAP_BYTES, CleanerSettings, CleanerStats, LogCleaner, group_segments
from kafkapy.log.cleaner_checkpoint import CleanerCheckpoints
from kafkapy.log.cleaner_manager import LogCleanerManager, LogToClean, log_to_clean
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.types import TopicPartition

TP, OTHER = TopicPartition("t", 0), TopicPartition("u", 0)
HERE = Path("/here")
NOW = 1_600_000_000_000
NEVER = (1 << 63) - 1


class Log:
    """A log by its numbers. Segments: (base, size, newest timestamp, age of the file, sealed); the last is active."""

    def __init__(
        self,
        segments: Any = ((0, 10, 1, 1, True), (10, 20, 2, 2, True), (20, 40, 3, 3, True), (30, 80, 4, 4, False)),
        *,
        start: int = 0,
        end: int = 40,
        stable: int = 40,
        **keys: str,
    ) -> None:
        self._segments, self._offsets = list(segments), (start, end, end, stable, end)
        self.log_start_offset, self.offline_errno = start, 0
        names = {"cleanup.policy": "compact"} | {name.replace("_", "."): value for name, value in keys.items()}
        self.config = LogConfig.create(overrides=names)
        self.asked: list[tuple[Any, ...]] = []
        self.timestamps: dict[int, tuple[int, ...]] = {}
        """By base offset: those of the batches that a read gives."""

    def segments(self) -> list[Any]:
        return self._segments

    def offsets(self) -> tuple[int, ...]:
        return self._offsets

    def read(self, offset: int, max_bytes: int, **how: Any) -> tuple[bytes]:
        self.asked.append((offset, max_bytes, how))
        data = b""
        for timestamp in self.timestamps.get(offset, ()):
            builder = RecordBatchBuilder()
            builder.append(timestamp, b"k", b"v")
            data += builder.build()
        return (data,)


def part(log: Any, checkpoint: int | None = None, now_ms: int = NOW) -> tuple[int, int, int, int, int]:
    return log_to_clean(TP, log, checkpoint, now_ms)[2:]


@pytest.mark.parametrize(
    ("checkpoint", "expected"),
    [
        (None, (0, 30, 0, 70, 0)),
        (0, (0, 30, 0, 70, 0)),
        (9, (9, 30, 0, 70, 0)),
        (10, (10, 30, 10, 60, 0)),
        (11, (11, 30, 10, 60, 0)),
        (29, (29, 30, 30, 40, 0)),
        (30, (30, 30, 70, 0, 0)),
        (40, (40, 30, 70, 0, 0)),
        (41, (0, 30, 0, 70, 0)),
    ],
)
def test_what_lies_below_the_checkpoint_is_clean(checkpoint: int | None, expected: tuple[int, ...]) -> None:
    assert part(Log(), checkpoint) == expected


@pytest.mark.parametrize(("checkpoint", "first"), [(None, 12), (0, 12), (11, 12), (12, 12), (13, 13)])
def test_nothing_below_the_log_start_is_dirty(checkpoint: int | None, first: int) -> None:
    assert part(Log(start=12), checkpoint) == (first, 30, 10, 60, 0)


@pytest.mark.parametrize(
    ("stable", "expected"),
    [(0, (0, 0, 0, 0, 0)), (9, (0, 0, 0, 0, 0)), (10, (0, 10, 0, 10, 0)), (19, (0, 10, 0, 10, 0)),
     (20, (0, 20, 0, 30, 0)), (29, (0, 20, 0, 30, 0)), (30, (0, 30, 0, 70, 0)), (31, (0, 30, 0, 70, 0))],
)  # fmt: skip
def test_only_whole_segments_of_stable_records_are_cleaned(stable: int, expected: tuple[int, ...]) -> None:
    assert part(Log(stable=stable)) == expected


def test_a_log_without_a_segment_has_nothing_to_clean() -> None:
    assert part(Log((), start=3, end=3, stable=3)) == (3, 3, 0, 0, 0)
    assert part(Log(((5, 80, 4, 4, False),), start=5)) == (5, 5, 0, 0, 0)


def aged(*ages: tuple[int, int], **keys: str) -> Log:
    """Segments of ten offsets, by the ages in ms of newest record (-1: it has none) and file."""
    segments = [
        (10 * number, 10, -1 if newest < 0 else NOW - newest, NOW - created, True)
        for number, (newest, created) in enumerate(ages)
    ]
    return Log([*segments, (10 * len(ages), 80, NOW, NOW, False)], end=100, stable=100, **keys)


@pytest.mark.parametrize(
    ("ages", "checkpoint", "limit"),
    [
        ([(1000, 0)], None, 10),
        ([(999, 5000)], None, 0),
        ([(-1, 1000)], None, 10),
        ([(-1, 999)], None, 0),
        ([(5000, 0), (1000, 0), (999, 0), (5000, 0)], None, 20),
        ([(5000, 0), (999, 0), (5000, 0), (0, 0)], None, 10),
        # What is clean already may be as young as it wants.
        ([(999, 0), (5000, 0)], 9, 0),
        ([(999, 0), (5000, 0)], 10, 20),
        ([(999, 0), (5000, 0)], 11, 20),
    ],
)
def test_young_records_are_left_alone(ages: list[tuple[int, int]], checkpoint: int | None, limit: int) -> None:
    assert part(aged(*ages, min_compaction_lag_ms="1000"), checkpoint)[1] == limit
    assert part(aged(*ages, min_compaction_lag_ms="0"), checkpoint)[1] == 10 * len(ages)


def test_a_record_of_the_epoch_has_a_timestamp() -> None:
    log = Log(((0, 10, 0, NOW, True), (10, 80, 4, 4, False)), min_compaction_lag_ms="1000")
    assert part(log)[1] == 10


@pytest.mark.parametrize(
    ("timestamps", "delay"),
    [
        ({10: (NOW - 1000,)}, 0),
        ({10: (NOW - 1001,)}, 1),
        ({10: (NOW - 1500,), 20: (NOW - 1400,)}, 500),
        ({10: (NOW - 1400,), 20: (NOW - 1500,)}, 500),
        ({10: (NOW - 1400, NOW - 1600)}, 600),
        ({10: (0,), 20: (NOW - 1002,)}, 2),
        ({10: (1,)}, NOW - 1001),
        ({10: (0,)}, 0),
        ({}, 0),
    ],
)
def test_a_delay_is_what_the_oldest_dirty_segment_is_too_old(
    timestamps: dict[int, tuple[int, ...]], delay: int
) -> None:
    log = Log(max_compaction_lag_ms="1000")
    log.timestamps = timestamps
    assert part(log, 10) == (10, 30, 10, 60, delay)
    how = {"isolation": 2, "min_one_batch": True}
    assert log.asked == [(10, 1, how), (20, 1, how)]


def test_a_delay_is_looked_for_where_there_is_a_limit_and_dirt() -> None:
    for log, checkpoint in ((Log(max_compaction_lag_ms=str(NEVER)), 0), (Log(max_compaction_lag_ms="1000"), 30)):
        log.timestamps = dict.fromkeys(range(0, 40, 10), (1,))
        assert part(log, checkpoint)[4] == 0
        assert log.asked == []
    # The first dirty segment may lie below the log start in part.
    log = Log(start=12, max_compaction_lag_ms="1000")
    part(log)
    assert [offset for offset, *_ in log.asked] == [12, 20]
    log = Log(max_compaction_lag_ms=str(NEVER - 1))
    part(log)
    assert len(log.asked) == 3


@pytest.mark.parametrize(
    ("clean", "dirty", "delay", "ratio", "due"),
    [(0, 0, 0, 0.0, False), (5, 0, 9, 0.0, False), (50, 50, 0, 0.5, False), (49, 51, 0, 0.51, True),
     (50, 50, 1, 0.5, True), (0, 1, 0, 1.0, True), (99, 1, 0, 0.01, False)],
)  # fmt: skip
def test_a_log_is_due_when_it_is_dirty_enough_or_has_waited(
    clean: int, dirty: int, delay: int, ratio: float, due: bool
) -> None:
    log: Any = Log(min_cleanable_dirty_ratio="0.5")
    target = LogToClean(TP, log, 0, 0, clean, dirty, delay)
    assert (target.total_bytes, target.cleanable_ratio, target.is_due) == (clean + dirty, ratio, due)
    assert LogToClean(TP, log, 0, 0, clean, dirty).max_compaction_delay_ms == 0


def managed(logs: dict[TopicPartition, Any], places: dict[TopicPartition, Path] | None = None) -> LogCleanerManager:
    known = dict.fromkeys(logs, HERE) if places is None else places
    return LogCleanerManager(lambda: logs, known.get, CleanerCheckpoints(files=False))


def test_the_dirtiest_log_comes_first() -> None:
    clean, dirty = Log(), Log(max_compaction_lag_ms="1000")
    dirty.timestamps = {0: (NOW - 1007,)}
    plain = Log(cleanup_policy="delete")
    offline = Log()
    offline.offline_errno = errno.EIO
    tps = [TopicPartition("t", number) for number in range(4)]
    manager = managed(dict(zip(tps, (clean, dirty, plain, offline), strict=True)))
    manager.checkpoints.update(HERE, tps[0], 20)
    assert manager.compacted() == {tps[0]: clean, tps[1]: dirty, tps[3]: offline}
    assert [each.tp for each in manager.to_clean(NOW)] == [tps[1], tps[0]]
    assert (manager.dirtiest_ratio, manager.max_compaction_delay_ms) == (1.0, 7)
    grabbed = manager.grab_filthiest(NOW)
    assert grabbed is not None and grabbed.tp == tps[1]
    assert [each.tp for each in manager.to_clean(NOW)] == [tps[0]]
    assert manager.dirtiest_ratio == pytest.approx(40 / 70)
    assert manager.max_compaction_delay_ms == 0
    manager.release(tps[1])
    for tp, mark in ((tps[1], manager.pause), (tps[0], lambda tp: manager.mark_uncleanable(tp, "damaged"))):
        mark(tp)
        assert tp not in [each.tp for each in manager.to_clean(NOW)]
    assert manager.grab_filthiest(NOW) is None


def test_a_log_that_is_not_due_or_was_claimed_meanwhile_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    clean, dirty = Log(min_cleanable_dirty_ratio="0.9"), Log(min_cleanable_dirty_ratio="0.9")
    manager = managed({TP: clean, OTHER: dirty})
    manager.checkpoints.update(HERE, TP, 20)
    assert manager.claim(OTHER)
    assert manager.grab_filthiest(NOW) is None
    manager.release(OTHER)
    target = log_to_clean(OTHER, dirty, None, NOW)  # type: ignore[arg-type]
    monkeypatch.setattr(manager, "to_clean", lambda now_ms: [target, target])
    assert manager.claim(OTHER)
    assert manager.grab_filthiest(NOW) is None
    manager.release(OTHER)
    assert manager.grab_filthiest(NOW) is target
    assert not manager.claim(OTHER)


def test_a_log_without_a_directory_is_left_alone() -> None:
    manager = managed({TP: Log(), OTHER: Log()}, {TP: HERE})
    assert [each.tp for each in manager.to_clean(NOW)] == [TP]
    for tp in (TP, OTHER):
        manager.mark_uncleanable(tp, "damaged")
    assert manager.uncleanable_bytes(NOW) == 70
    manager.checkpoints.update(HERE, TP, 10)
    assert manager.uncleanable_bytes(NOW) == 60


def test_only_a_claimed_log_can_be_stopped() -> None:
    manager = managed({})
    stops: list[int] = []
    manager.on_stop(TP, lambda: stops.append(1))
    assert manager._claimed == {}
    manager.release(TP)
    assert manager.claim(TP)
    assert manager.claim(OTHER)
    manager.release(TP)
    manager.pause(TP)
    assert (stops, manager.claim(TP), manager.claim(OTHER)) == ([], False, False)


# ---- checkpoints ----


def test_checkpoints_are_read_once_and_written_at_each_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cleaner-offset-checkpoint"
    write_checkpoint(path, {TP: 3})
    known = CleanerCheckpoints()
    assert (known.get(tmp_path, TP), known.get(tmp_path, OTHER)) == (3, None)
    path.unlink()
    known.forget(tmp_path, OTHER)
    assert known.get(tmp_path, TP) == 3
    assert not path.exists(), "it was not named"
    known.update(tmp_path, OTHER, 4)
    assert path.read_text() == "0\n2\nt 0 3\nu 0 4\n"
    known.forget(tmp_path, TP)
    assert path.read_text() == "0\n1\nu 0 4\n"


def test_checkpoints_of_a_broker_that_keeps_nothing_are_tables_only(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "cleaner-offset-checkpoint", {TP: 3})
    known = CleanerCheckpoints(files=False)
    assert known.get(tmp_path, TP) is None
    known.update(tmp_path, OTHER, 4)
    assert known.get(tmp_path, OTHER) == 4
    known.forget(tmp_path, OTHER)
    assert known.get(tmp_path, OTHER) is None
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\nt 0 3\n"


def test_a_malformed_checkpoint_makes_all_dirty(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "cleaner-offset-checkpoint"
    path.write_text("0\n2\nt 0 3\n")
    known = CleanerCheckpoints()
    assert known.get(tmp_path, TP) is None
    assert caplog.messages == [
        f"Checkpoint {path} cannot be read: should hold 2 entries and holds 1; "
        "the cleaner begins at the start of its logs"
    ]
    known.update(tmp_path, TP, 1)
    assert path.read_text() == "0\n1\nt 0 1\n"


# ---- groups and settings ----


def sized(*segments: tuple[int, int, int, int]) -> list[tuple[int, int, int, int, int, int]]:
    return [(*each, 0, 0) for each in segments]


@pytest.mark.parametrize(
    ("segments", "end", "most", "groups"),
    [
        ([], 100, 9, []),
        ([(0, 1, 1, 1)], 100, 9, []),
        ([(0, 1, 1, 1), (10, 1, 1, 1)], 0, 9, []),
        ([(0, 1, 1, 1), (10, 1, 1, 1)], 1, 9, [(0, 1)]),
        ([(0, 50, 1, 1), (10, 50, 1, 1), (20, 1, 1, 1)], 100, 9, [(0, 2)]),
        ([(0, 50, 1, 1), (10, 51, 1, 1), (20, 1, 1, 1)], 100, 9, [(0, 1), (1, 1)]),
        ([(0, 1, 5, 1), (10, 1, 5, 1), (20, 1, 1, 1)], 100, 9, [(0, 2)]),
        ([(0, 1, 5, 1), (10, 1, 6, 1), (20, 1, 1, 1)], 100, 9, [(0, 1), (1, 1)]),
        ([(0, 1, 1, 5), (10, 1, 1, 5), (20, 1, 1, 1)], 100, 9, [(0, 2)]),
        ([(0, 1, 1, 5), (10, 1, 1, 6), (20, 1, 1, 1)], 100, 9, [(0, 1), (1, 1)]),
        # The segment at the end is not read into the map any more.
        ([(0, 1, 1, 1), (10, 1, 1, 1), (20, 1, 1, 1)], 10, 9, [(0, 1)]),
        ([(0, 1, 1, 1), (10, 1, 1, 1), (20, 1, 1, 1)], 11, 9, [(0, 2)]),
        ([(0, 1, 1, 1), (10, 1, 1, 1), (20, 1, 1, 1), (30, 1, 1, 1)], 100, 1, [(0, 1), (1, 1), (2, 1)]),
        ([(0, 1, 1, 1), (10, 1, 1, 1), (20, 1, 1, 1), (30, 1, 1, 1)], 100, 3, [(0, 3)]),
        # The last offset of a run, relative to its base, fits into 31 bits.
        ([(5, 1, 1, 1), (10, 1, 1, 1), (5 + 2**31, 1, 1, 1)], 2**40, 9, [(0, 2)]),
        ([(5, 1, 1, 1), (10, 1, 1, 1), (6 + 2**31, 1, 1, 1)], 2**40, 9, [(0, 1), (1, 1)]),
    ],
)  # fmt: skip
def test_runs_of_segments_fit_into_one(
    segments: list[tuple[int, int, int, int]], end: int, most: int, groups: list[tuple[int, int]]
) -> None:
    assert group_segments(sized(*segments), end, 100, 10, most) == groups


@pytest.mark.parametrize(("threads", "memory"), [("1", 10_000_000), ("2", 5_000_000), ("3", 3_333_333)])
def test_the_threads_share_the_memory(threads: str, memory: int) -> None:
    keys = {
        "log.dirs": "/x",
        "log.cleaner.threads": threads,
        "log.cleaner.dedupe.buffer.size": "10000000",
        "log.cleaner.io.buffer.load.factor": "0.7",
        "log.cleaner.io.max.bytes.per.second": "12.5",
    }
    assert CleanerSettings.of(BrokerConfig(keys)) == (int(threads), memory, 0.7, 12.5)


def test_a_map_is_bounded_and_as_full_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, float]] = []
    monkeypatch.setattr(cleaner_module, "OffsetMap", lambda *how: made.append(how))
    for memory in (MAX_MAP_BYTES - 1, MAX_MAP_BYTES, MAX_MAP_BYTES + 1):
        cleaner_module.Cleaner(memory, 0.3)
    cleaner_module.Cleaner(7)
    most = 2**31 - 1
    assert made == [(most - 1, 0.3), (most, 0.3), (most, 0.3), (7, 0.9)]


@pytest.mark.parametrize(
    ("number", "offline"),
    [(errno.EIO, errno.EIO), (errno.EROFS, errno.EROFS), (errno.EMFILE, errno.EIO), (None, errno.EIO)],
)
def test_a_swap_that_fails_half_way_takes_the_log_offline(
    monkeypatch: pytest.MonkeyPatch, number: int | None, offline: int
) -> None:
    """Whatever the reason: only a restart puts the names right. Before that the written files go."""
    error = OSError("broken") if number is None else OSError(number, "broken")
    steps: list[Any] = []
    failing_at = "install"

    class Files:
        def __init__(self, storage: Any, base: int) -> None:
            steps.append(base)

        def create(self) -> tuple[int, str]:
            return 7, "path"

        def __getattr__(self, name: str) -> Callable[..., None]:
            def step(*how: Any) -> None:
                steps.append((name, *how))
                if name == failing_at:
                    raise error

            return step

    class Cleaning:
        def clean(self, *how: Any) -> Any:
            steps.append(("clean", *how))
            return SimpleNamespace(aborted_transactions=lambda: ["aborted"])

        def is_current(self) -> bool:
            return True

        def swap(self, *how: Any) -> bool:
            return True

        def end_swap(self) -> None:
            steps.append("end")

    monkeypatch.setattr(cleaner_module, "CleanedFiles", Files)
    log: Any = Log(file_delete_delay_ms="99")
    log.storage, log.go_offline = None, lambda number: steps.append(number)
    cleaning: Any = Cleaning()
    segments = [(5, 1, 1, 1, 0, 11), (7, 1, 1, 1, 0, 22), (9, 1, 1, 1, 0, -1)]
    cleaner = cleaner_module.Cleaner(1 << 20)
    with pytest.raises(OSError, match="broken"):
        cleaner._clean_group(log, cleaning, segments, 0, 2)
    clean = ("clean", 0, 2, 7, "path")
    assert steps == [5, clean, ("finish", ["aborted"], 22), ("promote",), ("install", [5, 7], 99), offline, "end"]
    steps.clear()
    failing_at = "promote"
    with pytest.raises(OSError, match="broken"):
        cleaner._clean_group(log, cleaning, segments, 2, 1)
    clean = ("clean", 2, 1, 7, "path")
    assert steps == [9, clean, ("finish", ["aborted"], 0), ("promote",), ("discard",)]


# ---- rounds of a thread ----


class Rounds:
    """A LogCleaner without threads, of logs by number, and a cleaner that does what the test says."""

    def __init__(self, logs: dict[TopicPartition, Any], **keys: str) -> None:
        self.logs = logs
        self.errors: list[tuple[TopicPartition, OSError]] = []
        self.calls: list[tuple[Any, ...]] = []
        self.outcome: Callable[[], Any] = lambda: 30
        self.stats = CleanerStats(figures=dict.fromkeys(FIGURES, 0))
        self.config = BrokerConfig({"log.dirs": "/x"} | {name.replace("_", "."): keys[name] for name in keys})
        self.made = LogCleaner(
            lambda: self.config,
            lambda: self.logs,
            lambda tp: HERE,
            lambda tp, error: self.errors.append((tp, error)),
            CleanerCheckpoints(files=False),
        )

    def clean(self, target: LogToClean, now_ms: int, on_cleaning: Callable[[Any], None]) -> tuple[int, CleanerStats]:
        self.calls.append((target.tp, now_ms))
        on_cleaning(SimpleNamespace(stop=lambda: self.calls.append(("stop",))))
        stop = self.made.manager._claimed[target.tp]
        assert stop is not None
        stop()
        return self.outcome(), self.stats

    def run(self, number: int = 0) -> bool:
        cleaner: Any = self
        return self.made.clean_filthiest(number, cleaner)


FIGURES = ("bytes_read", "bytes_written", "records_read", "records_written", "records_without_key")


@pytest.fixture
def at_noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: NOW * 1_000_000 + 999_999)


@pytest.mark.usefixtures("at_noon")
def test_a_cleaning_is_noted_and_can_be_stopped() -> None:
    rounds = Rounds({TP: Log()})
    assert rounds.run(3)
    assert rounds.calls == [(TP, NOW), ("stop",)]
    made = rounds.made
    assert (made.manager.checkpoints.get(HERE, TP), made.cleanings, made.last_stats) == (30, 1, {3: rounds.stats})
    assert made.manager.claim(TP)
    assert not rounds.run()
    assert len(rounds.calls) == 2


@pytest.mark.parametrize("without_key", [0, 1])
@pytest.mark.usefixtures("at_noon")
def test_a_cleaning_is_told_with_its_figures(caplog: pytest.LogCaptureFixture, without_key: int) -> None:
    caplog.set_level("INFO", "kafka.log.LogCleaner")
    rounds = Rounds({TP: Log()})
    rounds.stats = CleanerStats(dict(zip(FIGURES, (5_000_000, 2_500_000, 9, 4, without_key), strict=True)), 7, 0.5, 1.5)
    rounds.run(2)
    told = ["Partition t-0 had 1 records without a key, which the cleaner dropped"] if without_key else []
    assert caplog.messages == [
        "Log cleaner thread 2 cleaned t-0 (dirty section [0, 30)): 7 keys, 5.0 MB to 2.5 MB, 9 records to 4, 1.5 s",
        *told,
    ]


def failing(error: Exception) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize(
    "error", [CleaningStopped("t-0 changed"), OSError(errno.EIO, "broken"), ValueError("damaged"), ValueError()]
)
@pytest.mark.usefixtures("at_noon")
def test_an_error_is_blamed_on_the_log_that_is_still_there(error: Exception, gone: bool) -> None:
    rounds = Rounds({TP: Log()})

    def fail() -> Any:
        if gone:
            rounds.logs = {TP: Log()}
        raise error

    rounds.outcome = fail
    assert rounds.run()
    made = rounds.made
    assert rounds.errors == ([(TP, error)] if isinstance(error, OSError) and not gone else [])
    reasons = {TP: str(error) or "ValueError"} if isinstance(error, ValueError) and not gone else {}
    assert made.manager.uncleanable == reasons
    assert (made.cleanings, made.last_stats, made.manager.checkpoints.get(HERE, TP)) == (0, {}, None)
    assert made.manager.claim(TP), "the claim is over"


@pytest.mark.usefixtures("at_noon")
def test_a_log_that_went_offline_is_reported_once() -> None:
    rounds = Rounds({TP: Log()})

    def fail() -> Any:
        rounds.logs[TP].offline_errno = errno.EIO
        raise OSError(errno.EIO, "broken")

    rounds.outcome = fail
    assert rounds.run()
    assert rounds.errors == []


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.usefixtures("at_noon")
def test_retention_of_compacted_logs_runs_where_no_cleaning_does(monkeypatch: pytest.MonkeyPatch, broken: bool) -> None:
    tps = [TopicPartition("t", number) for number in range(5)]
    logs: dict[TopicPartition, Any] = {tp: Log() for tp in tps}
    logs[tps[1]].offline_errno = errno.EIO
    logs[tps[4]] = Log(cleanup_policy="delete")
    rounds = Rounds(logs)
    manager = rounds.made.manager
    assert manager.claim(tps[2])
    seen: list[Any] = []
    error = OSError(errno.EIO, "broken")

    def retain(log: Any, now_ms: int) -> int:
        tp = next(tp for tp in logs if logs[tp] is log)
        assert not manager.claim(tp)
        seen.append((tp, now_ms))
        if broken and tp == tps[0]:
            raise error
        if broken:
            rounds.logs = {}
            raise OSError(errno.EIO, "of a log that is gone")
        return 2 + tp.partition

    monkeypatch.setattr(cleaner_module, "apply_retention", retain)
    assert rounds.made.delete_old_segments() == (0 if broken else 7)
    assert seen == [(tps[0], NOW), (tps[3], NOW)]
    assert rounds.errors == ([(tps[0], error)] if broken else [])
    assert [manager.claim(tp) for tp in tps] == [True, True, False, True, True]


def test_the_figures_sum_up_the_threads_last_cleanings(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = Rounds({})
    made = rounds.made
    made.last_stats = {
        0: CleanerStats({"bytes_read": 30, "bytes_written": 10}, 1, 0.25, 1.5),
        1: CleanerStats({"bytes_read": 10, "bytes_written": 20}, 1, 0.5, 0.5),
        2: CleanerStats(),
    }
    made.manager.dirtiest_ratio, made.manager.max_compaction_delay_ms = 0.75, 2500
    prefix = "kafka_log_logcleaner"
    names = ("cleanerrecopypercent", "maxbufferutilizationpercent", "maxcleantimesecs", "maxcompactiondelaysecs")
    figures = made.figures()
    assert [figures[f"{prefix}_{name}"] for name in names] == [75, 50, 1.5, 2.5]
    assert figures[f"{prefix}manager_maxdirtypercent"] == 75
    assert figures[f"{prefix}manager_timesincelastrunms"] == 0
    monkeypatch.setattr(time, "time_ns", lambda: NOW * 1_000_000)
    rounds.run()
    monkeypatch.setattr(time, "time_ns", lambda: (NOW + 7) * 1_000_000)
    assert made.figures()[f"{prefix}manager_timesincelastrunms"] == 7


def test_a_thread_works_until_its_number_is_too_high(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a thread: each round is of the test."""
    rounds = Rounds({}, log_cleaner_threads="2", log_cleaner_io_max_bytes_per_second="5.0")
    made = rounds.made
    assert made._settings_for(0) is None, "it was not started"
    monkeypatch.setattr(made, "_start_missing", lambda: None)
    made.reconfigure()
    assert made._settings is None
    made.start()
    assert made._pace.bytes_per_second == 5.0
    alive: Any = SimpleNamespace(is_alive=lambda: True, join=lambda: None)
    dead: Any = SimpleNamespace(is_alive=lambda: False, join=lambda: None)
    made._threads = {0: alive, 1: dead, 2: alive}
    made.last_stats = {number: CleanerStats() for number in range(3)}
    assert made._settings_for(1) is made._settings_for(0) is made._settings
    assert made.dead_threads == 1
    assert made._settings_for(2) is None
    assert (list(made._threads), list(made.last_stats)) == ([0, 1], [0, 1])
    rounds.config = rounds.config.with_dynamic({"log.cleaner.io.max.bytes.per.second": "6.0"})
    made.reconfigure()
    assert made._pace.bytes_per_second == 6.0
    made.shutdown()
    assert (made._settings_for(0), made.dead_threads) == (None, 0)
    rounds.config = rounds.config.with_dynamic({"log.cleaner.io.max.bytes.per.second": "7.0"})
    made.reconfigure()
    assert made._pace.bytes_per_second == 6.0


def test_threads_that_are_missing_or_dead_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = Rounds({}, log_cleaner_threads="3")
    made = rounds.made
    started: list[str] = []

    class Thread:
        def __init__(self, *, target: Any, args: tuple[int], name: str, daemon: bool) -> None:
            assert (target, name, daemon) == (made._run, f"kafka-log-cleaner-thread-{args[0]}", True)
            self.name, self.alive = name, True

        def start(self) -> None:
            started.append(self.name)

        def is_alive(self) -> bool:
            return self.alive

    monkeypatch.setattr(threading, "Thread", Thread)
    made.start()
    assert started == [f"kafka-log-cleaner-thread-{number}" for number in range(3)]
    made._threads[1].alive = False  # type: ignore[attr-defined]
    made.reconfigure()
    assert started[3:] == ["kafka-log-cleaner-thread-1"]


@pytest.mark.parametrize(("backoff", "seconds"), [("1500", 1.5), ("0", 0.0), (str(2**63 - 1), threading.TIMEOUT_MAX)])
def test_a_pause_lasts_as_long_as_configured(monkeypatch: pytest.MonkeyPatch, backoff: str, seconds: float) -> None:
    rounds = Rounds({}, log_cleaner_backoff_ms=backoff)
    made = rounds.made
    waits: list[tuple[bool, float]] = []
    monkeypatch.setattr(made._changed, "wait_for", lambda over, pause: waits.append((over(), pause)))
    settings = CleanerSettings.of(rounds.config)
    made._settings = settings
    made._pause(settings)
    made._settings = CleanerSettings.of(rounds.config)
    made._pause(settings)
    made._settings, made._stopping = settings, True
    made._pause(settings)
    assert waits == [(False, seconds), (True, seconds), (True, seconds)]


def test_a_round_that_found_work_is_followed_by_the_next(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A cleaner is made anew when the settings have changed; a mistake ends a round and not the thread."""
    rounds = Rounds({})
    made = rounds.made
    one, two = CleanerSettings(1, 10, 0.5, 1.0), CleanerSettings(1, 20, 0.6, 1.0)
    events: list[Any] = []
    settings = iter([one, one, two, two, None])
    works = iter([True, False, ValueError("bad"), True])
    monkeypatch.setattr(cleaner_module, "Cleaner", lambda *how: (events.append(how), how)[1])
    monkeypatch.setattr(made, "_settings_for", lambda number: next(settings))
    monkeypatch.setattr(made, "_pause", lambda given: events.append(("pause", given)))
    monkeypatch.setattr(made, "delete_old_segments", lambda: events.append("retention"))

    def work(number: int, cleaner: Any) -> bool:
        events.append((number, cleaner[0]))
        outcome = next(works)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(made, "clean_filthiest", work)
    made._run(4)
    assert events == [
        (10, 0.5, made._pace), (4, 10), "retention",
        (4, 10), "retention", ("pause", one),
        (20, 0.6, made._pace), (4, 20), ("pause", two),
        (4, 20), "retention",
    ]  # fmt: skip
    assert caplog.messages == ["A round of log cleaner thread 4 failed"]
