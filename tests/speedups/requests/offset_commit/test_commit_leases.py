"""Leases of offsets: commits that fit are stored, and Python gets all others."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from speedups.conftest import MemoryBroker
from speedups.requests.offset_commit.committing import (
    VERSIONS,
    CommitBroker,
    Offset,
    Terms,
    by_python,
    check_batch,
    commit,
    coordinators_batch,
    entries,
    now_ms,
    read,
    success,
)
from waiting import wait_until

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.requests.offset_commit.lease import MOST_PARTITIONS, CommitLease
from kafkapy._speedups.testing.held_turn import HeldTurn
from kafkapy.log.backends.local import LocalLogStorage
from kafkapy.log.backends.memory import MemoryLogStorage
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest
from kafkapy.records.batches import iter_batches

NOTHING: tuple[list[Any], list[Any]] = ([], [])
F_ADD_SEALS, F_SEAL_WRITE = 1033, 8
"""Of Linux's fcntl: no write to a memfd succeeds any more."""


class Case(NamedTuple):
    """A request that Python must get, beside one that the same lease takes."""

    wrong: OffsetCommitRequest
    right: OffsetCommitRequest = commit()
    terms: Terms = Terms()
    first: int = 2
    last: int = 10


ALONE = Terms(members=(), without_member=True)
"""A group without members."""
MIXED = Terms(without_member=True)
NOBODY = commit(member="", generation=-1)
STATIC = commit(member="s", generation=4, instance="i")
LONG = "m" * 4000
T0 = ("t", [Offset(0, 1)])
CASES = {
    "a batch of more than 64 KB": Case(
        commit([("w", [Offset(number, 1, -1, LONG) for number in range(20)])]),
        commit([("w", [Offset(number, 1, -1, LONG) for number in range(15)])]),
        Terms(topics={"w": range(20)}),
    ),
    "a generation without a member": Case(commit(member="", generation=3), NOBODY, MIXED),
    "a member in a group without members": Case(commit(), NOBODY, ALONE),
    "a topic without partitions": Case(commit([T0, ("u", [])])),
    "another group": Case(commit(group="h")),
    "another group with the same beginning": Case(commit(group="gg")),
    "another member's instance": Case(commit(instance="i"), STATIC, first=7),
    "another static member's instance": Case(commit(member="s", generation=4, instance="j"), STATIC, first=7),
    "a later generation": Case(commit(generation=4)),
    "an earlier generation": Case(commit(generation=2)),
    "an instance that is empty": Case(commit(member="s", generation=4, instance=""), STATIC, first=7),
    "an instance in a generation without a member": Case(
        commit(member="", generation=3, instance="i"), commit(member="", generation=-1, instance="i"), MIXED, first=7
    ),
    "an unknown member": Case(commit(member="x")),
    "an unknown member of a group that takes commits of nobody": Case(commit(member="x"), NOBODY, MIXED),
    "an unknown partition": Case(commit([T0, ("u", [Offset(1, 1)])]), commit([T0, ("u", [Offset(0, 1)])])),
    "an unknown partition of the same topic": Case(commit([("t", [Offset(0, 1), Offset(4, 1)])])),
    "an unknown topic": Case(commit([T0, ("v", [Offset(0, 1)])])),
    "generation 0 without a member": Case(commit(member="", generation=0), NOBODY, ALONE),
    "generation -65533": Case(commit(generation=-65533)),
    "metadata beyond ASCII": Case(
        commit([("t", [Offset(0, 1, -1, "é")])]), commit([("t", [Offset(0, 1, -1, "\x7f")])])
    ),
    "metadata that is too long": Case(
        commit([("t", [Offset(0, 1, -1, "m" * 11)])]),
        commit([("t", [Offset(0, 1, -1, "m" * 10)])]),
        Terms(most_metadata=10),
    ),
    "more partitions than a commit may have": Case(
        commit([("w", [Offset(number, 1) for number in range(MOST_PARTITIONS)]), ("v", [Offset(0, 1)])]),
        commit([("w", [Offset(number, 1) for number in range(MOST_PARTITIONS)])]),
        Terms(topics={"w": range(MOST_PARTITIONS)}),
    ),
    "no generation": Case(commit(generation=-1)),
    "no member": Case(NOBODY),
    "no retention": Case(commit(retention_ms=0), last=4),
    "no topics": Case(commit([])),
    "one partition twice": Case(commit([("t", [Offset(0, 1), Offset(1, 1), Offset(0, 1)])])),
    "one partition twice in two entries": Case(commit([T0, ("u", [Offset(0, 1)]), T0])),
    "partition -1": Case(commit([("t", [Offset(0, 1), Offset(-1, 1)])])),
    "retention": Case(commit(retention_ms=86_400_000), last=4),
    "the empty group": Case(commit(group="")),
}


@pytest.fixture(scope="module")
def log(many: CommitBroker) -> PartitionLog:
    return many.log()


def versions_of(case: Case) -> range:
    with_instance = case.right.group_instance_id is not None or case.wrong.group_instance_id is not None
    return range(max(case.first, 7 if with_instance else 2), case.last + 1)


@pytest.mark.parametrize("what", sorted(CASES))
def test_a_commit_that_does_not_fit_goes_to_python(many: CommitBroker, log: PartitionLog, what: str) -> None:
    case = CASES[what]
    lease = many.lend(log, case.terms)
    try:
        for version in versions_of(case):
            many.check_declined(log, case.wrong, version)
            assert lease.tell() == NOTHING
            many.check_served(log, case.right, version, case.terms.topics)
            many.check_declined(log, case.wrong, version)
            told = lease.tell()
            assert told is not None
            assert sorted(each[:2] for each in told[0]) == sorted(
                (topic.name, each.partition_index) for topic in case.right.topics for each in topic.partitions
            )
    finally:
        lease.end()


def test_instances_count_where_the_group_checks_them(many: CommitBroker, log: PartitionLog) -> None:
    """A group of the consumer protocol looks at member ids only."""
    for checks in (False, True):
        lease = many.lend(log, Terms(checks_instance=checks))
        check = many.check_declined if checks else many.check_served
        for member, generation in (("m", 3), ("s", 4)):
            check(log, commit(member=member, generation=generation, instance="of another"), 9)
        lease.end()


def test_a_topic_may_be_named_twice(many: CommitBroker, log: PartitionLog) -> None:
    lease = many.lend(log)
    request = commit([("t", [Offset(2, 1)]), ("u", [Offset(0, 2)]), ("t", [Offset(1, 3), Offset(0, 4)])])
    for version in VERSIONS:
        many.check_served(log, request, version)
    lease.end()


@pytest.mark.parametrize("version", [0, 1])
def test_old_versions_are_served_by_python(many: CommitBroker, log: PartitionLog, version: int) -> None:
    lease = many.lend(log, MIXED)
    many.check_declined(log, NOBODY, version)
    many.check_declined(log, commit(), version)
    assert lease.end() == NOTHING


def test_versions_below_the_oldest_of_the_group_go_to_python(many: CommitBroker, log: PartitionLog) -> None:
    for oldest in (2, 3, 9, 10, 11):
        lease = many.lend(log, Terms(oldest_version=oldest))
        for version in VERSIONS:
            if version < oldest:
                many.check_declined(log, commit(), version)
            else:
                many.check_served(log, commit(), version)
        lease.end()


def test_topic_ids_are_those_of_the_lease(many: CommitBroker, log: PartitionLog) -> None:
    """A topic without an id has a name only."""
    lease = many.table.lend(
        "g", log, 0, [("m", None, 3)], [("t", None, [0]), ("u", bytes(range(16)), [0])],
        without_member=False, checks_instance=True, oldest_version=0, most_metadata=10,
    )  # fmt: skip
    many.check_served(log, commit(), 9)
    many.check_declined(log, commit(), 10)
    many.check_declined(log, commit([("u", [Offset(0, 1)])]), 10)
    request = commit([("u", [Offset(0, 1)])])
    body = request.encode(10).replace(request.topics[0].topic_id.bytes, bytes(range(16)))
    reply = many.serve(log, body, 10)
    assert reply == success(OffsetCommitRequest.decode(body, 10), 10, many.connection.correlation_id)
    check_batch(log, log.log_end_offset - 1, "g", [("u", 0, 1, -1, "")])
    lease.end()
    with pytest.raises(ValueError, match="topic id"):
        many.table.lend(
            "g", log, 0, [], [("t", b"short", [0])],
            without_member=False, checks_instance=True, oldest_version=0, most_metadata=10,
        )  # fmt: skip
    assert len(many.table) == 0


# --- logs ---------------------------------------------------------------------------------------------------------


def two_in_sync(log: PartitionLog) -> None:
    log.become_leader(1, 0, (1, 2), (1, 2))


def one_about_to_be_in_sync(log: PartitionLog) -> None:
    assert log.set_isr(1, (1,), (1, 2))


CHANGES: dict[str, Callable[[PartitionLog], Any]] = {
    "a flush for each record": lambda log: log.update_config(MemoryBroker.log_config(flush_messages=1)),
    "a follower": lambda log: log.become_follower(2, 0),
    "a follower of a later epoch": lambda log: log.become_follower(2, 1),
    "a replica about to be in sync": one_about_to_be_in_sync,
    "a second replica in sync": two_in_sync,
    "a small max.message.bytes": lambda log: log.update_config(MemoryBroker.log_config(max_message_bytes=100)),
    "another epoch": lambda log: log.become_leader(1, 1, (1,)),
    "min.insync.replicas 2": lambda log: log.update_config(MemoryBroker.log_config(min_insync_replicas=2)),
    "no disk": lambda log: log.go_offline(errno.EIO),
    "no log": lambda log: log.mark_deleted(),
}


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_a_log_that_does_not_commit_at_once_gets_nothing(commits: CommitBroker, change: str) -> None:
    log = commits.log()
    lease = commits.lend(log)
    commits.check_served(log, commit(), 8)
    assert lease.tell() is not None
    CHANGES[change](log)
    for version in (2, 9, 10):
        commits.check_declined(log, commit(), version)
    assert lease.end() == NOTHING


CONFIGS: list[dict[str, Any]] = [
    {"cleanup_policy": ["compact"]},
    {"compression_type": "gzip"},
    {"message_timestamp_type": "LogAppendTime"},
    {"timestamp_after_max_ms": 0, "timestamp_before_max_ms": 0},
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: "-".join(config))
def test_a_logs_config_counts_as_for_the_coordinator(commits: CommitBroker, config: dict[str, Any]) -> None:
    log, other = commits.log(**config), commits.log(**config)
    lease = commits.lend(log)
    commits.serve(log, commit(), 9)
    ((*offset, time_ms),) = lease.newest()
    batch = coordinators_batch("g", [tuple(offset)], time_ms)  # type: ignore[list-item]
    other.append_as_leader(batch, leader_epoch=0, now_ms=time_ms)
    (stored,) = list(iter_batches(read(log), check_crc=True))[-1:]
    (wanted,) = iter_batches(read(other), check_crc=True)
    assert (stored.attributes, stored.payload()) == (wanted.attributes, wanted.payload())
    if "message_timestamp_type" not in config:
        assert stored.max_timestamp == wanted.max_timestamp == time_ms


def test_a_lease_of_another_epoch_stores_nothing(commits: CommitBroker) -> None:
    log = commits.log(epoch=5)
    for epoch in (4, 6):
        lease = commits.lend(log, Terms(log_epoch=epoch))
        commits.check_declined(log, commit(), 8)
        assert lease.end() == NOTHING
    lease = commits.lend(log, Terms(log_epoch=5))
    commits.check_served(log, commit(), 8)
    lease.end()


def test_a_log_that_does_not_commit_at_once_has_no_leases(commits: CommitBroker) -> None:
    assert not commits.table.takes(commits.log(flush_messages=1))
    assert not commits.table.takes(commits.log(isr=(1, 2)))
    behind = commits.log(isr=(1, 2))
    commits.append_marker(behind)
    assert behind.high_watermark < behind.log_end_offset
    assert not commits.table.takes(behind)
    assert len(commits.table) == 0
    commits.lend(commits.log()).end()


def test_a_write_that_fails_leaves_nothing(commits: CommitBroker) -> None:
    files: list[int] = []

    class Storage(MemoryLogStorage):
        """A segment that the test has a descriptor of."""

        def prepare_segment(self) -> tuple[int, str]:
            fd = os.memfd_create("segment", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            files.append(os.dup(fd))
            return fd, ""

    log = commits.log(storage=Storage("offsets"))
    lease = commits.lend(log)
    commits.check_served(log, commit(), 8)
    lease.tell()
    before = read(log)
    for fd in files:
        fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE)
    commits.check_declined(log, commit(), 8)
    commits.check_declined(log, commit(), 10)
    assert os.pread(files[0], 1 << 20, 0) == before
    assert lease.end() == NOTHING
    for fd in files:
        os.close(fd)


def test_a_commit_does_not_wait_for_a_slow_append(commits: CommitBroker) -> None:
    log = commits.log()
    lease = commits.lend(log)
    turn = HeldTurn(log)
    for version in (2, 10):
        commits.check_declined(log, commit(), version)
    assert turn.queue == 0
    turn.end()
    commits.check_served(log, commit(), 9)
    told = lease.end()
    assert told is not None and len(told[0]) == 1


def test_a_log_on_a_disk_that_rolls(commits: CommitBroker, tmp_path: Path) -> None:
    """Python appends what finds no segment: each offset is there once, in order."""
    log = commits.log(storage=LocalLogStorage(tmp_path), segment_bytes=1000)
    lease = commits.lend(log)
    served = 0
    for offset in range(100):
        body = commit([("t", [Offset(0, offset)])]).encode(9)
        reply = commits.connection.ask(body, 9)
        if reply == by_python(body, 9, commits.connection.correlation_id):
            assert log.log_end_offset == offset
            batch = coordinators_batch("g", [("t", 0, offset, -1, "")], now_ms())
            log.append_as_leader(batch, leader_epoch=0)
        else:
            assert reply == success(OffsetCommitRequest.decode(body, 9), 9, commits.connection.correlation_id)
            served += 1
            assert [each[:3] for each in lease.newest()] == [("t", 0, offset)]
    assert served > 0
    assert len(log.segments()) > 5
    data = b"".join(path.read_bytes() for path in sorted(tmp_path.glob("*.log")))
    assert [value.offset for _, value in entries(data)] == list(range(100))
    lease.end()


# --- what the coordinator hears -----------------------------------------------------------------------------------


def told(lease: CommitLease) -> tuple[list[tuple[str, int, int, int, str]], list[str]]:
    """The offsets and members that a lease tells, without times."""
    heard = lease.tell()
    assert heard is not None
    assert all(0 <= ago_ms < 86_400_000 for _, ago_ms in heard[1])
    return [each[:5] for each in heard[0]], sorted(name for name, _ in heard[1])


def test_each_partition_is_told_once_with_its_newest_offset(commits: CommitBroker) -> None:
    log = commits.log()
    lease = commits.lend(log, MIXED)
    assert told(lease) == ([], []) and lease.newest() == []
    for request in (
        commit([("t", [Offset(0, 1, 2, "a"), Offset(3, 2)])]),
        commit([("t", [Offset(0, 5, 7, None)])]),
        commit([("u", [Offset(0, 9, 1, "u")]), ("t", [Offset(3, 1, 3, "back")])], member="s", generation=4),
        commit([("t", [Offset(2, 4)])], member="", generation=-1),
    ):
        commits.check_served(log, request, 9)
    newest = lease.newest()
    assert newest == lease.newest(), "looking does not take"
    wanted = [("t", 0, 5, 7, ""), ("t", 3, 1, 3, "back"), ("u", 0, 9, 1, "u"), ("t", 2, 4, -1, "")]
    assert [each[:5] for each in newest] == wanted
    assert newest[1][5] == newest[2][5], "one commit has one time"
    assert told(lease) == (wanted, ["m", "s"]), "nobody is no member"
    assert told(lease) == ([], []) and lease.newest() == []
    commits.check_served(log, commit(), 9)
    ended = lease.end()
    assert ended is not None
    assert ([each[:5] for each in ended[0]], [name for name, _ in ended[1]]) == ([("t", 0, 10, 1, "x")], ["m"])
    assert lease.end() == lease.tell() == NOTHING and lease.newest() == [] and not lease.busy


def test_a_told_time_is_that_of_the_record(commits: CommitBroker) -> None:
    log = commits.log()
    lease = commits.lend(log)
    commits.check_served(log, commit(), 9)
    ((*_, time_ms),) = lease.newest()
    assert check_batch(log, log.log_end_offset - 1, "g", [("t", 0, 10, 1, "x")]) == time_ms


@pytest.mark.parametrize("way", ["abandon", "end"])
def test_after_its_end_a_lease_stores_nothing(commits: CommitBroker, way: str) -> None:
    log = commits.log()
    lease = commits.lend(log)
    assert len(commits.table) == 1
    with pytest.raises(RuntimeError, match="'g' has a lease"):
        commits.lend(log)
    other = commits.lend(log, Terms(group="h"))
    assert len(commits.table) == 2
    commits.check_served(log, commit(), 8)
    if way == "end":
        assert lease.end() is not None
    else:
        assert lease.abandon() is False
        assert [each[:3] for each in lease.newest()] == [("t", 0, 10)], "the log has it all the same"
    assert len(commits.table) == 1
    commits.check_declined(log, commit(), 8)
    commits.check_served(log, commit(group="h"), 8)
    assert other.end() is not None
    again = commits.lend(log, replace(Terms(), members=[("m", None, 4)]))
    assert lease.end() is not None and lease.abandon() is False
    assert len(commits.table) == 1, "another lease than the one that has ended"
    commits.check_declined(log, commit(), 8)
    commits.check_served(log, commit(generation=4), 8)
    assert told(again) == ([("t", 0, 10, 1, "x")], ["m"])


def test_a_lease_lives_as_long_as_the_table_has_it(commits: CommitBroker) -> None:
    log = commits.log()
    Terms().lend(commits.table, log)
    commits.check_served(log, commit(), 8)
    assert len(commits.table) == 1
    with pytest.raises(TypeError):
        CommitLease()


def test_a_lease_has_at_most_500_partitions(commits: CommitBroker) -> None:
    log = commits.log()
    for topics in ({"t": range(MOST_PARTITIONS + 1)}, {"t": range(MOST_PARTITIONS), "u": [0]}):
        with pytest.raises(ValueError, match="at most 500"):
            Terms(topics=topics).lend(commits.table, log)
    assert len(commits.table) == 0
    assert commits.lend(log, Terms(topics={"t": range(MOST_PARTITIONS), "u": []})).end() == NOTHING


def test_members_are_told_with_the_time_since_their_commit(commits: CommitBroker) -> None:
    log = commits.log()
    lease = commits.lend(log)
    for request in (commit(), STATIC, commit()):
        commits.check_served(log, request, 9)
    heard = lease.tell()
    assert heard is not None
    ago = dict(heard[1])
    assert set(ago) == {"m", "s"} and 0 <= ago["m"] <= ago["s"], "s has committed before the last commit of m"


def busy_lease(broker: CommitBroker, log: PartitionLog, act: Callable[[CommitLease], bool]) -> CommitLease:
    """A lease for which `act` says that it met a commit under way.

    The commit waits for a turn that is held.
    """
    found: list[CommitLease] = []

    def meets() -> bool:
        lease = broker.lend(log)
        turn = HeldTurn(log)
        try:
            broker.connection.send(commit(), 8)
            wait_until(lambda: lease.busy or broker.given, "the commit is under way")
            if act(lease):
                found.append(lease)
        finally:
            broker.connection.receive()
            turn.end()
            broker.given.clear()
        if not found:
            lease.end()
        broker.append_marker(log)
        broker.append_marker(log)
        return bool(found)

    wait_until(meets, "a call meets a commit under way")
    return found[0]


def test_a_commit_under_way_is_not_waited_for(commits: CommitBroker) -> None:
    log = commits.log()
    lease = busy_lease(commits, log, lambda lease: lease.tell() is None)
    assert told(lease) == ([], []), "the commit has gone to Python"
    commits.check_served(log, commit(), 8)
    assert told(lease) == ([("t", 0, 10, 1, "x")], ["m"])
    lease.end()
    lease = busy_lease(commits, log, lambda lease: lease.busy and lease.newest() == [])
    assert not lease.busy
    lease.end()


def test_an_end_that_meets_a_commit_is_called_again(commits: CommitBroker) -> None:
    log = commits.log()
    lease = busy_lease(commits, log, lambda lease: lease.end() is None)
    assert len(commits.table) == 1
    with pytest.raises(RuntimeError, match="has a lease"):
        commits.lend(log)
    for _ in range(5):
        commits.check_declined(log, commit(), 8)
        commits.append_marker(log)
    assert lease.end() == NOTHING
    assert len(commits.table) == 0
    lease = busy_lease(commits, log, lambda lease: lease.abandon())
    assert len(commits.table) == 0 and not lease.busy
    commits.check_declined(log, commit(), 8)
