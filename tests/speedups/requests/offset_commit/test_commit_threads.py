"""Many connections on several network threads, beside a coordinator that hears, ends and lends."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from speedups.requests.offset_commit.committing import (
    CommitBroker,
    Connection,
    Offset,
    Terms,
    by_python,
    commit,
    entries,
    read,
    success,
)
from waiting import wait_until

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.requests.offset_commit.lease import CommitLease
from kafkapy.records.batches import iter_batches

SECONDS = 2.0
GROUPS = ("a", "b", "c")
WORKERS = 6
SHARED = 999
"""A partition of each group that all of its members commit."""
AT_ONCE = 3
"""Requests of a connection that are on their way together."""


def group_of(number: int) -> str:
    """The group of a member; the network threads, which take connections in turns, have members of several groups."""
    return GROUPS[number // 2 % len(GROUPS)]


class Worker:
    """A member on a thread: it commits growing offsets.

    They are of a partition that no other member commits, and of one that the group shares.
    """

    def __init__(self, connection: Connection, number: int, stop: threading.Event) -> None:
        self.connection = connection
        self.number = number
        self.group = group_of(number)
        self.stop = stop
        self.random = random.Random(number)
        self.served: list[tuple[int, bool]] = []
        """Each offset that a network thread has stored, and whether the shared partition was in its commit."""
        self.by_python = 0
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self.guarded)

    def guarded(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.error = error
            self.stop.set()

    def work(self) -> None:
        offset = 0
        while not self.stop.is_set():
            asked = []
            data = b""
            for _ in range(AT_ONCE):
                offset += 1
                shared = self.random.random() < 0.3
                offsets = [Offset(self.number, offset, self.number, f"{self.number}")]
                if shared:
                    offsets.append(Offset(SHARED, offset, self.number, ""))
                version = self.random.choice((2, 7, 9, 10))
                request = commit([("t", offsets)], group=self.group, member=f"m{self.number}", generation=self.number)
                data += self.connection.frame(request, version)
                asked.append((request, version, self.connection.correlation_id, offset, shared))
            self.connection.send_bytes(data)
            for request, version, correlation_id, number, shared in asked:
                reply = self.connection.receive()
                if reply == success(request, version, correlation_id):
                    self.served.append((number, shared))
                else:
                    assert reply == by_python(request.encode(version), version, correlation_id)
                    self.by_python += 1


class Coordinator:
    """The leases of all groups, and what they have told."""

    def __init__(self, broker: CommitBroker, logs: dict[str, PartitionLog]) -> None:
        self.broker = broker
        self.logs = logs
        self.leases: dict[str, CommitLease] = {}
        self.offsets: dict[tuple[str, int], tuple[int, int, str]] = {}
        """By group and partition: offset, leader epoch, metadata."""
        self.members: set[str] = set()
        self.told = 0

    def lend(self, group: str) -> None:
        numbers = [number for number in range(WORKERS) if group_of(number) == group]
        members = [(f"m{number}", None, number) for number in numbers]
        terms = Terms(group=group, members=members, topics={"t": [*numbers, SHARED]})
        if self.broker.table.takes(self.logs[group]):
            self.leases[group] = terms.lend(self.broker.table, self.logs[group])

    def turn(self, group: str, ends: bool) -> None:
        """Hear of offsets, or end the lease and lend another one."""
        lease = self.leases.get(group)
        if lease is None:
            # A log that looks slow is lent once an append has shown that it is not.
            self.broker.append_marker(self.logs[group])
            self.lend(group)
            return
        told = lease.end() if ends else lease.tell()
        if told is None:
            return
        for topic, partition, offset, leader_epoch, metadata, _ in told[0]:
            assert topic == "t"
            self.offsets[group, partition] = (offset, leader_epoch, metadata)
            self.told += 1
        self.members.update(name for name, _ in told[1])
        if ends:
            del self.leases[group]
            self.lend(group)


@pytest.fixture
def threads() -> Iterator[CommitBroker]:
    broker = CommitBroker(network_threads=3)
    yield broker
    broker.close()


@pytest.mark.parametrize("logs", [1, 3])
def test_what_leases_tell_is_what_the_log_has(threads: CommitBroker, logs: int) -> None:
    """Groups share one log, or have one each."""
    made = [threads.log() for _ in range(logs)]
    coordinator = Coordinator(threads, {group: made[number % logs] for number, group in enumerate(GROUPS)})
    for group in GROUPS:
        coordinator.lend(group)
    stop = threading.Event()
    workers = [Worker(threads.connect(), number, stop) for number in range(WORKERS)]
    for worker in workers:
        worker.thread.start()
    end = time.monotonic() + SECONDS
    turns = 0
    while time.monotonic() < end and not stop.is_set():
        turns += 1
        for group in GROUPS:
            coordinator.turn(group, ends=turns % 5 == 0)
        time.sleep(0)

    def all_have_stored() -> bool:
        for group in GROUPS:
            coordinator.turn(group, ends=True)
        return stop.is_set() or (all(worker.served for worker in workers) and (logs > 1 or has_mixed_batch(made[0])))

    wait_until(all_have_stored, "each member has stored an offset, and a network thread those of two groups at once")
    stop.set()
    for worker in workers:
        worker.thread.join(60)
        assert not worker.thread.is_alive(), "a reply is missing"
    assert [worker.error for worker in workers] == [None] * WORKERS
    for group in GROUPS:
        lease = coordinator.leases.get(group)
        if lease is not None:
            assert not lease.busy
            coordinator.turn(group, ends=True)
    check(coordinator, made, workers)
    assert threads.table.committed == sum(1 + shared for worker in workers for _, shared in worker.served)
    assert len(threads.given) == sum(worker.by_python for worker in workers)


def has_mixed_batch(log: PartitionLog) -> bool:
    """Whether a batch has commits of several groups."""
    return any(len({key.group for key, _ in entries(each.to_bytes())}) > 1 for each in iter_batches(read(log)))


def commits_of(stored: list[Any]) -> list[list[Any]]:
    """The entries of each commit in a batch, of which the last one may be of the shared partition."""
    commits: list[list[Any]] = []
    for entry in stored:
        if entry[0].partition == SHARED:
            commits[-1].append(entry)
        else:
            commits.append([entry])
    return commits


def check(coordinator: Coordinator, logs: list[PartitionLog], workers: list[Worker]) -> None:
    """The logs have what was served, in order; their newest offsets were told."""
    own: dict[int, list[tuple[int, bool]]] = {worker.number: [] for worker in workers}
    newest: dict[tuple[str, int], tuple[int, int, str]] = {}
    for log in logs:
        data = read(log)
        assert log.log_end_offset == log.high_watermark
        next_offset = 0
        for batch in iter_batches(data, check_crc=True):
            assert batch.base_offset == next_offset
            next_offset = batch.next_offset
            for commit_entries in commits_of(entries(batch.to_bytes())):
                first, value = commit_entries[0]
                if first.group == "marker":
                    continue
                shared = len(commit_entries) == 2
                assert len({(key.group, value.offset, value.leader_epoch) for key, value in commit_entries}) == 1
                own[first.partition].append((value.offset, shared))
                for key, value in commit_entries:
                    newest[key.group, key.partition] = (value.offset, value.leader_epoch, value.metadata)
        assert next_offset == log.log_end_offset
    for worker in workers:
        assert own[worker.number] == worker.served
        assert worker.served
    assert coordinator.offsets == newest
    assert coordinator.members == {f"m{worker.number}" for worker in workers}
    assert coordinator.told >= len(newest)
