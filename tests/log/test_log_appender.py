"""Appends on a log directory's threads: awaited together while the directory is quick, told by an event otherwise."""

from __future__ import annotations

import random
import select
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from log.conftest import config, make_batch

from kafkapy import errors
from kafkapy._speedups.base.event_queue import APPENDED, EventQueue
from kafkapy._speedups.log.appender import LogAppender
from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.log.workers import LogWorkers
from kafkapy.log.backends.local import LocalLogStorage
from kafkapy.log.loader import load_log
from kafkapy.types import TopicPartition

BATCH = make_batch(value=b"x" * 300)
LONGEST_WAIT_MS = 60_000


class OwnStorage(LocalLogStorage):
    """Its segments are made when the test says so: an append that needs one does not end before."""

    def prepare_segment(self) -> tuple[int, str]:
        return super().prepare_segment()


class Directory:
    """A few logs on the threads of one directory, and an appender as the control loop has it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.events = EventQueue()
        self.appender = LogAppender(self.events)
        self.workers = [LogWorkers(name, 3) for name in ("segments", "flushes", "appends")]
        self.outcomes: list[Any] = []

    def log(self, name: str, **keys: Any) -> PartitionLog:
        directory = self.root / name
        directory.mkdir()
        log, _ = load_log(OwnStorage(directory), TopicPartition(name, 0), config(**keys), events=self.events)
        log.use_workers(*self.workers)
        log.become_leader(1, 0, [1])
        return log

    def append(self, log: PartitionLog, done: Callable[[Any], None] | None = None) -> None:
        assert self.appender.append(log, BATCH, 0, done or self.outcomes.append)

    def settle(self) -> None:
        assert self.appender.settle() == []

    def told(self) -> bool:
        """Whether an event has told of ends since the last look."""
        return APPENDED in [kind for kind, *_ in self.events.drain()]

    def take_next(self) -> None:
        """Wait for the event that tells of an end."""
        while not self.told():
            poll = select.poll()
            poll.register(self.events.fileno(), select.POLLIN)
            assert poll.poll(LONGEST_WAIT_MS), "no append has ended"
        assert self.appender.take() == []

    def append_together(self, *logs: PartitionLog) -> bool:
        """Append to each; whether all of it was waited for. On a busy machine that may take some attempts."""
        before = len(self.outcomes)
        assert self.appender.hold()
        for log in logs:
            self.append(log)
        self.settle()
        waited = len(self.outcomes) == before + len(logs) and not self.told()
        while len(self.outcomes) < before + len(logs):
            self.take_next()
        return waited

    def until_quick(self, log: PartitionLog) -> None:
        for _ in range(10_000):
            if self.append_together(log):
                return
        raise AssertionError("no append was waited for")

    def stop(self) -> None:
        for each in self.workers:
            each.stop()


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    directory = Directory(tmp_path)
    yield directory
    directory.stop()


def stuck(directory: Directory) -> PartitionLog:
    """The next append of it waits for a segment."""
    log = directory.log("stuck", segment_bytes=500)
    log.append_as_leader(BATCH)
    return log


def test_what_is_gathered_ends_without_an_event(directory: Directory) -> None:
    logs = [directory.log(f"quick-{n}") for n in range(5)]
    for _ in range(10_000):
        if directory.append_together(*logs):
            break
    else:
        raise AssertionError("the appends were never waited for")
    assert len({log.log_end_offset for log in logs}) == 1
    assert directory.outcomes[-5:] == [logs[0].log_end_offset] * 5


def test_what_follows_on_an_append_is_done_in_the_same_call(directory: Directory) -> None:
    log = directory.log("quick")
    for _ in range(10_000):
        seen: list[Any] = []

        def again(outcome: Any, seen: list[Any] = seen) -> None:
            seen.append(outcome)
            if len(seen) < 3:
                directory.append(log, again)

        assert directory.appender.hold()
        assert not directory.appender.hold()
        directory.append(log, again)
        assert seen == []
        directory.settle()
        if len(seen) == 3:
            break
        while len(seen) < 3:
            directory.take_next()
    else:
        raise AssertionError("what followed was never waited for")
    assert seen == [log.log_end_offset - 2, log.log_end_offset - 1, log.log_end_offset]
    assert directory.appender.hold(), "the hold has not ended"
    directory.settle()


def test_appends_that_nobody_gathers_end_with_an_event(directory: Directory) -> None:
    log = directory.log("quick")
    for number in range(5):
        directory.append(log)
        assert directory.outcomes == list(range(1, number + 1))
        directory.take_next()
    assert directory.outcomes == [1, 2, 3, 4, 5]


def test_one_that_does_not_end_is_left_and_nobody_waits_for_its_directory_again(directory: Directory) -> None:
    log, other = stuck(directory), directory.log("quick")
    directory.until_quick(other)
    directory.outcomes.clear()
    assert directory.appender.hold()
    directory.append(log)
    directory.settle()
    assert directory.outcomes == []
    assert directory.appender.hold()
    directory.append(other)
    directory.settle()
    # Given to the threads, but not waited for: an event tells of its end.
    directory.take_next()
    assert directory.outcomes == [other.log_end_offset]
    log.prepare_segment()
    directory.take_next()
    assert directory.outcomes == [other.log_end_offset, log.log_end_offset]
    directory.until_quick(other)


def test_an_error_and_a_failure_of_what_follows_stay_with_their_own(directory: Directory) -> None:
    good, bad = directory.log("good"), directory.log("bad")
    bad.become_follower(2, 1)

    def fails(_: Any) -> None:
        raise ValueError("what follows")

    assert directory.appender.hold()
    directory.append(good, fails)
    directory.append(bad)
    directory.append(good)
    failures = directory.appender.settle()
    while len(directory.outcomes) < 2 or not failures:
        select.select([directory.events.fileno()], [], [], LONGEST_WAIT_MS / 1000)
        directory.events.drain()
        failures += directory.appender.take()
    assert [str(failure) for failure in failures] == ["what follows"]
    assert good.log_end_offset == 2
    # Two threads may have taken one each.
    assert [each in (1, 2) for each in directory.outcomes if isinstance(each, int)] == [True]
    refused = [type(each) for each in directory.outcomes if not isinstance(each, int)]
    assert refused == [errors.FencedLeaderEpochError]


def test_stopped_threads_leave_the_appends_to_the_caller(directory: Directory) -> None:
    log = directory.log("quick")
    assert directory.appender.hold()
    directory.append(log)
    directory.stop()
    directory.settle()
    directory.append(log)
    directory.take_next()
    assert directory.outcomes == [1, 2]


def test_an_appender_may_go_with_appends_gathered_and_on_their_way(directory: Directory) -> None:
    log, other = stuck(directory), directory.log("quick")
    directory.append(log)
    assert directory.appender.hold()
    directory.append(other)
    directory.appender = LogAppender(directory.events)
    log.prepare_segment()
    directory.append(other)
    while directory.outcomes != [1]:
        directory.take_next()
    assert other.log_end_offset == 1


def test_every_append_ends_once_however_it_is_given(directory: Directory) -> None:
    chance = random.Random(7)
    logs = [directory.log(f"log-{n}") for n in range(4)]
    ends: dict[str, list[int]] = {str(n): [] for n in range(4)}
    on_their_way: set[int] = set()
    given = 0

    def give(number: int) -> None:
        nonlocal given
        given += 1
        on_their_way.add(number)

        def done(outcome: int) -> None:
            ends[str(number)].append(outcome)
            on_their_way.discard(number)
            if chance.random() < 0.3:
                give(number)

        directory.append(logs[number], done)

    while given < 3000:
        held = chance.random() < 0.7 and directory.appender.hold()
        for number in range(4):
            if number not in on_their_way and chance.random() < 0.6:
                give(number)
        if held:
            directory.settle()
        elif len(on_their_way) == 4:
            directory.take_next()
    while on_their_way:
        directory.take_next()
    for number, log in enumerate(logs):
        assert ends[str(number)] == list(range(1, log.log_end_offset + 1))
    assert sum(log.log_end_offset for log in logs) == given
