"""Operations of groups whose offsets network threads append: with a scripted table, which may be busy at any time."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from coordinator.group.conftest import DELAY_MS, GROUP, PARTITION, SESSION_MS, GroupBench

from kafkapy.coordinator.group import leases
from kafkapy.coordinator.group.classic.requests import ClientInfo
from kafkapy.coordinator.group.coordinator import BUSY_PAUSE_MS, LONGEST_BUSY_PAUSE_MS, GroupCoordinator
from kafkapy.coordinator.group.offset_requests import NewOffset, OffsetCommit
from kafkapy.coordinator.result import Later, ProducerStamp
from kafkapy.errors import ErrorCode, code_of
from kafkapy.testing.coordinator import MemoryWriter
from kafkapy.testing.share import share_parts
from kafkapy.types import TopicPartition

Told = tuple[list[tuple[str, int, int, int, str, int]], list[tuple[str, int]]]
TOPIC = TopicPartition("topic", 0)
CLIENT = ClientInfo("client", "/127.0.0.1", 8)


class Lease:
    """A lease that network threads use as the test says."""

    def __init__(self, table: Table, group: str, terms: dict[str, Any]) -> None:
        self.table, self.group, self.terms = table, group, terms
        self.busy = self.used = self.ended = False
        self.offsets: dict[tuple[str, int], tuple[str, int, int, int, str, int]] = {}
        self.members: dict[str, int] = {}

    def commit(self, offset: int, member: str = "", ago_ms: int = 0, timestamp_ms: int = 1) -> None:
        """A commit that a network thread serves."""
        assert not self.ended
        self.offsets["topic", 0] = ("topic", 0, offset, -1, "", timestamp_ms)
        self.used = True
        if member:
            self.members[member] = ago_ms

    def newest(self) -> list[tuple[str, int, int, int, str, int]]:
        return list(self.offsets.values())

    def tell(self) -> Told | None:
        if self.busy:
            return None
        told = list(self.offsets.values()), list(self.members.items())
        self.offsets.clear()
        self.members.clear()
        return told

    def end(self) -> Told | None:
        told = self.tell()
        if told is not None:
            self.ended = True
            del self.table.leases[self.group]
        return told

    def abandon(self) -> bool:
        self.ended = True
        del self.table.leases[self.group]
        return self.busy


class Table:
    """The leases by group."""

    committed = 0

    def __init__(self) -> None:
        self.leases: dict[str, Lease] = {}
        self.lent: list[str] = []
        self.takes_appends = True

    def takes(self, log: object) -> bool:
        return self.takes_appends

    def lend(self, group: str, log: object, epoch: int, members: Any, topics: Any, **terms: Any) -> Lease:
        assert group not in self.leases
        self.lent.append(group)
        self.leases[group] = Lease(self, group, {"members": list(members), "topics": list(topics), **terms})
        return self.leases[group]


class Writer(MemoryWriter):
    def lendable(self, partition: TopicPartition) -> Any:
        """See PartitionWriter."""
        return "log"


class LendingBench(GroupBench):
    """The bench with a coordinator that lends."""

    def restart(self, **config: Any) -> None:
        """See GroupBench."""
        if not self.epoch:
            self.writer = Writer()
        self.table = Table()
        self.coordinator = GroupCoordinator(
            self.config,
            self.writer,
            self.clock,
            partition_count=lambda: 1,
            rebalanced=self.events.append,
            assignors=[],
            metadata=lambda: self.snapshot,
            commit_table=self.table,  # type: ignore[arg-type]
            **share_parts(self.clock, self.persister, self.ends),
        )
        self.epoch += 1
        self.coordinator.runtime.on_leadership_change(PARTITION, self.epoch, True)
        self.clock.run()

    @property
    def lease(self) -> Lease:
        return self.table.leases[GROUP]

    def later_commit(self, offset: int = 5, **how: Any) -> Later[Any]:
        """A commit by the control loop."""
        return self.coordinator.commit_offsets(CLIENT, OffsetCommit(GROUP, {TOPIC: NewOffset(offset)}, **how))


@pytest.fixture
def lending() -> LendingBench:
    return LendingBench()


def offset_of(bench: LendingBench) -> int:
    found: int = bench.shard.store.of_group(GROUP)[TOPIC].offset
    return found


def lent(bench: LendingBench) -> Lease:
    later = bench.later_commit()
    bench.clock.run()
    assert later.result() == {TOPIC: ErrorCode.NONE}
    return bench.lease


def test_a_group_that_has_committed_gets_a_lease_and_a_commit_recalls_it(lending: LendingBench) -> None:
    lease = lent(lending)
    assert lease.terms["without_member"]
    assert lease.terms["topics"] == [("topic", lending.snapshot.topics["topic"].topic_id.bytes, [0])]
    lease.commit(9)
    assert offset_of(lending) == 5
    lending.later_commit(11)
    assert lease.ended
    assert offset_of(lending) == 11
    lending.clock.run()
    assert lending.lease is not lease


def test_what_network_threads_stored_comes_before_what_recalls_the_lease(lending: LendingBench) -> None:
    lent(lending).commit(9)
    before = lending.shard.store.of_group(GROUP)[TOPIC].sequence
    lending.shard.leases.recall(GROUP)
    assert offset_of(lending) == 9
    assert lending.shard.store.of_group(GROUP)[TOPIC].sequence == before + 1


def test_a_fetch_hears_and_leaves_the_lease(lending: LendingBench) -> None:
    lease = lent(lending)
    lease.commit(9)
    assert lending.shard.offsets.fetch(GROUP, None)[TOPIC].offset == 9
    assert not lease.ended


def test_an_operation_waits_for_a_commit_under_way(lending: LendingBench) -> None:
    lease = lent(lending)
    written = lending.writer.ends[PARTITION]
    lease.busy = True
    later = lending.later_commit(11)
    lending.clock.advance(3 * BUSY_PAUSE_MS)
    assert not later.done
    assert lending.writer.ends[PARTITION] == written
    lease.busy = False
    lending.clock.advance(BUSY_PAUSE_MS)
    assert later.result() == {TOPIC: ErrorCode.NONE}
    assert lending.writer.ends[PARTITION] == written + 1


def test_an_operation_waits_no_longer_than_a_write_may(lending: LendingBench) -> None:
    lent(lending).busy = True
    later = lending.later_commit(11)
    lending.clock.advance(lending.config.offset_commit_timeout_ms + LONGEST_BUSY_PAUSE_MS)
    assert code_of(later.error) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert offset_of(lending) == 5


def test_who_waits_at_the_stop_looks_for_another_coordinator(lending: LendingBench) -> None:
    lent(lending).busy = True
    later = lending.later_commit(11)
    lending.clock.run()
    lending.coordinator.stop()
    assert code_of(later.error) == ErrorCode.NOT_COORDINATOR


def test_the_load_of_a_shard_waits_for_a_commit_under_way(lending: LendingBench) -> None:
    lease = lent(lending)
    lease.busy = True
    lending.coordinator.runtime.on_leadership_change(PARTITION, lending.epoch + 1, False)
    assert lease.ended
    lending.coordinator.runtime.on_leadership_change(PARTITION, lending.epoch + 2, True)
    lending.clock.advance(1000)
    assert lending.coordinator.runtime.shards() == {}
    lease.busy = False
    lending.clock.advance(1000)
    assert list(lending.coordinator.runtime.shards()) == [0]


def test_a_join_recalls_the_lease_and_a_group_that_rebalances_has_none(lending: LendingBench) -> None:
    lease = lent(lending)
    member, joined = lending.join_new()
    assert lease.ended
    lending.clock.advance(DELAY_MS)
    generation = joined.result().generation_id
    lending.shard.leases.lend(GROUP, "log", lending.epoch)  # type: ignore[arg-type]
    assert GROUP not in lending.table.leases
    lending.sync(member, generation, {member: b"x"})
    lending.shard.leases.lend(GROUP, "log", lending.epoch)  # type: ignore[arg-type]
    assert lending.lease.terms["members"] == [(member, None, generation)]
    assert not lending.lease.terms["without_member"]


def member_alone(bench: LendingBench) -> tuple[str, int]:
    member, joined = bench.join_new()
    bench.clock.advance(DELAY_MS)
    generation = joined.result().generation_id
    bench.sync(member, generation, {member: b"x"})
    return member, generation


def test_a_member_that_network_threads_heard_of_stays(lending: LendingBench) -> None:
    member, generation = member_alone(lending)
    lending.later_commit(member_id=member, generation_id=generation)
    lending.clock.run()
    lending.clock.advance(SESSION_MS - 1000)
    lending.lease.commit(4, member, ago_ms=500)
    # The timeout recalls the lease. The commit came 500 ms before, so the session has so much less to go.
    lending.clock.advance(1000)
    assert member in lending.classic().members
    lending.clock.advance(SESSION_MS - 501)
    assert member in lending.classic().members
    lending.clock.advance(1)
    assert member not in lending.classic().members


def test_a_refused_commit_leaves_the_lease(lending: LendingBench) -> None:
    member, generation = member_alone(lending)
    lending.later_commit(member_id=member, generation_id=generation)
    lending.clock.run()
    lease = lending.lease
    refused = lending.later_commit(member_id=member, generation_id=generation - 1)
    assert code_of(refused.error) == ErrorCode.ILLEGAL_GENERATION
    assert not lease.ended


def test_groups_whose_leases_serve_nobody_get_fewer(lending: LendingBench) -> None:
    for _ in range(200):
        lending.later_commit()
        lending.clock.run()
    assert 1 < len(lending.table.lent) < 12
    while not lending.table.leases:
        lending.later_commit()
        lending.clock.run()
    lending.lease.commit(3)
    before = len(lending.table.lent)
    for _ in range(2):
        lending.later_commit()
        lending.clock.run()
    assert len(lending.table.lent) > before


def test_how_many_commits_a_group_waits_for_its_next_lease(lending: LendingBench) -> None:
    """Twice as many after each lease in a row that has served nobody, up to 64."""
    lent(lending)
    group = lending.classic()

    def commits() -> int:
        return next(count for count in itertools.count(1) if group.wants_lease())

    assert commits() == 1
    waits = []
    for used in (False,) * 8 + (True, False, True, True):
        group.lease_ended(used)
        waits.append(commits())
    assert waits == [2, 4, 8, 16, 32, 64, 64, 64, 1, 2, 1, 1]


def test_a_group_with_too_many_offsets_has_no_lease(lending: LendingBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "MOST_PARTITIONS", 2)
    for name, count in (("two", 2), ("three", 3)):
        offsets = {TopicPartition("topic", number): NewOffset(1) for number in range(count)}
        lending.coordinator.commit_offsets(CLIENT, OffsetCommit(name, offsets))
        lending.clock.run()
    assert lending.table.lent == ["two"]


def test_offsets_that_network_threads_have_stored_are_counted(lending: LendingBench, bench: GroupBench) -> None:
    lending.table.committed = 7
    assert lending.coordinator.leased_commits == 7
    assert bench.coordinator.leased_commits == 0, "it lends nothing"


def test_a_log_that_is_slow_costs_no_lease(lending: LendingBench) -> None:
    lending.table.takes_appends = False
    lending.later_commit()
    lending.clock.run()
    assert lending.table.lent == []


def test_a_group_with_an_open_transaction_has_no_lease(lending: LendingBench) -> None:
    lease = lent(lending)
    lending.later_commit(producer=ProducerStamp(7, 0))
    lending.clock.run()
    assert lease.ended
    assert lending.shard.store.has_open_transactions(GROUP)
    lending.later_commit()
    lending.clock.run()
    assert lending.table.leases == {}


def test_a_busy_group_is_not_deleted_and_others_are(lending: LendingBench) -> None:
    lent(lending).busy = True
    shard = lending.shard
    result = shard.delete_groups([GROUP, "unknown"])
    assert result.reply == {
        GROUP: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        "unknown": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert result.records == []
    lending.lease.busy = False
    assert shard.delete_groups([GROUP]).reply == {GROUP: ErrorCode.NONE}


def test_the_expiry_passes_by_a_busy_group(lending: LendingBench) -> None:
    lease = lent(lending)
    lease.busy = True
    later = lending.clock.time_ms() + lending.config.offsets_retention_ms + 1
    assert lending.shard.expire(later).records == []
    lease.busy = False
    lease.commit(6, timestamp_ms=later)
    assert lending.shard.expire(later).records == []  # it has committed meanwhile
    assert lending.shard.expire(later + lending.config.offsets_retention_ms).records != []


def test_the_offsets_of_a_deleted_topic_go_when_the_group_is_free(lending: LendingBench) -> None:
    lease = lent(lending)
    lease.busy = True
    done = lending.coordinator.topics_deleted(["topic"], [0])
    lending.clock.advance(50)
    assert not done.done
    lease.busy = False
    lease.commit(12)
    lending.clock.advance(60_000)
    assert done.result() is None
    assert lending.shard.store.of_group(GROUP) == {}


def test_a_scrape_shows_the_newest_offset(lending: LendingBench) -> None:
    lease = lent(lending)
    newest = lending.shard.leases.newest
    assert newest(GROUP)[TOPIC].offset == 5
    later = lending.clock.time_ms() + 1
    lease.commit(9, timestamp_ms=later)
    assert newest(GROUP)[TOPIC].offset == 9
    lending.shard.leases.hear(GROUP)
    assert newest(GROUP)[TOPIC].offset == 9
    lease.commit(7, timestamp_ms=later - 1)  # as it was before the hearing
    assert newest(GROUP)[TOPIC].offset == 9
