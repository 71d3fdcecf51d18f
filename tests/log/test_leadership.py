"""A leader's followers: what moves the high watermark, who is announced for the ISR, and what an old ISR cannot do."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy._speedups.base.event_queue import FOLLOWER_CAUGHT_UP, FOLLOWER_LOG_START, HIGH_WATERMARK, EventQueue
from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy._speedups.log.replication import Replication
from kafkapy._speedups.testing.log_waiter import HIGH_WATERMARK as WAIT_FOR_HIGH_WATERMARK
from kafkapy._speedups.testing.log_waiter import LogWaiter
from kafkapy.config.topic import LogConfig
from kafkapy.errors import NotEnoughReplicasError
from kafkapy.log.backends.memory import MemoryLogStorage

LAG_MS = 100


class Leader:
    """A log of broker 1 in memory, on a clock that the test sets."""

    def __init__(
        self, *, isr: tuple[int, ...] = (1, 2, 3), replicas: tuple[int, ...] = (1, 2, 3), **config: Any
    ) -> None:
        self.events = EventQueue()
        self.replication = Replication(LAG_MS)
        self.replication.clock_ms = 1000
        overrides = {key.replace("_", "."): str(value) for key, value in config.items()}
        self.log = PartitionLog(
            "t", 0, MemoryLogStorage("t-0"), LogConfig.create(overrides=overrides), events=self.events
        )
        self.log.use_replication(self.replication)
        self.log.become_leader(1, 5, isr, replicas, partition_epoch=7)

    def at(self, time_ms: int) -> None:
        self.replication.clock_ms = time_ms

    def caught_up(self) -> dict[int, int]:
        return {replica: caught_up_ms for replica, _, _, caught_up_ms, _, _ in self.log.followers()}

    def in_sync(self) -> list[int]:
        return [replica for replica, *_, in_sync in self.log.followers() if in_sync]

    def announced(self, kind: int = FOLLOWER_CAUGHT_UP) -> list[int]:
        events = self.events.drain()
        assert all(handle == self.log.id for found, handle, _, _ in events if found == kind)
        return [argument for found, _, argument, _ in events if found == kind]


@pytest.fixture
def append(batch: Any) -> Any:
    def append(log: PartitionLog, records: int = 1, **options: Any) -> None:
        log.append_as_leader(batch(records), api_version=9, **options)

    return append


def test_the_high_watermark_waits_for_every_member_of_the_isr(append: Any) -> None:
    leader = Leader()
    log = leader.log
    append(log, 10)
    assert log.high_watermark == 0
    log.follower_position(2, 10)
    assert log.high_watermark == 0  # replica 3 has not fetched in this epoch
    log.follower_position(3, 4)
    assert log.high_watermark == 4
    log.follower_position(3, 2)  # a follower that lost its tail does not take the high watermark back
    assert log.high_watermark == 4
    log.follower_position(3, 12)  # nor does a lie take it beyond the log end
    assert log.high_watermark == 10


def test_a_follower_outside_the_isr_holds_it_back_only_while_it_keeps_up(append: Any) -> None:
    leader = Leader(isr=(1, 2))
    log = leader.log
    append(log, 2)
    log.follower_position(2, 2)
    assert log.high_watermark == 2  # replica 3 was never caught up
    log.follower_position(3, 2)
    append(log)
    log.follower_position(2, 3)
    assert log.high_watermark == 2  # replica 3 could not join behind a moving high watermark
    leader.at(1000 + LAG_MS)
    append(log)
    log.follower_position(2, 4)
    assert log.high_watermark == 2
    leader.at(1000 + LAG_MS + 1)
    append(log)
    log.follower_position(2, 5)
    assert log.high_watermark == 5  # it has lagged too long


def test_a_dead_follower_holds_nothing_back(append: Any) -> None:
    leader = Leader(isr=(1, 2))
    log = leader.log
    log.follower_position(3, 0)
    append(log)
    leader.replication.set_live_brokers([1, 2, 3])
    log.follower_position(2, 1)
    assert log.high_watermark == 0
    leader.replication.set_live_brokers([1, 2])
    assert [leader.replication.is_live(broker) for broker in (1, 2, 3)] == [True, True, False]
    append(log)
    log.follower_position(2, 2)
    assert log.high_watermark == 2


def test_below_min_insync_replicas_nothing_more_becomes_visible(append: Any) -> None:
    leader = Leader(min_insync_replicas=2)
    log = leader.log
    append(log, 1, required_acks=-1)
    for replica in (2, 3):
        log.follower_position(replica, 1)
    assert log.high_watermark == 1
    assert log.set_isr(8, (1,), (1,))
    append(log)  # acks=1 is taken
    log.follower_position(2, 2)
    log.follower_position(3, 2)
    assert log.high_watermark == 1
    with pytest.raises(NotEnoughReplicasError):
        append(log, 1, required_acks=-1)
    # A member whom the controller has not added yet does not count.
    assert log.set_isr(8, (1,), (1, 2))
    assert (log.in_sync_replicas, log.maximal_in_sync_replicas, log.high_watermark) == (1, 2, 1)
    with pytest.raises(NotEnoughReplicasError):
        append(log, 1, required_acks=-1)
    assert log.set_isr(9, (1, 2), (1, 2))
    assert log.high_watermark == 2


def test_a_lower_min_insync_replicas_shows_what_waited(append: Any) -> None:
    leader = Leader(isr=(1, 2), replicas=(1, 2), min_insync_replicas=2)
    log = leader.log
    log.set_isr(8, (1,), (1,))
    leader.at(5000)
    append(log)
    waiter = LogWaiter(log)
    assert not waiter.wait(WAIT_FOR_HIGH_WATERMARK, 0)
    log.update_config(LogConfig.create())
    assert (log.high_watermark, waiter.wakes) == (1, 1)


def test_any_fetch_ends_the_wait_for_a_follower_that_has_fallen_behind(append: Any) -> None:
    leader = Leader(isr=(1, 2))
    log = leader.log
    log.follower_position(3, 0)
    append(log)
    log.follower_position(2, 1)
    assert log.high_watermark == 0  # replica 3 was caught up a moment ago
    leader.at(1000 + LAG_MS + 1)
    log.follower_position(2, 1)
    assert log.high_watermark == 1


def test_min_insync_replicas_is_at_most_the_number_of_replicas(append: Any) -> None:
    leader = Leader(isr=(1,), replicas=(1,), min_insync_replicas=3)
    append(leader.log, 1, required_acks=-1)
    assert (leader.log.min_in_sync_replicas, leader.log.high_watermark) == (1, 1)


def test_the_maximal_isr_moves_the_high_watermark_and_the_committed_one_takes_appends(append: Any) -> None:
    leader = Leader(isr=(1, 2), min_insync_replicas=2)
    log = leader.log
    append(log, 2)
    log.follower_position(2, 2)
    leader.at(5000)
    assert log.set_isr(7, (1, 2), (1, 2, 3))  # PendingExpand
    append(log, 1, required_acks=-1)
    log.follower_position(2, 3)
    assert log.high_watermark == 2  # replica 3 may be in the ISR already
    assert log.set_isr(7, (1, 2), (1, 2))  # refused
    assert log.high_watermark == 3


def test_a_shrink_moves_the_high_watermark_and_wakes_who_waits(append: Any) -> None:
    leader = Leader(isr=(1, 2, 3))
    log = leader.log
    append(log)
    log.follower_position(2, 1)
    waiter = LogWaiter(log)
    assert not waiter.wait(WAIT_FOR_HIGH_WATERMARK, 0)
    leader.at(5000)
    assert log.set_isr(8, (1, 2), (1, 2))
    assert (log.high_watermark, log.partition_epoch, leader.in_sync()) == (1, 8, [2])
    assert waiter.wakes == 1


def test_an_old_isr_changes_nothing(append: Any) -> None:
    leader = Leader()
    log = leader.log
    append(log)
    assert not log.set_isr(6, (1,), (1,))  # an older partition epoch
    assert not log.set_isr(8, (1,), (1,), leader_epoch=4)
    assert (log.in_sync_replicas, log.high_watermark, log.partition_epoch) == (3, 0, 7)
    log.become_follower(2, 6, partition_epoch=9)
    assert not log.set_isr(10, (1,), (1,))
    assert (log.in_sync_replicas, log.maximal_in_sync_replicas, log.partition_epoch, log.followers()) == (0, 0, 9, [])
    log.follower_position(2, 1)
    assert (log.followers(), log.high_watermark) == ([], 0)


def test_lag_is_time_and_not_records(append: Any) -> None:
    leader = Leader()
    log = leader.log
    assert leader.caught_up() == {2: 1000, 3: 1000}  # members of the ISR start as caught up
    append(log, 10)
    leader.at(1010)
    log.follower_position(2, 5)
    assert leader.caught_up()[2] == 1000
    append(log, 10)
    leader.at(1020)
    # It has what the log had at its fetch before: it was caught up then, although it never reaches the end.
    log.follower_position(2, 10)
    assert leader.caught_up()[2] == 1010
    append(log, 10)
    leader.at(1030)
    log.follower_position(2, 15)
    assert leader.caught_up()[2] == 1010
    log.follower_position(2, 30)
    assert leader.caught_up()[2] == 1030
    # A read that began before an append is judged by the log end of then (KAFKA-8400's neighbour).
    append(log)
    leader.at(1040)
    log.follower_position(2, 30, leader_end_offset=30)
    assert leader.caught_up()[2] == 1040


def test_what_a_fetch_says_of_the_follower_is_known(append: Any) -> None:
    leader = Leader(isr=(1, 2))
    log = leader.log
    append(log, 3)
    assert log.followers() == [(2, -1, -1, 1000, -1, True), (3, -1, -1, -1, -1, False)]
    log.follower_position(3, 2, log_start_offset=1, broker_epoch=77)
    assert log.followers()[1] == (3, 2, 1, -1, 77, False)
    log.follower_position(9, 2)
    assert [replica for replica, *_ in log.followers()] == [2, 3]


def test_a_follower_that_has_reached_the_high_watermark_is_announced_once(append: Any) -> None:
    leader = Leader(isr=(1, 2))
    log = leader.log
    append(log, 4)
    log.follower_position(2, 3)
    assert (leader.announced(), log.high_watermark) == ([], 3)
    log.follower_position(3, 2)
    assert leader.announced() == []
    log.follower_position(3, 3)
    assert leader.announced() == [3]
    log.follower_position(3, 4)
    assert leader.announced() == []  # not before the answer
    assert log.set_isr(7, (1, 2), (1, 2))
    log.follower_position(3, 4)
    assert leader.announced() == [3]
    assert log.set_isr(8, (1, 2, 3), (1, 2, 3))
    log.follower_position(3, 4)
    assert leader.announced() == []


def test_a_follower_below_the_start_of_the_epoch_is_not_announced(append: Any) -> None:
    # KAFKA-7128: the high watermark of a new leader may be behind what its predecessor has committed.
    leader = Leader(isr=(1, 2))
    log = leader.log
    append(log, 4)
    log.follower_position(3, 2)
    leader.announced()
    log.become_leader(1, 6, (1, 2), (1, 2, 3), partition_epoch=8)
    assert (log.epoch_start_offset, log.high_watermark) == (4, 0)
    append(log, 2)
    log.follower_position(3, 3)
    assert leader.announced() == []
    log.follower_position(3, 4)
    assert leader.announced() == [3]


def test_a_new_epoch_forgets_positions_and_the_same_epoch_keeps_them(append: Any) -> None:
    leader = Leader(isr=(1, 2))
    log = leader.log
    append(log, 4)
    log.follower_position(2, 4, log_start_offset=1, broker_epoch=9)
    log.follower_position(3, 4)
    leader.at(1050)
    log.become_leader(1, 5, (1, 2), (1, 2, 3), partition_epoch=8)
    assert log.followers() == [(2, 4, 1, 1000, 9, True), (3, 4, -1, 1000, -1, False)]
    assert log.epoch_start_offset == 0
    log.become_leader(1, 6, (1, 2), (1, 2, 3), partition_epoch=9)
    assert log.followers() == [(2, -1, -1, 1050, -1, True), (3, -1, -1, -1, -1, False)]
    assert log.epoch_start_offset == 4
    # Not by the leader epoch alone: it may have followed in between.
    log.follower_position(2, 4)
    log.become_follower(2, 7)
    assert log.epoch_start_offset == 0
    log.become_leader(1, 8, (1, 2), (1, 2, 3))
    assert log.followers()[0][1] == -1


def test_a_new_leader_starts_from_its_old_high_watermark(append: Any) -> None:
    leader = Leader(isr=(1, 2))
    log = leader.log
    append(log, 4)
    log.follower_position(2, 2)
    log.become_follower(2, 6)
    log.become_leader(1, 7, (1, 2), (1, 2))
    assert (log.high_watermark, log.leader_epochs()) == (2, [(5, 0), (7, 4)])
    log.follower_position(2, 3)
    assert log.high_watermark == 3
    log.become_leader(1, 8, (1,), (1, 2))
    assert log.high_watermark == 4


def test_a_partition_of_one_replica_follows_its_log_end(append: Any) -> None:
    leader = Leader(isr=(1,), replicas=(1,))
    append(leader.log, 3, required_acks=-1)
    assert (leader.log.high_watermark, leader.log.followers()) == (3, [])
    assert leader.announced() == []


def test_log_starts_are_announced_only_when_asked_for(append: Any) -> None:
    leader = Leader()
    log = leader.log
    log.follower_position(2, 0, log_start_offset=0)
    assert leader.announced(FOLLOWER_LOG_START) == []
    log.announce_log_starts = True
    log.follower_position(2, 0, log_start_offset=0)
    assert leader.announced(FOLLOWER_LOG_START) == []
    log.follower_position(2, 0, log_start_offset=3)
    assert leader.announced(FOLLOWER_LOG_START) == [2]
    log.announce_log_starts = False
    log.follower_position(2, 0, log_start_offset=4)
    assert leader.announced(FOLLOWER_LOG_START) == []


def test_high_watermark_events_come_from_every_mover(append: Any) -> None:
    leader = Leader(isr=(1, 2))
    log = leader.log
    log.announce_high_watermark = True
    append(log, 4)
    log.follower_position(2, 2)
    assert leader.announced(HIGH_WATERMARK) == [2]
    leader.at(5000)
    log.set_isr(8, (1,), (1,))
    assert leader.announced(HIGH_WATERMARK) == [4]


def test_a_shared_state_outlives_its_python_owner(append: Any) -> None:
    leader = Leader()
    del leader.replication
    append(leader.log)
    for replica in (2, 3):
        leader.log.follower_position(replica, 1)
    assert (leader.log.high_watermark, leader.caught_up()) == (1, {2: 1000, 3: 1000})


def test_a_quota_measures_the_last_windows() -> None:
    replication = Replication()
    replication.clock_ms = 50_000
    assert (replication.leader_rate, replication.leader_throughput()) == ((1 << 63) - 1, 0.0)
    replication.record_leader_bytes(3000)
    assert replication.leader_throughput() == 3000.0
    replication.clock_ms = 52_000
    assert replication.leader_throughput() == 1500.0
    replication.record_leader_bytes(1000)
    assert replication.leader_throughput() == 2000.0
    replication.clock_ms = 60_999
    assert replication.leader_throughput() == pytest.approx(4000 / 10.999)
    replication.clock_ms = 61_000
    assert replication.leader_throughput() == pytest.approx(1000 / 9.0)
    replication.clock_ms = 100_000
    assert replication.leader_throughput() == 0.0
