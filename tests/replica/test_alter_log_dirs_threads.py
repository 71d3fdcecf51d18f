"""The threads that move replicas between log directories: how many there are, what each takes, and their end."""

from __future__ import annotations

import threading
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.config.broker import BrokerConfig
from kafkapy.log.future_logs import Progress
from kafkapy.replica import alter_log_dirs
from kafkapy.replica.alter_log_dirs import BACKOFF_S, ReplicaAlterLogDirsManager
from kafkapy.types import TopicPartition

TPS = [TopicPartition("t", number) for number in range(5)]
T0 = TPS[0]


class Futures:
    """Future logs that advance as the test says."""

    def __init__(self) -> None:
        self.pace = SimpleNamespace(bytes_per_second=0.0, stop=lambda: self.stopped.append("pace"))
        self.stopped: list[str] = []
        self.known: dict[TopicPartition, Any] = {}
        self.steps: deque[tuple[Any, int, bool]] = deque()
        """Of each step: progress or an error, the position afterwards, whether the partition is moving then."""
        self.advanced: list[TopicPartition] = []
        self.at, self.moving = 0, False

    def all(self) -> dict[TopicPartition, Any]:
        return self.known

    def position(self, tp: TopicPartition) -> int:
        return self.at

    def is_moving(self, tp: TopicPartition) -> bool:
        return self.moving

    def advance(self, tp: TopicPartition) -> Progress:
        self.advanced.append(tp)
        progress, self.at, self.moving = self.steps.popleft()
        if isinstance(progress, Exception):
            raise progress
        assert isinstance(progress, Progress)
        return progress


class Thread:
    """A thread that the test runs, or not."""

    made: list[Thread]

    def __init__(self, *, target: Any, name: str, daemon: bool) -> None:
        assert daemon
        self.run, self.name, self.did = target, name, ["made"]
        Thread.made.append(self)

    def start(self) -> None:
        self.did.append("started")

    def join(self) -> None:
        self.did.append("joined")


class Event:
    """The sign to stop, whose pauses are noted."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.signs: list[bool] = []
        self.is_on = False

    def set(self) -> None:
        self.is_on = True

    def is_set(self) -> bool:
        return self.is_on

    def wait(self, seconds: float) -> None:
        self.pauses.append(seconds)


@pytest.fixture
def futures(monkeypatch: pytest.MonkeyPatch) -> Futures:
    Thread.made = []
    fake = SimpleNamespace(Thread=Thread, Lock=threading.Lock, Event=Event, current_thread=lambda: Thread.made[0])
    monkeypatch.setattr(alter_log_dirs, "threading", fake)
    return Futures()


def config(**keys: str) -> BrokerConfig:
    return BrokerConfig({"log.dirs": "/one,/two,/three"} | {name.replace("_", "."): keys[name] for name in keys})


def moves(futures: Futures, **keys: str) -> Any:
    manager: Any = SimpleNamespace(futures=futures)
    return ReplicaAlterLogDirsManager(config(**keys), manager)


@pytest.mark.parametrize(("keys", "threads"), [({}, 3), ({"num_replica_alter_log_dirs_threads": "2"}, 2)])
def test_there_are_as_many_threads_as_directories_or_as_configured(
    futures: Futures, keys: dict[str, str], threads: int
) -> None:
    made = moves(futures, **keys)
    for tp in (*TPS, T0):
        made.add(tp)
    assert [each.name for each in Thread.made] == [f"ReplicaAlterLogDirsThread-{n}" for n in range(threads)]
    assert all(each.did == ["made", "started"] for each in Thread.made)
    assert (list(made._queue), made._known) == (TPS, set(TPS))
    made.update_config(config(num_replica_alter_log_dirs_threads="4"))
    made.add(TopicPartition("u", 0))
    assert len(Thread.made) == threads + 1


@pytest.mark.parametrize(("rate", "pace"), [("1", 1.0), ("2", 2.0), ("12345", 12345.0)])
def test_the_pace_is_the_configured_one(futures: Futures, rate: str, pace: float) -> None:
    made = moves(futures, replica_alter_log_dirs_io_max_bytes_per_second=rate)
    assert futures.pace.bytes_per_second == pace
    made.update_config(config(replica_alter_log_dirs_io_max_bytes_per_second="77"))
    assert futures.pace.bytes_per_second == 77.0


@pytest.mark.parametrize("end", [Progress.DONE, Progress.ENDED, Progress.FAILED])
def test_a_thread_moves_one_partition_after_the_other_and_ends(futures: Futures, end: Progress) -> None:
    made = moves(futures, num_replica_alter_log_dirs_threads="1")
    for tp in TPS[:2]:
        made.add(tp)
    copying = Progress.COPYING
    futures.steps.extend([(copying, 5, True), (copying, 5, True), (copying, 6, True), (end, 7, False), (end, 7, False)])
    [thread] = Thread.made
    thread.run()
    assert futures.advanced == [T0] * 4 + [TPS[1]]
    # A step that copied nothing is followed by a pause.
    assert made._stopping.pauses == [BACKOFF_S]
    assert (made._queue, made._known, made._threads) == (deque(), set(), set())
    made.add(T0)
    assert [each.name for each in Thread.made] == [f"ReplicaAlterLogDirsThread-{n}" for n in range(2)]


def test_a_move_that_fails_is_told_and_one_that_can_go_on_is_queued_again(
    futures: Futures, caplog: pytest.LogCaptureFixture
) -> None:
    made = moves(futures)
    made.add(T0)
    futures.steps.extend([(ValueError("a mistake"), 3, True), (Progress.ENDED, 3, True), (Progress.DONE, 9, False)])
    Thread.made[0].run()
    assert futures.advanced == [T0] * 3
    assert made._stopping.pauses == [BACKOFF_S] * 2
    assert (caplog.messages, made._known) == (["The move of t-0 failed"], set())


def test_the_end_stops_the_copies_and_waits_for_the_threads(futures: Futures) -> None:
    made = moves(futures)
    made.add(T0)
    futures.known = {
        TPS[1]: SimpleNamespace(copy=None),
        TPS[2]: SimpleNamespace(copy=SimpleNamespace(stop=lambda: futures.stopped.append("copy"))),
    }
    made.stop()
    [thread] = Thread.made
    assert (futures.stopped, thread.did) == (["pace", "copy"], ["made", "started", "joined"])
    assert made._stopping.is_set()
    thread.run()
    assert (futures.advanced, made._threads) == ([], set())
    made.add(TPS[3])
    assert (len(Thread.made), list(made._queue)) == (1, [T0])
    made._move(T0)
    assert futures.advanced == []
