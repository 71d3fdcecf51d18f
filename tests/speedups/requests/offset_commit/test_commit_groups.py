"""Commits of several connections to one log, which a network thread appends together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speedups.conftest import MemoryBroker
from speedups.requests.offset_commit.committing import (
    KEY,
    TRIES,
    CommitBroker,
    Offset,
    Terms,
    Told,
    commit,
    committed,
    entries,
    read,
    success,
    told_of,
)

from kafkapy._speedups.base.event_queue import EventQueue
from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.requests.client_quotas import QuotaSensor
from kafkapy._speedups.requests.data_plane import DataPlane
from kafkapy._speedups.requests.fetch_session import FetchSessionCache
from kafkapy._speedups.requests.offset_commit.lease import CommitLease, CommitTable
from kafkapy._speedups.requests.partition_table import PartitionTable
from kafkapy._speedups.testing.request_driver import (
    ASK,
    GATHERED,
    PYTHON,
    REPLY,
    RESUME,
    Exchange,
    RequestDriver,
    settle_group,
)
from kafkapy.log.backends.memory import MemoryLogStorage
from kafkapy.protocol.messages.offset_commit import OffsetCommitRequest
from kafkapy.records.batches import iter_batches

VERSION = 9
MOST = 64  # members of a group
MOST_BYTES = 65536  # of a batch
GROUPS = ("a", "b", "c")


class Rig:
    """A data plane, leases of GROUPS in one log, and a connection for each request of a turn."""

    def __init__(self, **terms: Any) -> None:
        self.events = EventQueue()
        self.plane = DataPlane(1, PartitionTable(), FetchSessionCache(10), self.events)
        self.table = CommitTable(self.plane)
        self.log = self.new_log(0)
        self.leases: dict[str, CommitLease] = {group: self.lend(group, **terms) for group in GROUPS}
        self.drivers: list[RequestDriver] = []

    def new_log(self, number: int) -> PartitionLog:
        storage = MemoryLogStorage(f"__consumer_offsets-{number}")
        log = PartitionLog("__consumer_offsets", number, storage, MemoryBroker.log_config(), events=self.events)
        log.prepare_segment()
        log.become_leader(1, 0, (1,))
        return log

    def lend(self, group: str, log: PartitionLog | None = None, **terms: Any) -> CommitLease:
        return Terms(group=group, **terms).lend(self.table, log or self.log)

    def make_quick(self) -> None:
        """Appends markers until the log takes commits: on a busy machine it may look slow until another append."""
        for _ in range(TRIES):
            if CommitTable.takes(self.log):
                return
            CommitBroker.append_marker(self.log)
        raise AssertionError("the log looks slow")

    def settle(self, exchanges: list[Exchange]) -> None:
        """What one turn does: a group, then those that it has left alone."""
        self.make_quick()
        settle_group(exchanges)

    def go_on(self, exchange: Exchange) -> None:
        if exchange.kind == RESUME:
            self.make_quick()
            exchange.resume()

    def send(self, number: int, request: OffsetCommitRequest, *, gathers: bool = True) -> Exchange:
        self.make_quick()
        while len(self.drivers) <= number:
            self.drivers.append(RequestDriver(self.plane))
        return self.drivers[number].handle(KEY, VERSION, number, "c", request.encode(VERSION), gathers)

    def gather(self, requests: list[OffsetCommitRequest]) -> list[Exchange]:
        exchanges = [self.send(number, request) for number, request in enumerate(requests)]
        assert {exchange.kind for exchange in exchanges} == {GATHERED}
        return exchanges

    def stored(self) -> list[tuple[str, Told]]:
        """Group and offset of each record in the log."""
        found = entries(read(self.log))
        stored = [(key.group, told) for (key, _), told in zip(found, told_of(found), strict=True)]
        return [each for each in stored if each[0] != "marker"]

    def batches(self) -> list[list[str]]:
        """The groups of the records of each batch."""
        found = [entries(batch.to_bytes()) for batch in iter_batches(read(self.log), check_crc=True)]
        groups = [[key.group for key, _ in each] for each in found]
        return [each for each in groups if each != ["marker"]]

    def told(self) -> dict[str, Any]:
        """What the leases tell: offsets without their time, and who committed."""
        heard = {group: lease.end() for group, lease in self.leases.items()}
        assert None not in heard.values()
        return {
            group: ([each[:5] for each in told[0]], [name for name, _ in told[1]])
            for group, told in heard.items()
            if told is not None
        }


# --- alone or together ------------------------------------------------------------------------------------------------

OFFSETS = st.builds(
    Offset,
    st.sampled_from([0, 1, 2, 3, 3, 9]),
    st.integers(0, 1 << 40),
    st.integers(-1, 5),
    st.sampled_from(["", "", "x", None, "\u00e9", "y" * 5000]),
)
COMMITS = st.builds(
    lambda topic, offsets, group, who: commit(
        [(topic, offsets)], group=group, member=who[0], generation=who[1], instance=who[2]
    ),
    st.sampled_from(["t", "t", "t", "u", "unknown"]),
    st.lists(OFFSETS, min_size=1, max_size=4),
    st.sampled_from([*GROUPS, *GROUPS, "nobody's"]),
    st.sampled_from(
        [("m", 3, None), ("m", 3, None), ("s", 4, "i"), ("s", 4, "j"), ("m", 2, None), ("n", 3, None), ("", -1, None)]
    ),
)


@pytest.mark.parametrize("without_member", [False, True])
@settings(max_examples=150)
@given(turns=st.lists(st.lists(COMMITS, min_size=1, max_size=10), min_size=1, max_size=3))
def test_commits_together_are_commits_one_after_the_other(
    without_member: bool, turns: list[list[OffsetCommitRequest]]
) -> None:
    together, alone = Rig(without_member=without_member), Rig(without_member=without_member)
    wanted: list[tuple[str, Told]] = []
    for turn in turns:
        exchanges = [together.send(number, request) for number, request in enumerate(turn)]
        singles = [alone.send(number, request, gathers=False) for number, request in enumerate(turn)]
        gathered = [exchange for exchange in exchanges if exchange.kind == GATHERED]
        if gathered:
            together.settle(gathered)
        first = [number for number, exchange in enumerate(exchanges) if exchange.kind == REPLY]
        for exchange in exchanges:
            together.go_on(exchange)
        for exchange, single in zip(exchanges, singles, strict=True):
            assert (exchange.kind, exchange.reply) == (single.kind, single.reply)
            assert exchange.kind in (REPLY, PYTHON)
        served = [number for number, exchange in enumerate(exchanges) if exchange.kind == REPLY]
        assert first == served
        for number in served:
            request = turn[number]
            wanted += [(request.group_id, offset) for offset in committed(request, VERSION, {})]
    assert together.stored() == alone.stored() == wanted
    assert len(together.batches()) <= len(turns)
    assert together.table.committed == alone.table.committed == len(wanted)
    assert together.told() == alone.told()


def test_a_full_group_makes_one_batch(rig: Rig) -> None:
    members = [(f"m{number}", None, number) for number in range(MOST)]
    rig.leases["d"] = rig.lend("d", members=members, topics={"t": range(MOST)})
    requests = [
        commit([("t", [Offset(n, n + 100)])], group="d", member=f"m{n}", generation=n) for n in range(MOST)
    ]
    exchanges = rig.gather(requests)
    rig.settle(exchanges)
    for number, (exchange, request) in enumerate(zip(exchanges, requests, strict=True)):
        assert exchange.reply is not None and exchange.reply[4:] == success(request, VERSION, number)
    assert rig.batches() == [["d"] * MOST]
    assert rig.log.log_end_offset == rig.log.high_watermark >= MOST
    told = rig.told()["d"]
    assert told[0] == [("t", n, n + 100, -1, "") for n in range(MOST)]
    assert sorted(told[1]) == sorted(name for name, _, _ in members)


def test_what_has_no_room_is_stored_by_itself(rig: Rig) -> None:
    size = 4000
    requests = [commit([("t", [Offset(n % 4, n, 0, "x" * size)])], group="a") for n in range(MOST)]
    exchanges = rig.gather(requests)
    rig.settle(exchanges)
    late = [number for number, exchange in enumerate(exchanges) if exchange.kind == RESUME]
    assert late == list(range(MOST - len(late), MOST))
    assert MOST_BYTES // (size + 200) <= MOST - len(late) <= MOST_BYTES // size
    for number in late:
        rig.go_on(exchanges[number])
    assert {exchange.kind for exchange in exchanges} == {REPLY}
    assert [told[2] for _, told in rig.stored()] == list(range(MOST))
    assert all(len(batch.to_bytes()) < MOST_BYTES + 200 for batch in iter_batches(read(rig.log)))


# --- what happens in between ------------------------------------------------------------------------------------------


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_lease_that_has_ended_meanwhile_stores_nothing(rig: Rig) -> None:
    exchanges = rig.gather([commit(group=group) for group in "abab"])
    assert rig.leases.pop("a").end() == ([], [])
    rig.settle(exchanges)
    assert [exchange.kind for exchange in exchanges] == [RESUME, REPLY, RESUME, REPLY]
    for exchange in exchanges:
        rig.go_on(exchange)
    assert [exchange.kind for exchange in exchanges] == [PYTHON, REPLY, PYTHON, REPLY]
    assert {group for group, _ in rig.stored()} == {"b"}


def test_leases_of_another_leadership_are_left_out(rig: Rig) -> None:
    rig.leases["d"] = rig.lend("d", log_epoch=7)
    exchanges = rig.gather([commit(group=group) for group in "adb"])
    rig.settle(exchanges)
    assert [exchange.kind for exchange in exchanges] == [REPLY, RESUME, REPLY]
    rig.go_on(exchanges[1])
    assert exchanges[1].kind == PYTHON
    assert [group for group, _ in rig.stored()] == ["a", "b"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda log: log.become_follower(2, 1),
        lambda log: log.become_leader(1, 1, (1,)),
        lambda log: log.become_leader(1, 0, (1, 2)),
        lambda log: log.close(),
    ],
    ids=["follower", "next epoch", "more replicas", "closed"],
)
def test_commits_that_do_not_commit_are_all_pythons(rig: Rig, spoil: Callable[[PartitionLog], object]) -> None:
    exchanges = rig.gather([commit(group=group) for group in "abca"])
    spoil(rig.log)
    settle_group(exchanges)
    assert {exchange.kind for exchange in exchanges} == {RESUME}
    for exchange in exchanges:
        exchange.resume()
    assert {exchange.kind for exchange in exchanges} == {PYTHON}
    assert rig.table.committed == 0
    assert rig.told() == {group: ([], []) for group in GROUPS}


def test_a_connection_that_is_gone_leaves_nothing(rig: Rig) -> None:
    exchanges = rig.gather([commit(group=group) for group in "abc"])
    exchanges[1].cancel()
    rig.settle([exchanges[0], exchanges[2]])
    assert [group for group, _ in rig.stored()] == ["a", "c"]


# --- who is gathered --------------------------------------------------------------------------------------------------


def test_each_log_has_a_group_of_its_own(rig: Rig) -> None:
    rig.leases["d"] = rig.lend("d", rig.new_log(1))
    first, second, other = rig.gather([commit(group=group) for group in "abd"])
    assert first.group == second.group != other.group


def test_a_commit_that_python_serves_is_not_gathered(rig: Rig) -> None:
    assert rig.send(0, commit(group="unknown")).kind == PYTHON
    assert rig.send(0, commit([("unknown", [Offset(0, 1)])], group="a")).kind == PYTHON


def test_a_commit_alone_is_answered_at_once(rig: Rig) -> None:
    assert rig.send(0, commit(group="a"), gathers=False).kind == REPLY


def test_a_client_with_a_quota_is_answered_at_once(rig: Rig) -> None:
    rig.send(0, commit(group="a"), gathers=False)
    rig.drivers[0].set_quotas(request=QuotaSensor(1e9))
    assert rig.send(0, commit(group="a")).kind == REPLY


def test_authorization_is_asked_before(rig: Rig) -> None:
    rig.plane.authorizer_epoch = 1
    exchange = rig.send(0, commit(group="a"))
    assert exchange.kind == ASK
    questions = exchange.questions
    rig.drivers[0].decide(dict.fromkeys(questions, True))
    assert exchange.resume().kind == REPLY
    assert rig.send(0, commit(group="a")).kind == GATHERED
    rig.drivers[0].decide({**dict.fromkeys(questions, True), questions[-1]: False})
    assert rig.send(0, commit(group="a")).kind == PYTHON


def test_a_commit_of_many_partitions_is_answered_at_once(rig: Rig) -> None:
    rig.leases["d"] = rig.lend("d", topics={"t": range(40)})
    few, many = (commit([("t", [Offset(n, 1) for n in range(count)])], group="d") for count in (16, 17))
    assert rig.send(0, few).kind == GATHERED
    assert rig.send(1, many).kind == REPLY
