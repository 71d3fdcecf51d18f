"""Incremental fetch sessions (KIP-227) as a client sees them, and which of them the cache keeps."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.fetch import FetchResponse

BY_NAME, BY_ID = 12, 17
MOST_PARTITIONS = 200_000


def names(response: FetchResponse) -> list[tuple[str, int]]:
    return [(topic.topic, entry.partition_index) for topic in response.responses for entry in topic.partitions]


def open_session(broker: Any, partitions: list[tuple[str, int, int]], version: int = BY_NAME, **fields: Any) -> int:
    reply = broker.fetch(partitions, version=version, session_epoch=0, **fields)
    assert reply.error_code == 0
    return int(reply.session_id)


@pytest.mark.parametrize("version", range(7, 19))
def test_a_full_fetch_makes_a_session_and_incremental_ones_name_what_changed(broker: Any, version: int) -> None:
    logs = broker.topic("t", 3)
    session = open_session(broker, [("t", 0, 0), ("t", 1, 0), ("t", 2, 0)], version)
    assert session > 0
    assert broker.sessions.counters() == {"sessions": 1, "partitions": 3, "evictions": 0}
    reply = broker.fetch([], version=version, session_id=session, session_epoch=1)
    assert (reply.error_code, reply.session_id, reply.responses) == (0, session, [])
    logs[1].append_as_leader(broker.batch(b"new"))
    reply = broker.fetch([], version=version, session_id=session, session_epoch=2)
    entry = broker.only(reply)
    assert (entry.partition_index, entry.high_watermark, len(entry.records)) == (1, 1, len(broker.batch(b"new")))
    reply = broker.fetch([("t", 1, 1)], version=version, session_id=session, session_epoch=3)
    assert reply.responses == []


@pytest.mark.parametrize("version", [4, 6])
def test_old_versions_have_no_sessions(broker: Any, version: int) -> None:
    broker.topic("t")
    broker.fetch([("t", 0, 0)], version=version)
    assert len(broker.sessions) == 0


def test_epoch_minus_1_asks_for_no_session(broker: Any) -> None:
    broker.topic("t")
    assert broker.fetch([("t", 0, 0)], session_epoch=-1).session_id == 0
    assert len(broker.sessions) == 0


def test_partitions_are_added_updated_and_forgotten(broker: Any) -> None:
    logs = broker.topic("t", 4)
    for log in logs:
        log.append_as_leader(broker.batch())
    session = open_session(broker, [("t", 0, 0), ("t", 1, 0)])
    reply = broker.fetch(
        [("t", 2, 0), ("t", 0, 1)], session_id=session, session_epoch=1, forgotten=[("t", 1), ("t", 9)]
    )
    assert names(reply) == [("t", 2)]
    assert broker.sessions.counters()["partitions"] == 2
    for log in logs:
        log.append_as_leader(broker.batch())
    reply = broker.fetch([], session_id=session, session_epoch=2)
    assert names(reply) == [("t", 0), ("t", 2)]


def test_forgetting_all_partitions_closes_the_session(broker: Any) -> None:
    broker.topic("t")
    session = open_session(broker, [("t", 0, 0)])
    reply = broker.fetch([], session_id=session, session_epoch=1, forgotten=[("t", 0)])
    assert (reply.error_code, reply.session_id) == (0, 0)
    assert len(broker.sessions) == 0
    assert broker.fetch([], session_id=session, session_epoch=1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [2, 5, 0x7FFFFFFF, -7])
def test_a_wrong_epoch_is_refused_and_the_session_lives(broker: Any, epoch: int) -> None:
    broker.topic("t")
    session = open_session(broker, [("t", 0, 0)])
    reply = broker.fetch([], session_id=session, session_epoch=epoch)
    assert (reply.error_code, reply.session_id, reply.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0, [])
    assert broker.fetch([], session_id=session, session_epoch=1).error_code == 0


def test_an_unknown_session_is_refused(broker: Any) -> None:
    reply = broker.fetch([], session_id=4711, session_epoch=1)
    assert (reply.error_code, reply.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)


@pytest.mark.parametrize(("first", "then"), [(BY_NAME, BY_ID), (BY_ID, BY_NAME)])
def test_a_session_by_name_is_not_one_by_id(broker: Any, first: int, then: int) -> None:
    broker.topic("t")
    session = open_session(broker, [("t", 0, 0)], first)
    reply = broker.fetch([], version=then, session_id=session, session_epoch=1)
    assert reply.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert broker.fetch([], version=first, session_id=session, session_epoch=1).error_code == 0


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_fetch_closes_the_session_it_names(broker: Any, epoch: int) -> None:
    broker.topic("t")
    session = open_session(broker, [("t", 0, 0)])
    reply = broker.fetch([("t", 0, 0)], session_id=session, session_epoch=epoch)
    assert reply.session_id != session
    assert len(broker.sessions) == (1 if epoch == 0 else 0)
    assert broker.fetch([], session_id=session, session_epoch=1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_partition_with_an_error_is_named_each_time_and_once_more_when_it_is_gone(broker: Any) -> None:
    (log,) = broker.topic("t")
    session = open_session(broker, [("t", 0, 0)])
    broker.table.remove_log("t", 0)
    for epoch in (1, 2):
        entry = broker.only(broker.fetch([], session_id=session, session_epoch=epoch))
        assert entry.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.table.set_log("t", 0, log)
    assert broker.only(broker.fetch([], session_id=session, session_epoch=3)).error_code == 0
    assert broker.fetch([], session_id=session, session_epoch=4).responses == []


def test_partitions_take_turns_when_a_reply_cannot_hold_all(broker: Any) -> None:
    logs = broker.topic("t", 3)
    for log in logs:
        for _ in range(5):
            log.append_as_leader(broker.batch(b"x" * 500))
    size = len(broker.batch(b"x" * 500))
    offsets = [0, 0, 0]
    session, epoch, served = 0, 0, []
    for _ in range(6):
        reply = broker.fetch(
            [("t", i, offset) for i, offset in enumerate(offsets)],
            session_id=session,
            session_epoch=epoch,
            max_bytes=size + 10,
        )
        session, epoch = reply.session_id, epoch + 1
        (taken,) = [e.partition_index for (_, _), e in broker.by_partition(reply).items() if len(e.records)]
        offsets[taken] += 1
        served.append(taken)
    # The reply that makes the session does not move its partition to the end, as in Kafka.
    assert served == [0, 0, 1, 2, 0, 1]


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
def test_an_unknown_topic_gets_into_no_session_and_is_served_once_it_is_there(broker: Any, version: int) -> None:
    broker.topic("t")
    reply = broker.fetch([("t", 0, 0), ("late", 0, 0), ("t", 7, 0)], version=version, session_epoch=0)
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version == BY_ID else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [e.error_code for e in broker.by_partition(reply).values()][:2] == [0, unknown]
    assert (reply.session_id, len(broker.sessions)) == (0, 0)
    broker.topic("late")[0].append_as_leader(broker.batch())
    reply = broker.fetch([("t", 0, 0), ("late", 0, 0)], version=version, session_epoch=0)
    assert reply.session_id > 0
    assert [e.high_watermark for e in broker.by_partition(reply).values()] == [0, 1]


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
def test_a_session_that_an_unknown_topic_is_added_to_is_closed_by_the_reply(broker: Any, version: int) -> None:
    broker.topic("t")[0].append_as_leader(broker.batch())
    session = open_session(broker, [("t", 0, 1)], version)
    reply = broker.fetch([("late", 0, 0), ("t", 0, 0)], version=version, session_id=session, session_epoch=1)
    assert (reply.error_code, reply.session_id) == (0, 0)
    assert sorted(e.error_code for e in broker.by_partition(reply).values())[0] == 0
    assert broker.sessions.counters()["partitions"] == 0
    reply = broker.fetch([], version=version, session_id=session, session_epoch=2)
    assert reply.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_topics_that_may_not_be_read_get_into_no_session(broker: Any) -> None:
    broker.topic("secret")
    broker.plane.authorizer_epoch = 1
    for name in ("secret", "nowhere"):
        exchange = broker.fetch_exchange([(name, 0, 0)], session_epoch=0)
        broker.driver.decide({b"\x03" + name.encode(): False})
        assert broker.fetch_reply(exchange.resume(), BY_NAME).session_id == 0
    assert len(broker.sessions) == 0


def test_a_request_that_is_given_up_takes_its_session_along(broker: Any) -> None:
    """Its client lost the connection, and goes on with a full fetch; what the request added must not stay."""
    broker.topic("t")
    session = open_session(broker, [("t", 0, 0)])
    exchange = broker.fetch_exchange(
        [(f"no-{i}", 0, 0) for i in range(100)], session_id=session, session_epoch=1, max_wait_ms=10_000, min_bytes=9
    )
    assert exchange.kind == "parked"
    exchange.cancel()
    assert broker.sessions.counters()["partitions"] == 0
    session = open_session(broker, [("t", 0, 0)])
    overtaken = broker.fetch_exchange([], session_id=session, session_epoch=1, max_wait_ms=10_000)
    assert broker.fetch([], session_id=session, session_epoch=2).error_code == 0
    overtaken.cancel()
    assert broker.fetch([], session_id=session, session_epoch=3).error_code == 0


def test_a_topic_made_anew_is_not_the_one_of_the_session(broker: Any) -> None:
    broker.topic("t")
    session = open_session(broker, [("t", 0, 0)], BY_ID)
    broker.topic("t", topic_id=bytes(range(16)))
    entry = broker.only(broker.fetch([], version=BY_ID, session_id=session, session_epoch=1))
    assert entry.error_code == ErrorCode.INCONSISTENT_TOPIC_ID
    broker.table.remove_topic("t")
    entry = broker.only(broker.fetch([], version=BY_ID, session_id=session, session_epoch=2))
    assert entry.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
def test_later_requests_leave_the_topics_of_a_session_alone(broker: Any, version: int) -> None:
    """A request is handled in the memory of the one before, but for what a session still has of it."""
    logs = {name: broker.topic(name)[0] for name in ("first", "second", "a-third-with-a-longer-name")}
    session = open_session(broker, [("first", 0, 0)], version)
    for name in logs:
        broker.only(broker.fetch([(name, 0, 0)], version=version, session_epoch=-1))
    for log in logs.values():
        log.append_as_leader(broker.batch(b"new"))
    reply = broker.fetch([], version=version, session_id=session, session_epoch=1)
    (topic,) = reply.responses
    assert topic.topic == "first" if version == BY_NAME else topic.topic_id.bytes == logs["first"].topic_id
    assert broker.only(reply).high_watermark == 1


def test_a_request_that_overtakes_a_parked_one_takes_the_session(broker: Any) -> None:
    (log,) = broker.topic("t")
    session = open_session(broker, [("t", 0, 0)])
    parked = broker.fetch_exchange([], session_id=session, session_epoch=1, max_wait_ms=10_000)
    assert parked.kind == "parked"
    assert broker.fetch([], session_id=session, session_epoch=2).error_code == 0
    log.append_as_leader(broker.batch())
    broker.correlation_id -= 1
    reply = broker.fetch_reply(parked.resume(), BY_NAME)
    assert (reply.error_code, reply.session_id, reply.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, session, [])


def test_a_session_that_is_closed_under_a_parked_request(broker: Any) -> None:
    (log,) = broker.topic("t")
    session = open_session(broker, [("t", 0, 0)])
    parked = broker.fetch_exchange([], session_id=session, session_epoch=1, max_wait_ms=10_000)
    assert broker.fetch([], session_id=session, session_epoch=2, forgotten=[("t", 0)]).session_id == 0
    log.append_as_leader(broker.batch())
    broker.correlation_id -= 1
    assert broker.fetch_reply(parked.resume(), BY_NAME).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    parked = broker.fetch_exchange([("t", 0, 1)], session_epoch=0, max_wait_ms=10_000)
    broker.sessions.clear()
    log.append_as_leader(broker.batch())
    assert broker.fetch_reply(parked.resume(), BY_NAME).session_id > 0


# ---- the cache ----


def test_a_full_cache_keeps_its_sessions(make_broker: Any) -> None:
    broker = make_broker(slots=2)
    broker.topic("t", 5)
    kept = [open_session(broker, [("t", 0, 0)]) for _ in range(2)]
    assert 0 not in kept
    assert open_session(broker, [("t", i, 0) for i in range(5)]) == 0
    assert broker.sessions.counters() == {"sessions": 2, "partitions": 2, "evictions": 0}


def test_a_cache_without_slots_gives_no_session(make_broker: Any) -> None:
    broker = make_broker(slots=0)
    broker.topic("t")
    assert open_session(broker, [("t", 0, 0)]) == 0


def test_a_stale_session_makes_room(make_broker: Any) -> None:
    broker = make_broker(slots=1, eviction_ms=1)
    broker.topic("t")
    old = open_session(broker, [("t", 0, 0)])
    time.sleep(0.02)
    assert open_session(broker, [("t", 0, 0)]) > 0
    assert broker.sessions.counters()["evictions"] == 1
    assert broker.fetch([], session_id=old, session_epoch=1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_follower_takes_the_place_of_a_consumer_but_not_of_a_follower(make_broker: Any) -> None:
    broker = make_broker(slots=2)
    broker.topic("t", 3, isr=(1, 2))
    small = open_session(broker, [("t", 0, 0)])
    large = open_session(broker, [("t", 0, 0), ("t", 1, 0)])
    first = open_session(broker, [("t", 0, 0)], replica_id=2)
    assert first > 0
    assert broker.fetch([], session_id=small, session_epoch=1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert broker.fetch([], session_id=large, session_epoch=1).error_code == 0
    assert open_session(broker, [("t", 0, 0)], replica_id=2) > 0
    assert open_session(broker, [("t", i, 0) for i in range(3)], replica_id=2) == 0
    assert broker.sessions.counters()["evictions"] == 2


def test_used_sessions_older_than_the_eviction_time_go_by_size(make_broker: Any) -> None:
    broker = make_broker(slots=2, eviction_ms=200)
    broker.topic("t", 5)
    small = open_session(broker, [("t", 0, 0)])
    large = open_session(broker, [("t", i, 0) for i in range(4)])
    time.sleep(0.25)
    for session in (small, large):
        assert broker.fetch([], session_id=session, session_epoch=1).error_code == 0
    assert open_session(broker, [("t", 0, 0), ("t", 1, 0)]) > 0
    assert broker.fetch([], session_id=small, session_epoch=2).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert broker.fetch([], session_id=large, session_epoch=2).error_code == 0


def test_sessions_come_and_go_without_a_trace(make_broker: Any) -> None:
    broker = make_broker(slots=1000)
    broker.topic("t", 4)
    sessions = [
        open_session(broker, [("t", i, 0) for i in range(4)], version)
        for version in (BY_NAME, BY_ID)
        for _ in range(200)
    ]
    assert len(set(sessions)) == 400
    assert broker.sessions.counters() == {"sessions": 400, "partitions": 1600, "evictions": 0}
    for session in sessions:
        broker.fetch([], session_id=session, session_epoch=-1)
    assert broker.sessions.counters() == {"sessions": 0, "partitions": 0, "evictions": 0}


def test_partitions_over_all_sessions_are_bounded_and_clients_go_on_without(make_broker: Any) -> None:
    broker = make_broker(max_partitions=10)
    logs = broker.topic("t", 11)
    kept = [open_session(broker, [("t", i, 0) for i in range(4)]) for _ in range(2)]
    for wanted in (3, 4, 10, 11):
        for _ in range(2):
            reply = broker.fetch([("t", i, 0) for i in range(wanted)], session_epoch=0)
            assert (reply.error_code, reply.session_id, len(broker.by_partition(reply))) == (0, 0, wanted)
    assert open_session(broker, [("t", 0, 0), ("t", 1, 0)]) > 0
    assert broker.sessions.counters() == {"sessions": 3, "partitions": 10, "evictions": 0}
    logs[0].append_as_leader(broker.batch())
    assert names(broker.fetch([], session_id=kept[0], session_epoch=1)) == [("t", 0)]


def test_a_session_that_grows_beyond_the_bound_is_closed(make_broker: Any) -> None:
    broker = make_broker(max_partitions=10)
    broker.topic("t", 11)
    first, second = (open_session(broker, [("t", i, 0) for i in range(4)]) for _ in range(2))
    assert broker.fetch([("t", 4, 0), ("t", 5, 0)], session_id=first, session_epoch=1).session_id == first
    reply = broker.fetch([("t", 4, 0)], session_id=second, session_epoch=1)
    assert (reply.error_code, reply.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert broker.sessions.counters() == {"sessions": 1, "partitions": 6, "evictions": 0}
    assert open_session(broker, [("t", i, 0) for i in range(5)]) == 0
    assert open_session(broker, [("t", i, 0) for i in range(4)]) > 0


def test_only_unused_sessions_make_room_for_partitions(make_broker: Any) -> None:
    """By Kafka's rules a larger session takes the slot of a smaller one in use: one client could push out all."""
    broker = make_broker(max_partitions=10, eviction_ms=200)
    broker.topic("t", 11)
    unused = [open_session(broker, [("t", i, 0) for i in range(2)]) for _ in range(2)]
    used = open_session(broker, [("t", 0, 0), ("t", 1, 0)])
    time.sleep(0.25)
    assert broker.fetch([], session_id=used, session_epoch=1).error_code == 0
    assert open_session(broker, [("t", i, 0) for i in range(9)]) == 0
    assert open_session(broker, [("t", i, 0) for i in range(8)]) > 0
    assert broker.fetch([], session_id=used, session_epoch=2).error_code == 0
    for session in unused:
        reply = broker.fetch([], session_id=session, session_epoch=1)
        assert reply.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_sessions_that_nobody_uses_expire(broker: Any) -> None:
    broker.topic("t", 3)
    unused = open_session(broker, [("t", i, 0) for i in range(3)])
    time.sleep(0.1)
    used = open_session(broker, [("t", 0, 0)])
    broker.sessions.expire(3_600_000)
    assert len(broker.sessions) == 2
    broker.sessions.expire(50)
    assert broker.fetch([], session_id=unused, session_epoch=1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert broker.fetch([], session_id=used, session_epoch=1).error_code == 0
    time.sleep(0.01)
    broker.sessions.expire(0)
    assert broker.sessions.counters()["partitions"] == 0


def test_a_stranger_that_says_it_is_a_follower_gets_no_session(make_broker: Any) -> None:
    """A follower's session would take the place of a consumer's."""
    broker = make_broker(slots=1)
    broker.topic("t", isr=(1, 2))
    consumer = open_session(broker, [("t", 0, 0)])
    reply = broker.fetch([("t", 0, 0)], session_epoch=0, replica_id=77)
    assert reply.session_id == 0
    reply = broker.fetch([], session_id=consumer, session_epoch=1, replica_id=77)
    assert (broker.only(reply).error_code, reply.session_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)


def test_sessions_in_use_do_not_push_each_other_out(make_broker: Any) -> None:
    """Those that are old enough to be pushed out go for larger ones only: else clients of the same kind that are one
    too many would all begin anew at each request."""
    eviction_ms = 100
    while True:
        broker = make_broker(slots=2, eviction_ms=eviction_ms)
        broker.topic("t", 3)
        pair = [("t", 0, 0), ("t", 1, 0)]
        kept = [open_session(broker, pair) for _ in range(2)]
        made = time.monotonic()
        while time.monotonic() - made <= 2 * eviction_ms / 1000:
            pass
        used = time.monotonic()
        for session in kept:
            assert broker.fetch([], session_id=session, session_epoch=1).error_code == 0
        others = [open_session(broker, pair), open_session(broker, [("t", 0, 0)])]
        larger = open_session(broker, [*pair, ("t", 2, 0)])
        if time.monotonic() - used < eviction_ms / 2000:
            break
        eviction_ms *= 2  # the machine was so slow that they count as not used
        assert eviction_ms < 60_000
    assert others == [0, 0]
    assert larger > 0
    assert broker.sessions.counters() == {"sessions": 2, "partitions": 5, "evictions": 1}
    codes = sorted(broker.fetch([], session_id=each, session_epoch=2).error_code for each in kept)
    assert codes == [0, ErrorCode.FETCH_SESSION_ID_NOT_FOUND]


def test_a_session_that_grows_beyond_its_bound_is_closed(broker: Any) -> None:
    broker.topic("t")
    session = open_session(broker, [("t", 0, 0)])
    grown = [("t", index, 0) for index in range(1, MOST_PARTITIONS + 1)]
    reply = broker.fetch(grown, session_id=session, session_epoch=1)
    assert (reply.error_code, reply.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
    assert broker.sessions.counters() == {"sessions": 0, "partitions": 0, "evictions": 0}
