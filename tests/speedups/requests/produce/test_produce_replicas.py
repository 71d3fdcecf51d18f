"""Produce with acks=all while the ISR changes: refused before the append, acknowledged, or an error after it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy._speedups.log.replication import Replication
from kafkapy.errors import ErrorCode


class Leader:
    """A partition of broker 1 with min.insync.replicas 2, on a clock that the test sets."""

    def __init__(self, broker: Any, isr: tuple[int, ...] = (1, 2, 3)) -> None:
        self.broker = broker
        self.replication = Replication(100)
        self.replication.clock_ms = 1000
        (self.log,) = broker.topic("t", min_insync_replicas=2)
        self.log.use_replication(self.replication)
        self.log.become_leader(1, 1, isr, (1, 2, 3), partition_epoch=0)

    def send(self, acks: int = -1) -> Any:
        request = self.broker.produce_request({"t": [(0, self.broker.batch())]}, version=9, acks=acks)
        return self.broker.send(request, 9)

    def code(self, exchange: Any) -> int:
        return int(self.broker.only(self.broker.produce_reply(exchange, 9)).error_code)

    def isr(self, committed: tuple[int, ...], maximal: tuple[int, ...] | None = None) -> None:
        assert self.log.set_isr(self.log.partition_epoch, committed, committed if maximal is None else maximal)


@pytest.fixture
def leader(broker: Any) -> Leader:
    return Leader(broker)


def test_too_small_an_isr_refuses_before_the_append(broker: Any) -> None:
    leader = Leader(broker, isr=(1,))
    assert leader.code(leader.send()) == ErrorCode.NOT_ENOUGH_REPLICAS
    # The member that the controller has yet to add does not count.
    leader.isr((1,), (1, 2))
    assert leader.code(leader.send()) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert leader.log.log_end_offset == 0
    assert leader.code(leader.send(acks=1)) == 0
    assert (leader.log.log_end_offset, leader.log.high_watermark) == (1, 0)
    leader.isr((1, 2))
    assert leader.send().kind == "parked"


def test_the_commit_of_a_shrink_acknowledges(leader: Leader) -> None:
    # KAFKA-13091
    exchange = leader.send()
    leader.log.follower_position(2, 1)
    assert (exchange.kind, exchange.wakes) == ("parked", 0)
    leader.replication.clock_ms = 5000
    leader.isr((1, 2))
    assert exchange.wakes == 1
    assert leader.code(exchange.resume()) == 0


def test_an_isr_that_shrinks_below_the_minimum_keeps_the_record_unacknowledged(leader: Leader) -> None:
    leader.isr((1, 2))
    exchange = leader.send()
    leader.replication.clock_ms = 5000
    leader.isr((1,))
    assert exchange.resume().kind == "parked"
    assert leader.code(exchange.resume(timed_out=True)) == ErrorCode.REQUEST_TIMED_OUT
    assert (leader.log.log_end_offset, leader.log.high_watermark) == (1, 0)
    # It stays in the log, and is there for all once the ISR is whole again.
    leader.log.follower_position(2, 1)
    leader.isr((1, 2))
    assert leader.log.high_watermark == 1


def test_replicated_records_of_a_small_isr_get_an_error_after_the_append(leader: Leader) -> None:
    leader.replication.clock_ms = 5000
    leader.isr((1, 2))
    exchange = leader.send()
    leader.log.follower_position(2, 1)
    assert (exchange.wakes, leader.log.high_watermark) == (1, 1)
    leader.isr((1,))
    assert leader.code(exchange.resume()) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_members_on_their_way_count_after_the_append(leader: Leader) -> None:
    leader.replication.clock_ms = 5000
    leader.isr((1, 2))
    exchange = leader.send()
    leader.log.follower_position(2, 1)
    leader.isr((1,), (1, 3))
    assert leader.code(exchange.resume()) == 0


def test_a_new_member_is_waited_for_before_the_controller_has_added_it(leader: Leader) -> None:
    leader.isr((1, 2))
    leader.replication.clock_ms = 5000
    exchange = leader.send()
    leader.isr((1, 2), (1, 2, 3))
    leader.log.follower_position(2, 1)
    assert exchange.resume().kind == "parked"
    leader.log.follower_position(3, 1)
    assert exchange.wakes == 1
    assert leader.code(exchange.resume()) == 0


def test_an_election_of_the_same_broker_goes_on_waiting(leader: Leader) -> None:
    exchange = leader.send()
    for replica in (2, 3):
        leader.log.follower_position(replica, 0)
    leader.log.become_leader(1, 2, (1, 2), (1, 2, 3), partition_epoch=1)
    assert exchange.wakes == 1
    assert exchange.resume().kind == "parked"
    leader.log.follower_position(2, 1)
    assert leader.code(exchange.resume()) == 0
