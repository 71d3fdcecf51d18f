"""The log directories as they are described, and the outcomes of moves that cannot begin."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy import errors
from kafkapy.errors import ErrorCode
from kafkapy.log.log_dir import LogDir
from kafkapy.log.log_table import LogTable
from kafkapy.replica import log_dirs
from kafkapy.replica.log_dirs import HostedLog, LogDirPartition, ReplicaLogDirs, _describe
from kafkapy.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def log(end: int, high_watermark: int = 0, size: int = 0) -> Any:
    return SimpleNamespace(offsets=lambda: (0, end, high_watermark, high_watermark, 0), log_end_offset=end, size=size)


@pytest.mark.parametrize(
    ("hosted", "lag"),
    [
        (HostedLog(T0, log(10, 7)), 0),
        (HostedLog(T0, log(7, 7)), 0),
        (HostedLog(T0, log(5, 7)), 2),
        (HostedLog(T0, log(4), True, log(10)), 6),
        (HostedLog(T0, log(10), True, log(10)), 0),
        (HostedLog(T0, log(4), True, None), -1),
    ],
)
def test_the_lag_of_a_future_log_is_behind_its_log_and_that_of_a_log_behind_the_high_watermark(
    hosted: HostedLog, lag: int
) -> None:
    assert hosted.offset_lag == lag


def test_failed_directories_are_described_last_and_without_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good, odd, cordoned = (LogDir(tmp_path / name) for name in ("bad", "good", "odd", "cordoned"))
    table = LogTable([bad, good, odd, cordoned])
    bad.failure = OSError(errno.EIO, "broken")
    table.cordoned = frozenset({cordoned.path})
    for each in (bad, good, cordoned):
        monkeypatch.setattr(each, "volume", lambda: (1000, 400))

    def volume() -> tuple[int, int]:
        raise OSError(errno.EIO, "it cannot be read")

    monkeypatch.setattr(odd, "volume", volume)
    hosted = {
        str(bad.path): [HostedLog(T0, log(1))],
        str(good.path): [HostedLog(T0, log(5, 7, 300)), HostedLog(T1, log(4, 0, 100), True, log(10))],
        str(odd.path): [HostedLog(T1, log(1, 1, 50))],
    }
    rows = [LogDirPartition(T0, 300, 2, False), LogDirPartition(T1, 100, 6, True)]
    assert _describe(table, hosted) == [
        (str(good.path), ErrorCode.NONE, rows, 1000, 400, False),
        (str(odd.path), ErrorCode.KAFKA_STORAGE_ERROR, [LogDirPartition(T1, 50, 0, False)], -1, -1, False),
        (str(cordoned.path), ErrorCode.NONE, [], 1000, 400, True),
        (str(bad.path), ErrorCode.KAFKA_STORAGE_ERROR, (), -1, -1, False),
    ]


class Futures:
    """Notes which moves begin and which are given up."""

    def __init__(self) -> None:
        self.known: dict[TopicPartition, Any] = {}
        self.created: list[tuple[TopicPartition, Path]] = []
        self.removed: list[TopicPartition] = []

    def get(self, tp: TopicPartition) -> Any:
        return self.known.get(tp)

    def remove(self, tp: TopicPartition) -> None:
        self.removed.append(tp)
        del self.known[tp]

    def create(self, tp: TopicPartition, directory: Path) -> None:
        self.created.append((tp, directory))
        place = SimpleNamespace(log_dir=SimpleNamespace(path=directory))
        self.known[tp] = SimpleNamespace(place=place)

    def is_moving(self, tp: TopicPartition) -> bool:
        return tp in self.known


class Moves:
    """The replicas of one broker in two directories, and what is asked of the threads that move them."""

    def __init__(self, tmp_path: Path) -> None:
        self.dirs = [LogDir(tmp_path / name) for name in ("one", "two")]
        self.table, self.futures = LogTable(self.dirs), Futures()
        self.queued: list[TopicPartition] = []
        self.partitions: dict[TopicPartition, Any] = {}
        self.elsewhere: set[TopicPartition] = set()
        manager: Any = SimpleNamespace(futures=self.futures, table=self.table)
        moves: Any = SimpleNamespace(add=self.queued.append)
        self.log_dirs = ReplicaLogDirs(manager, self.partitions, self.find, moves)

    def host(self, tp: TopicPartition, *, offline: bool = False) -> None:
        self.partitions[tp] = SimpleNamespace(offline=offline, local_log=lambda leader_only: None)

    def find(self, tp: TopicPartition) -> Any:
        if tp in self.elsewhere:
            raise errors.NotLeaderOrFollowerError("another broker hosts it")
        if tp not in self.partitions:
            raise errors.UnknownTopicOrPartitionError("it does not exist")
        return self.partitions[tp]

    def alter(self, tp: TopicPartition, path: Path | str) -> ErrorCode:
        return asyncio.run(self.log_dirs.alter({tp: str(path)}))[tp]


def test_a_move_begins_and_goes_elsewhere(tmp_path: Path) -> None:
    moves = Moves(tmp_path)
    one, two = (each.path for each in moves.dirs)
    moves.host(T0)
    for path, removed in ((two, []), (two, []), (one, [T0])):
        assert moves.alter(T0, path) is ErrorCode.NONE
        assert moves.futures.removed == removed
    assert moves.futures.created == [(T0, two), (T0, two), (T0, one)]
    assert moves.queued == [T0] * 3


def test_a_move_that_cannot_begin_says_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    moves = Moves(tmp_path)
    one, two = (each.path for each in moves.dirs)
    moves.host(T0)
    long = TopicPartition("t" * 220, 0)
    moves.host(long)
    for tp, path, code, text in (
        (long, one, ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long."),
        (T0, f"{one}/", ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir {one}/ is not found in the config."),
        (T0, tmp_path, ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir {tmp_path} is not found in the config."),
        (T1, one, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "it does not exist"),
    ):
        caplog.clear()
        assert moves.alter(tp, path) is code
        assert caplog.messages == [f"Partition {tp} cannot move to another log directory: {text}"]
    assert moves.table.dir_for(T1) is moves.dirs[0], "it is made there if it comes"
    moves.elsewhere.add(T1)
    caplog.clear()
    assert moves.alter(T1, two) is ErrorCode.REPLICA_NOT_AVAILABLE
    assert caplog.messages == []
    assert moves.table.dir_for(T1) is moves.dirs[1]
    moves.table.cordoned = frozenset({two})
    assert moves.alter(T0, two) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert caplog.messages[-1].endswith(f"Log directory {two} is cordoned")
    moves.host(T0, offline=True)
    assert moves.alter(T0, one) is ErrorCode.KAFKA_STORAGE_ERROR
    assert caplog.messages[-1].endswith("Partition t-0 is offline")
    moves.dirs[0].failure = OSError(errno.EIO, "broken")
    assert moves.alter(T1, one) is ErrorCode.KAFKA_STORAGE_ERROR
    assert (moves.futures.created, moves.queued) == ([], [])


def test_only_the_first_failed_moves_of_a_request_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_dirs, "LOGGED_AT_MOST", 2)
    moves = Moves(tmp_path)
    wanted = {TopicPartition("t", number): "/elsewhere" for number in range(5)}
    outcomes = asyncio.run(moves.log_dirs.alter(wanted))
    assert outcomes == dict.fromkeys(wanted, ErrorCode.LOG_DIR_NOT_FOUND)
    assert [each.split()[1] for each in caplog.messages] == ["t-0", "t-1"]
