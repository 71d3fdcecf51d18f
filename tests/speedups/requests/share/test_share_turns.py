"""Share fetches take turns, wake when they must, and tell Python what it must hear."""

from __future__ import annotations

import gc
import select
from collections.abc import Iterator

import pytest
from speedups.requests.share.members import SETTINGS, ShareBroker, acknowledged, ranges
from waiting import wait_until

from kafkapy.errors import ErrorCode
from kafkapy.records.control import build_end_transaction_marker

ACCEPT, ARCHIVING = 1, 3
MANY, A_TURN, SWEPT_A_TURN = 150, 64, 5_000
T = ("t", 0)


def test_other_connections_have_turns_between_the_acknowledgements_of_many_partitions(shares: ShareBroker) -> None:
    logs = shares.topic("many", 600)
    for log in logs:
        log.append_as_leader(shares.batch(b"a"))
    member = shares.member("m")
    member.fetch([("many", index) for index in range(600)], max_records=600)
    shares.held = True
    exchange = member.acknowledge_exchange({("many", index): [(0, 0, [ACCEPT])] for index in range(600)})
    turns = 0
    while exchange.kind == "parked" and exchange.wakes:
        turns += 1
        exchange.resume()
    assert turns >= 2, "on a slow machine a turn ends earlier"
    assert exchange.kind == "parked", "for the writes"
    shares.held = False
    shares.serve()
    assert acknowledged(member.acknowledge_reply(exchange.resume())) == dict.fromkeys(range(600), 0)


# ---- what must not be missed ----


def test_a_fetch_does_not_sleep_behind_a_long_aborted_transaction(shares: ShareBroker) -> None:
    shares.settings = (*SETTINGS[:4], True, True)
    (log,) = shares.topic("t")
    for sequence in range(600):
        log.append_as_leader(
            shares.batch(b"no", producer_id=9, producer_epoch=0, base_sequence=sequence, transactional=True)
        )
    log.append_as_leader(build_end_transaction_marker(9, 0, committed=False, coordinator_epoch=0, timestamp_ms=1))
    log.append_as_leader(shares.batch(b"yes"))
    member = shares.member("m")
    exchange = member.fetch_exchange([T], max_records=10)
    for _ in range(200):
        shares.serve()
        if exchange.kind != "parked":
            break
        assert exchange.wakes, "the fetch sleeps although there is more to read"
        exchange.resume()
    # The marker is acquired too, as in Kafka: the client acknowledges it as a gap.
    assert ranges(member.reply(exchange)) == [(600, 601, 1)]


def test_a_fetch_behind_an_open_transaction_wakes_when_the_group_reads_uncommitted_records(shares: ShareBroker) -> None:
    shares.settings = (*SETTINGS[:4], True, True)
    (log,) = shares.topic("t")
    log.append_as_leader(shares.batch(b"open", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True))
    member = shares.member("m")
    exchange = member.fetch_exchange([T])
    shares.serve()
    while exchange.wakes:
        exchange.resume()
    assert exchange.kind == "parked"
    shares.shares.configure("g", SETTINGS)
    assert exchange.wakes
    exchange.resume()
    assert ranges(member.reply(exchange)) == [(0, 0, 1)]


def test_python_hears_of_a_group_whose_last_member_held_nothing(shares: ShareBroker) -> None:
    shares.topic("t")
    member = shares.member("m")
    member.fetch([T])
    shares.serve()
    assert readable(shares) == []
    member.driver.disconnect()
    assert readable(shares) == [shares.shares.fileno()]
    shares.serve()
    assert shares.emptied == ["g"]


def readable(shares: ShareBroker) -> list[int]:
    poll = select.poll()
    poll.register(shares.shares.fileno(), select.POLLIN)
    return [fileno for fileno, _ in poll.poll(0)]


@pytest.fixture
def collected() -> Iterator[None]:
    """Each log has open descriptors until it is collected."""
    yield
    gc.collect()


@pytest.fixture
def many(collected: None) -> Iterator[ShareBroker]:
    """A broker with 150 share-partitions; "m" has acquired a record of each."""
    shares = ShareBroker(max_partitions=10_000)
    shares.logs = shares.topic("many", MANY)
    for log in shares.logs:
        log.append_as_leader(shares.batch(b"a"))
    shares.gone = shares.member("m")
    shares.gone.fetch([("many", index) for index in range(MANY)], max_records=MANY)
    assert acquired(shares) == MANY
    yield shares
    shares.shares.close()
    shares.logs.clear()


def acquired(shares: ShareBroker) -> int:
    return sum(int(shares.share("many", index)["acquired"]) for index in range(MANY))


@pytest.mark.parametrize("how", ["connection", "epoch", "sweep"])
def test_a_session_of_many_partitions_is_released_in_turns(many: ShareBroker, how: str) -> None:
    if how == "connection":
        many.gone.driver.disconnect()
    elif how == "epoch":
        exchange = many.gone.fetch_exchange(epoch=-1, max_wait_ms=0)
        assert exchange.kind == "reply"
    else:
        many.shares.sweep(0)
    assert many.shares.counters()["evictions"] == (how != "epoch")
    # A released record is free when its new state is written.
    turns = []
    while readable(many):
        _, writes, _ = many.shares.take()
        turns.append(len(writes))
        for write in writes:
            write.finish()
    assert [each for each in turns if each] == [A_TURN, A_TURN, MANY - 2 * A_TURN]
    assert acquired(many) == 0


def test_a_sweep_of_many_share_partitions_takes_turns(many: ShareBroker) -> None:
    """Of lost leaderships: more share-partitions than one turn looks at."""
    groups = SWEPT_A_TURN // MANY + 1
    for number in range(1, groups):
        member = many.member("m", f"g{number}")
        member.fetch([("many", index) for index in range(MANY)], max_records=MANY)
    assert len(many.shares) == groups * MANY > SWEPT_A_TURN
    for log in many.logs:
        log.become_follower(2, 1)
    assert many.shares.sweep(), "the next call goes on"
    assert len(many.shares) == groups * MANY - SWEPT_A_TURN
    assert not many.shares.sweep()
    assert len(many.shares) == 0


def test_releases_of_an_ended_session_spare_what_the_member_acquires_by_a_new_one(many: ShareBroker) -> None:
    many.gone.driver.disconnect()
    index = MANY - 1  # the last one of the session, so it is not released at once
    many.logs[index].append_as_leader(many.batch(b"b"))
    again = many.member("m")
    assert ranges(again.fetch([("many", index)])) == [(1, 1, 1)]
    while readable(many):
        many.serve()
    # The locks of the records that are left end in time.
    assert many.share("many", index)["acquired"] == 2
    assert acquired(many) == MANY - A_TURN + 1


def test_a_broker_stops_while_sessions_are_being_released(many: ShareBroker) -> None:
    many.gone.driver.disconnect()
    many.shares.close()
    assert many.shares.take() == ([], [], [])


def test_a_session_that_grows_beyond_its_bound_releases_its_records() -> None:
    shares = ShareBroker(max_sessions=2, max_partitions=3)
    (log, *_) = shares.topic("t", 9)
    log.append_as_leader(shares.batch(b"a"))
    member = shares.member("m")
    assert ranges(member.fetch([T])) == [(0, 0, 1)]
    reply = member.fetch([("t", index) for index in range(9)])
    assert reply.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    shares.serve()
    assert shares.share("t")["acquired"] == 0
    shares.shares.close()


def test_a_time_out_holds_although_its_write_fails(shares: ShareBroker) -> None:
    shares.settings = (1, 2000, 1, True, False, True)
    (log,) = shares.topic("t")
    log.append_as_leader(shares.batch(b"a"))
    member = shares.member("m")
    member.fetch([T])
    shares.held = True

    def expired() -> bool:
        shares.shares.expire()
        shares.serve()
        return bool(shares.writes)

    wait_until(expired, "the lock has ended")
    (write,) = shares.writes
    assert write.held == write.batches == [(0, 0, ARCHIVING, 1)]
    write.finish(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert shares.shares.archiving("g", shares.topic_id("t"), 0) == [(0, 0, 1)]
