"""ShareFetch and ShareAcknowledge in the data plane: acquire, acknowledge, wait, sessions."""

from __future__ import annotations

import select
from typing import Any

import pytest
from speedups.requests.share.members import SETTINGS, Member, ShareBroker, acknowledged, acquired, ranges
from waiting import wait_until

from kafkapy.errors import ErrorCode
from kafkapy.records.control import build_end_transaction_marker

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
T = ("t", 0)


def fetch_errors(response: Any) -> dict[int, tuple[int, int]]:
    """{partition: (error, acknowledge error)} of a ShareFetch."""
    return {
        entry.partition_index: (entry.error_code, entry.acknowledge_error_code)
        for topic in response.responses
        for entry in topic.partitions
    }


# ---- acquiring ----


@pytest.mark.parametrize("version", [1, 2])
def test_a_fetch_acquires_records_and_sends_their_batches(shares: ShareBroker, version: int) -> None:
    (log,) = shares.topic("t")
    log.append_as_leader(shares.batch(b"a", b"b"))
    log.append_as_leader(shares.batch(b"c"))
    reply = shares.member("m").fetch([T], version=version)
    (topic,) = reply.responses
    (entry,) = topic.partitions
    assert (reply.error_code, reply.acquisition_lock_timeout_ms, entry.error_code) == (0, 30_000, 0)
    assert topic.topic_id == shares.uuid("t")
    assert len(entry.records) == len(shares.batch(b"a", b"b")) + len(shares.batch(b"c"))
    assert entry.acquired_records[0].first_offset == 0
    assert entry.acquired_records[-1].last_offset == 2
    assert {each.delivery_count for each in entry.acquired_records} == {1}
    assert shares.share("t")["acquired"] == 3


def test_no_record_is_acquired_twice(shares: ShareBroker) -> None:
    (log,) = shares.topic("t")
    for value in (b"a", b"b", b"c", b"d"):
        log.append_as_leader(shares.batch(value))
    first, second = shares.member("m1"), shares.member("m2")
    held = ranges(first.fetch([T], max_records=2))
    assert (held[0][0], held[-1][1]) == (0, 1)
    held = ranges(second.fetch([T]))
    assert (held[0][0], held[-1][1]) == (2, 3)
    assert ranges(first.fetch()) == []


def test_only_batches_with_acquired_records_are_sent(shares: ShareBroker) -> None:
    (log,) = shares.topic("t")
    sizes = []
    for value in (b"a", b"bb", b"ccc"):
        batch = shares.batch(value)
        sizes.append(len(batch))
        log.append_as_leader(batch)
    member = shares.member("m")
    (entry,) = member.fetch([T], max_records=1).responses[0].partitions
    assert len(entry.records) == sizes[0]
    (entry,) = member.fetch(max_records=1).responses[0].partitions
    assert len(entry.records) == sizes[1]


def test_records_of_a_batch_stay_together_unless_the_request_limits_records(shares: ShareBroker) -> None:
    (log,) = shares.topic("t")
    log.append_as_leader(shares.batch(b"a", b"b", b"c"))
    log.append_as_leader(shares.batch(b"d", b"e", b"f"))
    assert ranges(shares.member("m1").fetch([T], max_records=1)) == [(0, 2, 1)]
    assert ranges(shares.member("m2").fetch([T], max_records=1, share_acquire_mode=1)) == [(3, 3, 1)]


def test_max_records_counts_over_partitions(shares: ShareBroker) -> None:
    for log in shares.topic("t", 3):
        log.append_as_leader(shares.batch(b"a"))
    member = shares.member("m")
    member.fetch([("t", 0), ("t", 1), ("t", 2)], max_records=2)
    assert sum(shares.share("t", index)["acquired"] for index in range(3)) == 2
    member.fetch(max_records=2)
    assert sum(shares.share("t", index)["acquired"] for index in range(3)) == 3


def test_partitions_take_turns(shares: ShareBroker) -> None:
    for log in shares.topic("t", 3):
        for _ in range(3):
            log.append_as_leader(shares.batch(b"a"))
    member = shares.member("m")
    served = []
    for _ in range(3):
        topics = [("t", 0), ("t", 1), ("t", 2)] if not served else []
        (key,) = acquired(member.fetch(topics, max_records=1))
        served.append(key[1])
    assert sorted(served) == [0, 1, 2]


def test_groups_do_not_see_each_other(shares: ShareBroker) -> None:
    (log,) = shares.topic("t")
    log.append_as_leader(shares.batch(b"a"))
    assert ranges(shares.member("m", "g1").fetch([T])) == [(0, 0, 1)]
    assert ranges(shares.member("m", "g2").fetch([T])) == [(0, 0, 1)]


def test_the_window_bounds_the_records_in_flight(shares: ShareBroker) -> None:
    shares.settings = (30_000, 3, 5, False, False, True)
    (log,) = shares.topic("t")
    for _ in range(10):
        log.append_as_leader(shares.batch(b"a"))
    member = shares.member("m")
    member.fetch([T])
    assert shares.share("t")["acquired"] == 3
    assert ranges(member.fetch()) == []
    assert acknowledged(member.acknowledge({T: [(0, 0, [ACCEPT])]})) == {0: 0}
    assert ranges(member.fetch()) == [(3, 3, 1)]


def test_an_aborted_transaction_is_not_delivered(shares: ShareBroker) -> None:
    shares.settings = (*SETTINGS[:4], True, True)
    (log,) = shares.topic("t")
    log.append_as_leader(shares.batch(b"b", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True))
    log.append_as_leader(shares.batch(b"c"))
    member = shares.member("m")
    exchange = member.fetch_exchange([T])
    shares.serve()
    exchange.resume()
    assert exchange.kind == "parked"
    log.append_as_leader(build_end_transaction_marker(9, 0, committed=False, coordinator_epoch=0, timestamp_ms=1))
    assert exchange.wakes
    held = ranges(member.answer(exchange))
    assert (held[0][0], held[-1][1]) == (1, 2)
    shares.serve()
    assert shares.share("t")["start_offset"] == 1


def test_read_uncommitted_delivers_all(shares: ShareBroker) -> None:
    (log,) = shares.topic("t")
    log.append_as_leader(shares.batch(b"b", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True))
    assert ranges(shares.member("m").fetch([T])) == [(0, 0, 1)]


def test_records_below_the_start_of_the_log_are_passed_over(shares: ShareBroker) -> None:
    (log,) = shares.topic("t")
    for _ in range(4):
        log.append_as_leader(shares.batch(b"a"))
    log.delete_records(2)
    held = ranges(shares.member("m").fetch([T]))
    assert (held[0][0], held[-1][1]) == (2, 3)


# ---- acknowledging ----


def test_accepted_records_are_gone_and_released_ones_come_again(shares: ShareBroker) -> None:
    (log,) = shares.topic("t")
    log.append_as_leader(shares.batch(b"a", b"b", b"c", b"d"))
    member = shares.member("m")
    assert ranges(member.fetch([T])) == [(0, 3, 1)]
    reply = member.acknowledge({T: [(0, 1, [ACCEPT]), (2, 3, [RELEASE, REJECT])]})
    assert (reply.error_code, acknowledged(reply)) == (0, {0: 0})
    assert shares.share("t")["start_offset"] == 2
    assert ranges(member.fetch()) == [(2, 2, 2)]
    # The start offset is stored with the acknowledgements that move it.
    start, batches = shares.states["g", shares.topic_id("t"), 0]
    assert (start, batches[0]) == (2, (2, 2, 0, 1))


def test_a_refused_acknowledgement_says_why(shares: ShareBroker) -> None:
    (log,) = shares.topic("t")
    log.append_as_leader(shares.batch(b"a", b"b"))
    member = shares.member("m")
    member.fetch([T])
    for batch, error, words in (
        ((5, 6, [ACCEPT]), ErrorCode.INVALID_REQUEST, "not among those"),
        ((0, 0, [ACCEPT]), ErrorCode.NONE, None),
        ((0, 0, [ACCEPT]), ErrorCode.NONE, None),  # below the start offset
        ((1, 0, [ACCEPT]), ErrorCode.INVALID_REQUEST, None),
    ):
        [topic] = member.acknowledge({T: [batch]}).responses
        [found] = topic.partitions
        assert found.error_code == error
        assert (found.error_message is None) is (words is None)
        assert words is None or words in (found.error_message or "")
        [topic] = member.fetch(acks={T: [(9, 9, [ACCEPT])]}, max_wait_ms=0).responses
        assert "not among those" in (topic.partitions[0].acknowledge_error_message or "")
    assert member.acknowledge({T: []}).responses == []


def test_an_acknowledgement_is_answered_when_its_write_has_ended(shares: ShareBroker) -> None:
    (log,) = shares.topic("t")
    log.append_as_leader(shares.batch(b"a", b"b"))
    member = shares.member("m")
    member.fetch([T])
    shares.held = True
    exchange = member.acknowledge_exchange({T: [(0, 1, [ACCEPT])]})
    shares.serve()
    assert (exchange.kind, exchange.wakes) == ("parked", 0)
    (write,) = shares.writes
    assert write.key == ("g", shares.topic_id("t"), 0)
    assert write.batches == [(0, 1, 2, 1)]
    write.finish()
    assert exchange.wakes == 1
    assert acknowledged(member.acknowledge_reply(exchange.resume())) == {0: 0}


def test_the_end_of_a_write_wakes_the_loop_only_for_another_one(shares: ShareBroker) -> None:
    (log,) = shares.topic("t")
    for _ in range(2):
        log.append_as_leader(shares.batch(b"a"))
    member, other = shares.member("m"), shares.member("n")
    for each in (member, other):
        assert ranges(each.fetch([T], max_records=1))
    shares.held = True
    member.acknowledge_exchange({T: [(0, 0, [ACCEPT])]})
    shares.serve()
    exchange = other.acknowledge_exchange({T: [(1, 1, [ACCEPT])]})
    assert not is_readable(shares)
    shares.writes.pop().finish()
    assert is_readable(shares), "the second acknowledgement waits for its write"
    shares.serve()
    (write,) = shares.writes
    write.finish()
    assert exchange.wakes == 1
    assert not is_readable(shares), "the write made room, and there is nothing more to write"


def is_readable(shares: ShareBroker) -> bool:
    """Whether the control loop is to take something."""
    return bool(select.select([shares.shares.fileno()], [], [], 0)[0])


def test_a_failed_write_takes_the_acknowledgement_back(shares: ShareBroker) -> None:
    (log,) = shares.topic("t")
    log.append_as_leader(shares.batch(b"a"))
    member = shares.member("m")
    member.fetch([T])
    shares.held = True
    exchange = member.acknowledge_exchange({T: [(0, 0, [ACCEPT])]})
    shares.serve()
    shares.writes.pop().finish(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert acknowledged(member.acknowledge_reply(exchange.resume())) == {0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    shares.held = False
    assert shares.share("t")["acquired"] == 1
    assert acknowledged(member.acknowledge({T: [(0, 0, [ACCEPT])]})) == {0: 0}


def test_acknowledgements_of_one_turn_share_a_write(shares: ShareBroker) -> None:
    (log,) = shares.topic("t")
    for _ in range(4):
        log.append_as_leader(shares.batch(b"a"))
    members = [shares.member(f"m{i}") for i in range(4)]
    for member in members:
        member.fetch([T], max_records=1)
    shares.held = True
    exchanges = [
        member.acknowledge_exchange({T: [(offset, offset, [ACCEPT])]}) for offset, member in enumerate(members)
    ]
    shares.serve()
    (write,) = shares.writes
    assert write.batches == [(0, 3, 2, 1)]
    write.finish()
    for member, exchange in zip(members, exchanges, strict=True):
        assert acknowledged(member.acknowledge_reply(exchange.resume())) == {0: 0}


def test_a_fetch_carries_acknowledgements(shares: ShareBroker) -> None:
    (log,) = shares.topic("t")
    log.append_as_leader(shares.batch(b"a"))
    log.append_as_leader(shares.batch(b"b"))
    member = shares.member("m")
    member.fetch([T], max_records=1)
    reply = member.fetch(acks={T: [(0, 0, [ACCEPT])]})
    assert fetch_errors(reply) == {0: (0, 0)}
    assert ranges(reply) == [(1, 1, 1)]
    assert shares.share("t")["start_offset"] == 1


def test_a_renewal_keeps_the_records(shares: ShareBroker) -> None:
    (log,) = shares.topic("t")
    log.append_as_leader(shares.batch(b"a"))
    member = shares.member("m")
    member.fetch([T])
    reply = member.acknowledge({T: [(0, 0, [RENEW])]}, is_renew_ack=True)
    assert (acknowledged(reply), reply.acquisition_lock_timeout_ms) == ({0: 0}, 30_000)
    nothing = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    assert fetch_errors(member.fetch(acks={T: [(0, 0, [RENEW])]}, is_renew_ack=True, **nothing)) == {0: (0, 0)}
    assert shares.share("t")["acquired"] == 1


def test_renewals_may_be_forbidden(shares: ShareBroker) -> None:
    shares.settings = (*SETTINGS[:5], False)
    (log,) = shares.topic("t")
    log.append_as_leader(shares.batch(b"a"))
    member = shares.member("m")
    member.fetch([T])
    reply = member.acknowledge({T: [(0, 0, [RENEW])]}, is_renew_ack=True)
    assert acknowledged(reply) == {0: ErrorCode.INVALID_RECORD_STATE}


# ---- bad acknowledgements ----


@pytest.fixture
def holder(shares: ShareBroker) -> Member:
    """A member that holds the offsets 0 to 3 of t-0."""
    (log,) = shares.topic("t")
    log.append_as_leader(shares.batch(b"a", b"b", b"c", b"d"))
    member = shares.member("holder")
    assert ranges(member.fetch([T])) == [(0, 3, 1)]
    return member


@pytest.mark.parametrize(
    ("batches", "error"),
    [
        pytest.param([(4, 4, [ACCEPT])], ErrorCode.INVALID_REQUEST, id="behind the window"),
        pytest.param([(2, 1, [ACCEPT])], ErrorCode.INVALID_REQUEST, id="ends before it begins"),
        pytest.param([(2, 3, [ACCEPT]), (0, 1, [ACCEPT])], ErrorCode.INVALID_REQUEST, id="out of order"),
        pytest.param([(0, 3, [])], ErrorCode.INVALID_REQUEST, id="no type"),
        pytest.param([(0, 3, [1, 1])], ErrorCode.INVALID_REQUEST, id="too few types"),
        pytest.param([(0, 3, [1] * 9)], ErrorCode.INVALID_REQUEST, id="too many types"),
        pytest.param([(0, 3, [5])], ErrorCode.INVALID_REQUEST, id="unknown type"),
        pytest.param([(0, 3, [-1])], ErrorCode.INVALID_REQUEST, id="negative type"),
        pytest.param([(0, 3, [RENEW])], ErrorCode.INVALID_REQUEST, id="renewal of a request without renewals"),
        pytest.param([(-(1 << 63), (1 << 63) - 1, [ACCEPT])], ErrorCode.INVALID_REQUEST, id="all offsets"),
        pytest.param([(0, (1 << 63) - 1, [ACCEPT])], ErrorCode.INVALID_REQUEST, id="to the end"),
    ],
)
def test_bad_acknowledgements_change_nothing(
    shares: ShareBroker, holder: Member, batches: list[tuple[int, int, list[int]]], error: ErrorCode
) -> None:
    before = shares.share("t")
    assert acknowledged(holder.acknowledge({T: batches})) == {0: error}
    assert fetch_errors(holder.fetch(acks={T: batches})) == {0: (0, error)}
    assert {**shares.share("t"), "memory": 0} == {**before, "memory": 0}
    assert acknowledged(holder.acknowledge({T: [(0, 3, [ACCEPT])]})) == {0: 0}


def test_records_of_another_member_cannot_be_acknowledged(shares: ShareBroker, holder: Member) -> None:
    thief = shares.member("thief")
    thief.fetch([T])
    assert acknowledged(thief.acknowledge({T: [(0, 0, [ACCEPT])]})) == {0: ErrorCode.INVALID_RECORD_STATE}
    assert acknowledged(holder.acknowledge({T: [(0, 0, [ACCEPT])]})) == {0: 0}


def test_a_record_cannot_be_acknowledged_twice(shares: ShareBroker, holder: Member) -> None:
    assert acknowledged(holder.acknowledge({T: [(1, 1, [ACCEPT])]})) == {0: 0}
    assert acknowledged(holder.acknowledge({T: [(1, 1, [ACCEPT])]})) == {0: ErrorCode.INVALID_RECORD_STATE}


def test_one_bad_batch_takes_the_others_back(shares: ShareBroker, holder: Member) -> None:
    assert acknowledged(holder.acknowledge({T: [(1, 1, [ACCEPT])]})) == {0: 0}
    before = shares.share("t")
    reply = holder.acknowledge({T: [(0, 0, [ACCEPT]), (1, 1, [ACCEPT])]})
    assert acknowledged(reply) == {0: ErrorCode.INVALID_RECORD_STATE}
    assert shares.share("t")["acquired"] == before["acquired"]


def test_more_batches_than_the_window_are_refused(shares: ShareBroker, holder: Member) -> None:
    batches = [(offset, offset, [ACCEPT]) for offset in range(100_000)]
    assert acknowledged(holder.acknowledge({T: batches})) == {0: ErrorCode.INVALID_REQUEST}
    assert shares.share("t")["acquired"] == 4


def test_an_acknowledgement_after_the_lock_ran_out_is_refused(shares: ShareBroker) -> None:
    shares.settings = (1, *SETTINGS[1:])
    (log,) = shares.topic("t")
    log.append_as_leader(shares.batch(b"a"))
    member = shares.member("m")
    member.fetch([T])

    def is_free() -> bool:
        shares.shares.expire()
        return bool(shares.share("t")["acquired"] == 0)

    wait_until(is_free, "the lock runs out")
    assert acknowledged(member.acknowledge({T: [(0, 0, [ACCEPT])]})) == {0: ErrorCode.INVALID_RECORD_STATE}
    shares.serve()
    assert ranges(shares.member("m2").fetch([T])) == [(0, 0, 2)]


def test_unknown_topics_and_partitions(shares: ShareBroker, holder: Member) -> None:
    reply = holder.acknowledge({("nothing", 0): [(0, 0, [1])], ("t", 7): [(0, 0, [1])], ("nothing2", 1): []})
    (first, second, third) = [topic.partitions[0].error_code for topic in reply.responses]
    assert (first, second, third) == (
        ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID,
    )  # fmt: skip
    shares.topic("other")
    reply = holder.acknowledge({("other", 0): [(0, 0, [1])]})
    assert acknowledged(reply) == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    reply2 = holder.fetch([("nothing", 0), ("t", 7)])
    assert sorted(error for error, _ in fetch_errors(reply2).values()) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID,
    ]  # fmt: skip


# ---- sessions ----


def test_epochs_count_up(shares: ShareBroker) -> None:
    shares.topic("t")
    member = shares.member("m")
    assert member.fetch([T]).error_code == 0
    assert member.fetch(epoch=1).error_code == 0
    for epoch in (1, 3, 0x7FFFFFFF, -2, -(1 << 31)):
        assert member.fetch(epoch=epoch).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        reply = member.acknowledge({T: []}, epoch=epoch)
        assert (reply.error_code, reply.responses) == (ErrorCode.INVALID_SHARE_SESSION_EPOCH, [])
    assert member.acknowledge({T: []}, epoch=2).error_code == 0
    assert member.fetch(epoch=3).error_code == 0


def test_a_session_must_be_opened_by_a_fetch(shares: ShareBroker) -> None:
    shares.topic("t")
    member = shares.member("m")
    assert member.acknowledge({T: []}, epoch=0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    for epoch in (1, -1):
        assert member.acknowledge({T: []}, epoch=epoch).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert member.fetch([T], epoch=epoch).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_the_first_fetch_acknowledges_nothing(shares: ShareBroker, holder: Member) -> None:
    assert holder.fetch(epoch=0, acks={T: [(0, 0, [ACCEPT])]}).error_code == ErrorCode.INVALID_REQUEST
    assert acknowledged(holder.acknowledge({T: [(0, 0, [ACCEPT])]})) == {0: 0}


def test_the_final_epoch_releases_the_records(shares: ShareBroker, holder: Member) -> None:
    reply = holder.acknowledge({T: [(0, 0, [ACCEPT])]}, epoch=-1)
    assert acknowledged(reply) == {0: 0}
    shares.serve()
    assert holder.fetch(epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert shares.emptied == ["g"]
    assert ranges(shares.member("next").fetch([T])) == [(1, 3, 2)]


def test_the_end_of_a_connection_releases_the_records(shares: ShareBroker, holder: Member) -> None:
    waiter = shares.member("waiter")
    exchange = waiter.fetch_exchange([T])
    assert exchange.kind == "parked"
    holder.driver.disconnect()
    shares.serve()
    assert ranges(waiter.answer(exchange)) == [(0, 3, 2)]
    assert shares.shares.counters()["sessions"] == 1


def test_a_session_of_another_connection_is_not_ended_by_the_old_one(shares: ShareBroker, holder: Member) -> None:
    again = shares.member("holder")
    assert again.fetch([T]).error_code == 0
    holder.driver.disconnect()
    assert again.fetch().error_code == 0


def test_sessions_are_bounded() -> None:
    shares = ShareBroker(max_sessions=2, max_partitions=3)
    shares.topic("t", 9)
    first = shares.member("m1")
    assert first.fetch([T]).error_code == 0
    second = shares.member("m2")
    assert second.fetch([T]).error_code == 0
    third = shares.member("m3")
    exchange = third.fetch_exchange([T])
    assert exchange.kind == "parked"
    assert third.reply(exchange.resume(timed_out=True)).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert second.fetch([("t", index) for index in range(9)]).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert shares.member("m3").fetch([T]).error_code == 0
    shares.shares.close()


def test_a_million_new_sessions_of_one_member_are_one_session(shares: ShareBroker) -> None:
    shares.topic("t")
    member = shares.member("m")
    for _ in range(1000):
        assert member.fetch([T], epoch=0).error_code == 0
    assert shares.shares.counters()["sessions"] == 1


def test_forgotten_partitions_are_fetched_no_more(shares: ShareBroker) -> None:
    logs = shares.topic("t", 2)
    member = shares.member("m")
    member.fetch([("t", 0), ("t", 1)])
    member.fetch(forgotten=[("t", 0)])
    for log in logs:
        log.append_as_leader(shares.batch(b"a"))
    assert list(acquired(member.fetch())) == [(shares.uuid("t"), 1)]


@pytest.mark.parametrize("name", ["", "x" * 37])
def test_bad_member_ids_are_refused(shares: ShareBroker, name: str) -> None:
    shares.topic("t")
    assert shares.member(name).fetch([T]).error_code == ErrorCode.INVALID_REQUEST


def test_null_names_are_refused(shares: ShareBroker) -> None:
    member = shares.member("m")
    member.name = None  # type: ignore[assignment]
    assert member.fetch().error_code == ErrorCode.INVALID_REQUEST
    member = shares.member("m")
    member.group = None  # type: ignore[assignment]
    assert member.fetch().error_code == ErrorCode.INVALID_REQUEST
    assert member.acknowledge({}).error_code == ErrorCode.INVALID_REQUEST


def test_renewing_fetches_take_no_records(shares: ShareBroker, holder: Member) -> None:
    reply = holder.fetch(acks={T: [(0, 0, [RENEW])]}, is_renew_ack=True)
    assert reply.error_code == ErrorCode.INVALID_REQUEST


def test_without_share_version_nothing_is_served(shares: ShareBroker) -> None:
    shares.topic("t")
    shares.shares.enabled = False
    assert shares.member("m").fetch([T]).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert shares.member("m").acknowledge({}).error_code == ErrorCode.UNSUPPORTED_VERSION


# ---- waiting ----


def test_a_fetch_waits_for_records(shares: ShareBroker) -> None:
    (log,) = shares.topic("t")
    member = shares.member("m")
    member.fetch([T])
    exchange = member.fetch_exchange(max_wait_ms=60_000)
    assert exchange.kind == "parked"
    log.append_as_leader(shares.batch(b"a"))
    assert exchange.wakes == 1
    assert ranges(member.answer(exchange)) == [(0, 0, 1)]


def test_a_fetch_is_answered_when_max_wait_is_over(shares: ShareBroker) -> None:
    shares.topic("t")
    member = shares.member("m")
    member.fetch([T])
    exchange = member.fetch_exchange(max_wait_ms=60_000)
    reply = member.reply(exchange.resume(timed_out=True))
    assert (reply.error_code, reply.responses) == (0, [])


def test_new_records_wake_one_of_the_waiting_fetches(shares: ShareBroker) -> None:
    (log,) = shares.topic("t")
    members = [shares.member(f"m{i}") for i in range(5)]
    for member in members:
        member.fetch([T])
    exchanges = [member.fetch_exchange(max_wait_ms=60_000, max_records=1) for member in members]
    log.append_as_leader(shares.batch(b"a"))
    assert [exchange.wakes for exchange in exchanges] == [1, 0, 0, 0, 0]
    assert ranges(members[0].answer(exchanges[0])) == [(0, 0, 1)]
    assert [exchange.wakes for exchange in exchanges[1:]] == [0, 0, 0, 0]
    for _ in range(2):
        log.append_as_leader(shares.batch(b"a"))
    assert ranges(members[1].answer(exchanges[1])) == [(1, 1, 1)]
    assert ranges(members[2].answer(exchanges[2])) == [(2, 2, 1)]
    assert [exchange.wakes for exchange in exchanges[3:]] == [0, 0]


def test_a_fetch_that_dies_passes_its_wake_on(shares: ShareBroker) -> None:
    (log,) = shares.topic("t")
    members = [shares.member(f"m{i}") for i in range(3)]
    for member in members:
        member.fetch([T])
    exchanges = [member.fetch_exchange(max_wait_ms=60_000) for member in members]
    log.append_as_leader(shares.batch(b"a"))
    assert exchanges[0].wakes == 1
    exchanges[0].cancel()
    assert exchanges[1].wakes == 1
    assert ranges(members[1].answer(exchanges[1])) == [(0, 0, 1)]


def test_released_records_wake_a_fetch(shares: ShareBroker, holder: Member) -> None:
    waiter = shares.member("waiter")
    exchange = waiter.fetch_exchange([T])
    assert exchange.kind == "parked"
    holder.acknowledge({T: [(0, 3, [RELEASE])]})
    assert ranges(waiter.answer(exchange)) == [(0, 3, 2)]


def test_a_fetch_waits_for_min_bytes(shares: ShareBroker) -> None:
    (log,) = shares.topic("t")
    size = len(shares.batch(b"a"))
    member = shares.member("m")
    member.fetch([T])
    exchange = member.fetch_exchange(max_wait_ms=60_000, min_bytes=2 * size)
    log.append_as_leader(shares.batch(b"a"))
    assert exchange.wakes == 1
    assert exchange.resume().kind == "parked"
    other = shares.member("other")
    hungry = other.fetch_exchange([T], min_bytes=3 * size)
    assert hungry.kind == "parked"
    log.append_as_leader(shares.batch(b"a"))
    held = ranges(member.answer(exchange))
    assert (held[0][0], held[-1][1]) == (0, 1)
    held = ranges(other.reply(hungry.resume(timed_out=True)))
    assert held == []


def test_a_lost_leadership_wakes_and_refuses(shares: ShareBroker) -> None:
    (log,) = shares.topic("t")
    member = shares.member("m")
    member.fetch([T])
    exchange = member.fetch_exchange(max_wait_ms=60_000)
    log.become_follower(2, 1)
    assert exchange.wakes == 1
    reply = member.answer(exchange)
    (entry,) = reply.responses[0].partitions
    assert (entry.error_code, entry.current_leader.leader_id, entry.current_leader.leader_epoch) == (
        ErrorCode.NOT_LEADER_OR_FOLLOWER, 2, 1,
    )  # fmt: skip
    assert len(shares.shares) == 0


def test_a_new_leadership_reads_the_state_again(shares: ShareBroker, holder: Member) -> None:
    assert acknowledged(holder.acknowledge({T: [(0, 1, [ACCEPT])]})) == {0: 0}
    log = shares.table.log("t", 0)
    assert log is not None
    log.become_leader(1, 5, (1,), ())
    reply = holder.fetch()
    assert ranges(reply) == [(2, 3, 1)]
    assert shares.shares.counters()["loads"] == 2


def test_a_load_that_fails_is_told_and_tried_again(shares: ShareBroker) -> None:
    (log,) = shares.topic("t")
    log.append_as_leader(shares.batch(b"a"))
    member = shares.member("m")
    exchange = member.fetch_exchange([T])
    loads, _, _ = shares.shares.take()
    ((number, group, topic, topic_id, partition, leader_epoch),) = loads
    assert (group, topic, topic_id, partition, leader_epoch) == ("g", "t", shares.topic_id("t"), 0, 0)
    shares.shares.load_failed(number, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    reply = member.reply(exchange.resume())
    assert fetch_errors(reply) == {0: (ErrorCode.COORDINATOR_NOT_AVAILABLE, 0)}
    assert ranges(member.fetch()) == [(0, 0, 1)]
    assert fetch_errors(member.fetch()) == {}


def test_a_state_is_loaded_as_long_as_somebody_wants_it(shares: ShareBroker) -> None:
    shares.topic("t")
    member = shares.member("m")
    assert member.fetch_exchange([T]).kind == "parked"
    ((id, *_),), _, _ = shares.shares.take()
    with pytest.raises(ValueError, match="cannot have such a state"):
        shares.shares.loaded(id, 0, SETTINGS, 10, [(12, 11, 0, 1)])
    assert shares.shares.loaded(id, 0, SETTINGS, 0, [])
    shares.shares.drop_group("g", ErrorCode.GROUP_ID_NOT_FOUND)
    assert not shares.shares.loaded(id, 0, SETTINGS, 0, [])


def test_a_dropped_group_begins_again(shares: ShareBroker, holder: Member) -> None:
    assert not shares.shares.drop_group("g", ErrorCode.NOT_LEADER_OR_FOLLOWER, only_unused=True)
    shares.shares.drop_group("g", ErrorCode.GROUP_ID_NOT_FOUND)
    assert acknowledged(holder.acknowledge({T: [(0, 0, [ACCEPT])]})) == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert ranges(holder.fetch()) == [(0, 3, 1)]


def test_one_share_partition_is_dropped(shares: ShareBroker, holder: Member) -> None:
    for index, here in ((1, True), (0, False)):  # nobody has fetched the first one
        shares.shares.drop_partition("g", shares.topic_id("t"), index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert (shares.shares.describe("g", shares.topic_id("t"), 0) is not None) == here
    assert acknowledged(holder.acknowledge({T: [(0, 0, [ACCEPT])]})) == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_partition_that_cannot_be_kept_is_an_error(shares: ShareBroker) -> None:
    shares.topic("t", 3)
    shares.shares.max_entries = 1
    reply = shares.member("m").fetch([("t", 0), ("t", 1)])
    assert fetch_errors(reply) == {1: (ErrorCode.UNKNOWN_SERVER_ERROR, 0)}


# ---- authorization ----


def test_group_and_topics_need_read(shares: ShareBroker) -> None:
    (log,) = shares.topic("t")
    log.append_as_leader(shares.batch(b"a"))
    shares.plane.authorizer_epoch = 1
    member = shares.member("m")
    exchange = member.fetch_exchange([T])
    assert (exchange.kind, exchange.questions) == ("ask", [b"\x03\x02g"])
    member.driver.decide({b"\x03\x02g": False})
    assert member.reply(exchange.resume()).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    member = shares.member("m")
    member.driver.decide({b"\x03\x02g": True})
    exchange = member.fetch_exchange([T], epoch=0)
    assert (exchange.kind, exchange.questions) == ("ask", [b"\x03t"])
    member.driver.decide({b"\x03t": False})
    assert fetch_errors(member.answer(exchange.resume())) == {0: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0)}
    reply = member.acknowledge({T: [(0, 0, [ACCEPT])]}, epoch=1)
    assert acknowledged(reply) == {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
