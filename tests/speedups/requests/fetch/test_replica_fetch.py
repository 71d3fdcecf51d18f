"""Fetches of followers: what the leader learns from them, what it answers, and what hostile ones cannot do."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy._speedups.base.event_queue import FOLLOWER_CAUGHT_UP
from kafkapy._speedups.log.replication import Replication
from kafkapy.errors import ErrorCode

OLDEST_WITH_EPOCH = 15
VERSIONS = range(4, 19)


def lead(broker: Any, *, isr: tuple[int, ...] = (1, 2), replicas: tuple[int, ...] = (1, 2, 3), **fields: Any) -> Any:
    (log,) = broker.topic("t", isr=isr, replicas=replicas, **fields)
    return log


def positions(log: Any) -> dict[int, int]:
    return {replica: end for replica, end, *_ in log.followers()}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_follower_reads_to_the_log_end_and_moves_the_high_watermark(broker: Any, version: int) -> None:
    log = lead(broker)
    for value in (b"a", b"b"):
        log.append_as_leader(broker.batch(value))
    entry = broker.only(broker.fetch([("t", 0, 0)], version=version, replica_id=2))
    assert (len(entry.records), entry.high_watermark) == (2 * len(broker.batch(b"a")), 0)
    assert not broker.only(broker.fetch([("t", 0, 0)], version=version)).records
    entry = broker.only(broker.fetch([("t", 0, 2)], version=version, replica_id=2))
    # The answer was read before the follower's position counted: the next one brings the high watermark.
    assert (entry.error_code, log.high_watermark) == (0, 2)
    assert broker.only(broker.fetch([("t", 0, 2)], version=version, replica_id=2)).high_watermark == 2
    assert len(broker.only(broker.fetch([("t", 0, 0)], version=version)).records) == 2 * len(broker.batch(b"a"))


@pytest.mark.parametrize("version", VERSIONS)
def test_log_start_and_broker_epoch_are_known_from_the_request(broker: Any, version: int) -> None:
    log = lead(broker)
    log.append_as_leader(broker.batch())
    request = broker.fetch_request([("t", 0, 1)], version=version, replica_id=2)
    if version >= 5:
        request.topics[0].partitions[0].log_start_offset = 7
    if version >= OLDEST_WITH_EPOCH:
        request.replica_state.replica_epoch = 4711
    broker.fetch_reply(broker.in_turns(broker.send(request, version)), version)
    replica, end, start, _, epoch, _ = log.followers()[0]
    assert (replica, end, start) == (2, 1, 7 if version >= 5 else -1)
    assert epoch == (4711 if version >= OLDEST_WITH_EPOCH else -1)


def test_a_parked_fetch_counts_when_it_comes_and_not_when_it_is_answered(broker: Any) -> None:
    log = lead(broker, isr=(1, 2, 3))
    log.append_as_leader(broker.batch())
    broker.fetch([("t", 0, 1)], replica_id=3)
    exchange = broker.fetch_exchange([("t", 0, 1)], replica_id=2, max_wait_ms=10_000)
    assert (exchange.kind, positions(log)[2], log.high_watermark) == ("parked", 1, 1)
    # It starts again from an empty disk before the parked request is answered.
    log.follower_position(2, 0)
    log.append_as_leader(broker.batch())
    assert exchange.wakes == 1
    broker.fetch_reply(exchange.resume(), 12)
    assert positions(log)[2] == 0


def test_an_append_wakes_a_parked_follower_and_the_high_watermark_a_consumer(broker: Any) -> None:
    log = lead(broker)
    follower = broker.fetch_exchange([("t", 0, 0)], replica_id=2, max_wait_ms=10_000)
    consumer = broker.fetch_exchange([("t", 0, 0)], max_wait_ms=10_000)
    log.append_as_leader(broker.batch())
    assert (follower.wakes, consumer.wakes) == (1, 0)
    broker.fetch([("t", 0, 1)], replica_id=2)
    assert consumer.wakes == 1


@pytest.mark.parametrize("version", [8, 11, 12, 18])
def test_a_read_that_fails_does_not_count(broker: Any, version: int) -> None:
    # KAFKA-8400
    log = lead(broker, isr=(1, 2))
    for _ in range(3):
        log.append_as_leader(broker.batch())
    broker.fetch([("t", 0, 1)], version=version, replica_id=2)
    before = log.followers()
    for offset, fields, code in (
        (4, {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-1, {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ((1 << 63) - 1, {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (3, {"current_leader_epoch": 1}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        if fields and version < 9:
            continue
        entry = broker.only(broker.fetch([("t", 0, offset)], version=version, replica_id=2, **fields))
        assert (entry.error_code, entry.high_watermark) == (code, -1)
        assert (log.followers(), log.high_watermark) == (before, 1)
    log.become_leader(1, 1, (1, 2), (1, 2, 3))
    entry = broker.only(broker.fetch([("t", 0, 3)], version=version, replica_id=2, current_leader_epoch=0))
    if version >= 9:
        assert entry.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert positions(log)[2] == -1


def test_a_diverging_follower_is_told_where_and_does_not_count(broker: Any) -> None:
    log = lead(broker)
    log.append_as_leader(broker.batch())  # epoch 0: [0, 1)
    log.become_leader(1, 3, (1, 2), (1, 2, 3))
    log.append_as_leader(broker.batch())  # epoch 3: [1, 2)

    def fetch(offset: int, last_epoch: int) -> Any:
        fields = {"replica_id": 2, "current_leader_epoch": 3, "last_fetched_epoch": last_epoch}
        return broker.only(broker.fetch([("t", 0, offset)], version=12, **fields))

    for offset, last_epoch, epoch, end in ((2, 0, 0, 1), (2, 1, 0, 1), (2, 2, 0, 1), (5, 0, 0, 1), (3, 3, 3, 2)):
        entry = fetch(offset, last_epoch)
        assert (entry.error_code, entry.records) == (0, b"")
        assert (entry.diverging_epoch.epoch, entry.diverging_epoch.end_offset) == (epoch, end)
        assert (positions(log)[2], log.high_watermark) == (-1, 0)
    assert fetch(2, 4).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    entry = fetch(1, 0)
    assert (entry.error_code, entry.diverging_epoch.epoch, len(entry.records)) == (0, -1, len(broker.batch()))
    assert positions(log)[2] == 1


def test_a_truncation_while_a_follower_waits_is_told_as_divergence(broker: Any) -> None:
    log = lead(broker)
    log.append_as_leader(broker.batch())
    log.append_as_leader(broker.batch())
    exchange = broker.fetch_exchange(
        [("t", 0, 2)], replica_id=2, max_wait_ms=10_000, current_leader_epoch=0, last_fetched_epoch=0
    )
    assert exchange.kind == "parked"
    log.truncate_to(1)
    entry = broker.only(broker.fetch_reply(exchange.resume(), 12))
    assert (entry.diverging_epoch.epoch, entry.diverging_epoch.end_offset) == (0, 1)


def test_a_follower_outside_the_isr_is_announced_when_it_has_caught_up(broker: Any) -> None:
    log = lead(broker)
    log.append_as_leader(broker.batch())
    broker.fetch([("t", 0, 1)], replica_id=2)
    broker.events.drain()
    broker.fetch([("t", 0, 0)], replica_id=3)
    assert [event for event in broker.events.drain() if event[0] == FOLLOWER_CAUGHT_UP] == []
    for _ in range(3):
        broker.fetch([("t", 0, 1)], replica_id=3)
    announced = [event for event in broker.events.drain() if event[0] == FOLLOWER_CAUGHT_UP]
    assert announced == [(FOLLOWER_CAUGHT_UP, log.id, 3, b"")]


def test_an_unassigned_replica_learns_nothing_from_offsets_out_of_range(broker: Any) -> None:
    log = lead(broker)
    log.append_as_leader(broker.batch())
    for offset in (-5, 0, 1, 99):
        entry = broker.only(broker.fetch([("t", 0, offset)], replica_id=77, current_leader_epoch=0))
        assert entry.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert positions(log) == {2: -1, 3: -1}


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_an_idle_follower_learns_the_high_watermark_through_its_session(broker: Any) -> None:
    log = lead(broker, isr=(1, 2, 3))
    log.append_as_leader(broker.batch())
    reply = broker.fetch([("t", 0, 0)], replica_id=2, session_epoch=0)
    session = reply.session_id
    assert session != 0
    reply = broker.fetch([("t", 0, 1)], replica_id=2, session_id=session, session_epoch=1)
    assert reply.responses == []  # nothing new, and no new high watermark
    broker.fetch([("t", 0, 1)], replica_id=3)
    assert log.high_watermark == 1
    entry = broker.only(broker.fetch([], replica_id=2, session_id=session, session_epoch=2))
    assert (entry.high_watermark, entry.records) == (1, b"")
    assert broker.fetch([], replica_id=2, session_id=session, session_epoch=3).responses == []
    log.delete_records(1)
    entry = broker.only(broker.fetch([], replica_id=2, session_id=session, session_epoch=4))
    assert (entry.log_start_offset, entry.records) == (1, b"")


def test_a_session_remembers_the_leader_epoch_of_its_requests(broker: Any) -> None:
    # KAFKA-9338
    log = lead(broker)
    fields = {"replica_id": 2, "last_fetched_epoch": -1}
    session = broker.fetch([("t", 0, 0)], session_epoch=0, current_leader_epoch=0, **fields).session_id
    log.become_leader(1, 1, (1, 2), (1, 2, 3))
    entry = broker.only(broker.fetch([], session_id=session, session_epoch=1, **fields))
    assert entry.error_code == ErrorCode.FENCED_LEADER_EPOCH
    entry = broker.only(
        broker.fetch([("t", 0, 0)], session_id=session, session_epoch=2, current_leader_epoch=1, **fields)
    )
    assert entry.error_code == 0


def test_followers_push_consumers_out_of_the_session_cache(make_broker: Any) -> None:
    broker = make_broker(slots=1)
    lead(broker)
    broker.topic("other")
    consumer = broker.fetch([("other", 0, 0)], session_epoch=0).session_id
    assert consumer != 0
    # One that says so without being assigned gets no place.
    assert broker.fetch([("t", 0, 0)], replica_id=9, session_epoch=0).session_id == 0
    follower = broker.fetch([("t", 0, 0)], replica_id=2, session_epoch=0).session_id
    assert follower != 0
    reply = broker.fetch([], session_id=consumer, session_epoch=1)
    assert reply.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert broker.fetch([("other", 0, 0)], session_epoch=0).session_id == 0


# --- throttle ---------------------------------------------------------------------------------------------------------


def throttled(broker: Any, *, isr: tuple[int, ...] = (1, 2), rate: int = 1000) -> tuple[Any, Replication]:
    replication = Replication()
    replication.clock_ms = 100_000
    replication.leader_rate = rate
    log = lead(broker, isr=isr)
    log.use_replication(replication)
    log.leader_throttled = True
    for _ in range(3):
        log.append_as_leader(broker.batch(b"x" * 600))
    return log, replication


def test_a_throttled_follower_gets_nothing_while_the_rate_is_exceeded(broker: Any) -> None:
    log, replication = throttled(broker)
    size = len(broker.batch(b"x" * 600))
    assert len(broker.only(broker.fetch([("t", 0, 0)], replica_id=3, partition_max_bytes=1)).records) == size
    assert replication.leader_throughput() == size
    assert len(broker.only(broker.fetch([("t", 0, 1)], replica_id=3)).records) == 2 * size
    entry = broker.only(broker.fetch([("t", 0, 0)], replica_id=3))
    assert (entry.error_code, entry.records) == (0, b"")
    # It waits as one for whom there is nothing.
    exchange = broker.fetch_exchange([("t", 0, 1)], replica_id=3, max_wait_ms=10_000)
    assert exchange.kind == "parked"
    log.append_as_leader(broker.batch(b"x" * 600))
    assert exchange.wakes == 1
    assert exchange.resume().kind == "parked"
    assert broker.only(broker.fetch_reply(exchange.resume(timed_out=True), 12)).records == b""
    # Members of the ISR, and consumers, are not held back; the members' bytes count.
    assert len(broker.only(broker.fetch([("t", 0, 0)], replica_id=2)).records) == 4 * size
    assert replication.leader_throughput() == 7 * size
    replication.clock_ms += 60_000
    assert len(broker.only(broker.fetch([("t", 0, 0)], replica_id=3)).records) == 4 * size


def test_other_partitions_are_not_throttled(broker: Any) -> None:
    log, replication = throttled(broker, rate=0)
    log.leader_throttled = False
    assert broker.only(broker.fetch([("t", 0, 0)], replica_id=3)).records
    assert replication.leader_throughput() == 0.0
    log.leader_throttled = True
    broker.fetch([("t", 0, 0)], replica_id=2)
    assert broker.only(broker.fetch([("t", 0, 0)], replica_id=3)).records == b""
    assert positions(log)[3] == 0  # it is known all the same


# --- consumers that read from followers -------------------------------------------------------------------------------


@pytest.mark.parametrize("replica_id", [-1, -2])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_consumer_may_read_from_a_follower_up_to_its_high_watermark(
    broker: Any, version: int, replica_id: int
) -> None:
    log = lead(broker)
    for value in (b"a", b"b"):
        log.append_as_leader(broker.batch(value))
    log.become_follower(2, 1)
    log.set_high_watermark(1)
    entry = broker.only(broker.fetch([("t", 0, 0)], version=version, replica_id=replica_id))
    if version < 11:
        assert entry.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        return
    assert (entry.error_code, entry.high_watermark, len(entry.records)) == (0, 1, len(broker.batch(b"a")))
    assert entry.preferred_read_replica == -1
    for offset, code in ((1, 0), (2, 0), (3, ErrorCode.OFFSET_OUT_OF_RANGE)):
        entry = broker.only(broker.fetch([("t", 0, offset)], version=version, replica_id=replica_id))
        assert (entry.error_code, entry.records) == (code, b"")
    exchange = broker.fetch_exchange([("t", 0, 1)], version=version, replica_id=replica_id, max_wait_ms=10_000)
    assert exchange.kind == "parked"
    log.set_high_watermark(2)
    assert exchange.wakes == 1
    assert len(broker.only(broker.fetch_reply(exchange.resume(), version)).records) == len(broker.batch(b"b"))
    # A replica is served by the leader alone.
    entry = broker.only(broker.fetch([("t", 0, 0)], version=version, replica_id=3))
    assert entry.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_consumer_at_a_follower_hears_of_epochs_and_of_the_end_of_its_wait(broker: Any) -> None:
    log = lead(broker)
    log.become_follower(2, 3)
    for epoch, code in ((2, ErrorCode.FENCED_LEADER_EPOCH), (3, 0), (4, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        assert broker.only(broker.fetch([("t", 0, 0)], current_leader_epoch=epoch)).error_code == code
    exchange = broker.fetch_exchange([("t", 0, 0)], max_wait_ms=10_000, current_leader_epoch=3)
    assert exchange.kind == "parked"
    log.become_follower(3, 4)
    assert exchange.wakes == 1
    entry = broker.only(broker.fetch_reply(exchange.resume(), 12))
    assert entry.error_code == ErrorCode.FENCED_LEADER_EPOCH


def racks(broker: Any) -> None:
    broker.plane.set_endpoints(
        0, {1: ("one", 1, "a"), 2: ("two", 2, "b"), 3: ("three", 3, "b"), 4: ("four", 4, "c"), 5: ("five", 5, None)}
    )


def test_the_leader_names_the_most_caught_up_replica_in_the_consumers_rack(broker: Any) -> None:
    replication = Replication()
    replication.clock_ms = 1
    log = lead(broker)
    log.use_replication(replication)
    log.become_leader(1, 1, (1, 2, 3, 5), (1, 2, 3, 4, 5))
    racks(broker)
    for _ in range(3):
        log.append_as_leader(broker.batch())

    def preferred(offset: int = 0, rack: str = "b", version: int = 12, **fields: Any) -> tuple[int, int]:
        entry = broker.only(broker.fetch([("t", 0, offset)], version=version, rack_id=rack, **fields))
        assert entry.error_code == 0
        return entry.preferred_read_replica, len(entry.records)

    size = len(broker.batch())
    for replica in (2, 3, 5):
        log.follower_position(replica, 1, log_start_offset=0)
    assert log.high_watermark == 1
    assert preferred() == (-1, size)  # no selector
    broker.plane.replica_selector = "rack_aware"
    replication.clock_ms = 10
    log.follower_position(3, 1, log_start_offset=0)
    replication.clock_ms = 20
    log.follower_position(2, 2, log_start_offset=0)
    assert preferred() == (2, 0)
    log.follower_position(3, 2, log_start_offset=0)
    log.follower_position(2, 3, log_start_offset=0)
    log.follower_position(3, 3, log_start_offset=0)
    assert preferred(version=18) == (3, 0)  # as far, caught up at the same time: the higher id
    replication.clock_ms = 30
    log.follower_position(2, 3, log_start_offset=0)
    assert preferred(version=11) == (2, 0)  # caught up later
    # The log of the replica must have the offset.
    log.follower_position(2, 3, log_start_offset=1)
    assert preferred(0) == (3, 0)
    log.follower_position(3, 1, log_start_offset=0)
    assert preferred(2)[0] == 2
    assert preferred(0) == (3, 0)
    # Members of the ISR only (KAFKA-14372, KAFKA-15390).
    log.set_isr(0, (1, 2), (1, 2))
    assert preferred(0)[0] == -1
    # The leader's own rack, an unknown one, none; a replica without a rack or not in the ISR.
    for rack in ("a", "z", "", "c"):
        assert preferred(2, rack)[0] == -1
    assert broker.only(broker.fetch([("t", 0, 0)], version=10)).records
    assert len(broker.only(broker.fetch([("t", 0, 0)], version=12, replica_id=2, rack_id="b")).records) == 3 * size
    log.follower_position(2, 3, log_start_offset=0)
    # A preferred replica does not wait for records.
    exchange = broker.fetch_exchange([("t", 0, 2)], rack_id="b", max_wait_ms=10_000)
    assert broker.only(broker.fetch_reply(exchange, 12)).preferred_read_replica == 2


def test_a_replica_is_not_named_for_records_that_it_may_not_have(broker: Any) -> None:
    """A member of the ISR whose log is shorter, or has not been known since the leader began."""
    log = lead(broker)
    racks(broker)
    broker.plane.replica_selector = "rack_aware"
    for _ in range(2):
        log.append_as_leader(broker.batch())

    def preferred(offset: int) -> int:
        entry = broker.only(broker.fetch([("t", 0, offset)], rack_id="b"))
        assert entry.error_code == 0
        return int(entry.preferred_read_replica)

    assert preferred(0) == -1
    log.follower_position(2, 1, log_start_offset=0)
    assert [preferred(offset) for offset in (0, 1, 2)] == [2, 2, -1]
    log.become_leader(1, 1, (1, 2), (1, 2, 3))
    assert preferred(0) == -1
    log.follower_position(2, 2, log_start_offset=0)
    assert [preferred(offset) for offset in (0, 1, 2)] == [2, 2, 2]


def test_a_session_names_a_preferred_replica_each_time(broker: Any) -> None:
    log = lead(broker)
    racks(broker)
    broker.plane.replica_selector = "rack_aware"
    log.append_as_leader(broker.batch())
    session = broker.fetch([("t", 0, 0)], session_epoch=0, rack_id="b").session_id
    log.follower_position(2, 1, log_start_offset=0)
    for epoch in (1, 2, 3):
        entry = broker.only(broker.fetch([], session_id=session, session_epoch=epoch, rack_id="b"))
        assert entry.preferred_read_replica == 2


def test_another_selector_is_asked(broker: Any) -> None:
    broker.plane.replica_selector = "asked"
    logs = broker.topic("t", 3, isr=(1, 2), replicas=(1, 2, 3))
    for log in logs:
        log.append_as_leader(broker.batch())
        log.follower_position(2, 1, log_start_offset=0)
    logs[2].set_isr(0, (1,), (1,))
    wanted = [("t", 0, 0), ("t", 1, 0), ("t", 2, 0), ("nowhere", 0, 0)]
    exchange = broker.fetch_exchange(wanted, rack_id="r\u00e4ck", max_wait_ms=10_000)
    assert exchange.kind == "ask" and exchange.asks_selection
    assert exchange.questions == [b"0", b"1"]
    assert exchange.replica_selection(0) == ("t", 0, 0, "r\u00e4ck", 1, [(2, 1)])
    exchange.select_replica(0, 2)
    exchange.select_replica(1, -1)
    exchange.select_replica(99, 2)
    for index in (-1, 3, 99):
        with pytest.raises(IndexError):
            exchange.replica_selection(index)
    entries = broker.by_partition(broker.fetch_reply(exchange.resume(), 12))
    got = {number: (entry.preferred_read_replica, len(entry.records)) for (_, number), entry in entries.items()}
    assert got[1] == got[2] == (-1, len(broker.batch()))
    assert entries["nowhere", 0].preferred_read_replica == -1
    assert (entries["t", 0].preferred_read_replica, entries["t", 0].records) == (2, b"")
    # Nobody is asked for a follower, for an old client, or without a choice.
    assert broker.fetch_exchange([("t", 0, 0)], replica_id=2).kind == "reply"
    assert broker.fetch_exchange([("t", 0, 0)], version=10).kind == "reply"
    assert broker.fetch_exchange([("t", 2, 0)]).kind == "reply"
    exchange = broker.fetch_exchange([("t", 0, 0)])
    assert exchange.kind == "ask"
    exchange.cancel()


def test_an_unknown_selector_is_refused(broker: Any) -> None:
    with pytest.raises(ValueError, match="selector"):
        broker.plane.replica_selector = "nearest"
    assert broker.plane.replica_selector == "leader"
    broker.plane.replica_selector = "asked"
    assert broker.plane.replica_selector == "asked"
