"""The table of share partitions as Python has it: counts, sessions, settings, drops, sweeps, dead letters."""

from __future__ import annotations

import time
from typing import Any

import pytest
from speedups.requests.share.members import SETTINGS, ShareBroker, acknowledged, ranges
from waiting import wait_until

from kafkapy.errors import ErrorCode

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
T, T1, U = ("t", 0), ("t", 1), ("u", 0)


def settings(**changed: Any) -> tuple[int, int, int, bool, bool, bool]:
    names = ("lock_ms", "max_in_flight", "delivery_limit", "dead_letters", "read_committed", "renewals")
    values: Any = tuple((dict(zip(names, SETTINGS, strict=True)) | changed)[name] for name in names)
    return values


def fill(shares: ShareBroker, topic: str = "t", count: int = 1, records: int = 4) -> None:
    for log in shares.topic(topic, count):
        for _ in range(records):
            log.append_as_leader(shares.batch(b"v"))


def test_each_thing_that_happens_is_counted(shares: ShareBroker) -> None:
    fill(shares, "t", 2)
    nothing = dict.fromkeys(
        ("sessions", "session_partitions", "evictions", "share_partitions", "acknowledgements", "acquired", "loads",
         "load_failures", "writes", "write_failures", "leased_writes", "leased_ms", "expired"), 0
    ) | {"acknowledged": [0] * 5}  # fmt: skip
    assert shares.shares.counters() == nothing
    member = shares.member("m")
    member.fetch([T, T1])
    found = shares.shares.counters()
    assert found == nothing | {
        "sessions": 1, "session_partitions": 2, "share_partitions": 2, "acquired": 8, "loads": 2,
    }  # fmt: skip
    shares.serve()
    assert acknowledged(member.acknowledge({T: [(0, 0, [ACCEPT]), (1, 1, [RELEASE]), (2, 3, [REJECT, GAP])]})) == {0: 0}
    assert acknowledged(member.acknowledge({T1: [(0, 3, [ACCEPT])]})) == {1: 0}
    found = shares.shares.counters()
    assert (found["acknowledgements"], found["acknowledged"]) == (2, [1, 2, 1, 1, 0])
    assert (found["writes"], found["write_failures"], found["leased_writes"]) == (2, 0, 0)
    assert len(shares.shares) == 2


def test_sessions_are_counted_with_their_partitions_until_they_end(shares: ShareBroker) -> None:
    fill(shares, "t", 3)
    fill(shares, "u")

    def counts() -> tuple[int, int, int]:
        found = shares.shares.counters()
        return found["sessions"], found["session_partitions"], found["evictions"]

    one, two, other = shares.member("m1"), shares.member("m2"), shares.member("m1", "h")
    one.fetch([T, T1])
    two.fetch([T], max_wait_ms=0)
    other.fetch([U])
    assert counts() == (3, 4, 0)
    one.fetch([("t", 2)], max_wait_ms=0)
    assert counts() == (3, 5, 0)
    one.fetch(forgotten=[T, T1], max_wait_ms=0)
    assert counts() == (3, 3, 0)
    one.fetch([T], epoch=0, max_wait_ms=0)
    assert counts() == (3, 3, 0), "another session in the place of the first"
    # A group is empty when the last of its members is gone.
    one.fetch(epoch=-1)
    shares.serve()
    assert (counts(), shares.emptied) == ((2, 2, 0), [])
    two.fetch(epoch=-1)
    shares.serve()
    assert (counts(), shares.emptied) == ((1, 1, 0), ["g"])
    other.fetch(epoch=-1)
    shares.serve()
    assert counts()[:2] == (0, 0)
    assert shares.emptied == ["g", "h"]


@pytest.mark.parametrize(("most", "fits"), [(2, False), (3, True), (4, True)])
def test_the_partitions_of_all_sessions_are_bounded(most: int, fits: bool) -> None:
    shares = ShareBroker(max_partitions=most)
    fill(shares, "t", 3)
    one, two = shares.member("m1"), shares.member("m2")
    one.fetch([T, T1], max_wait_ms=0)
    reply = two.fetch([("t", 2)], max_wait_ms=0)
    assert (reply.error_code == ErrorCode.NONE) == fits
    assert shares.shares.counters()["session_partitions"] == (3 if fits else 2)
    # What is there already needs no room.
    assert one.fetch([T], max_wait_ms=0).error_code == ErrorCode.NONE


@pytest.mark.parametrize(("most", "members"), [(1, 1), (2, 2), (3, 3)])
def test_the_sessions_are_bounded(most: int, members: int) -> None:
    shares = ShareBroker(max_sessions=most)
    fill(shares)
    kept = [shares.member(f"m{number}") for number in range(4)]
    errors = [each.fetch([T], max_wait_ms=0).error_code for each in kept]
    assert errors == [ErrorCode.NONE] * members + [ErrorCode.SHARE_SESSION_LIMIT_REACHED] * (4 - members)


def test_sessions_that_are_not_used_end_with_a_sweep(shares: ShareBroker) -> None:
    fill(shares)
    member = shares.member("m")
    member.fetch([T])
    for unused_ms in (-1, 3_600_000):
        assert not shares.shares.sweep(unused_ms)
        assert shares.shares.counters()["sessions"] == 1
    assert shares.share("t")["acquired"] == 4
    began = time.monotonic()
    wait_until(lambda: time.monotonic() > began + 0.005, "some milliseconds have passed")
    assert not shares.shares.sweep(0)
    found = shares.shares.counters()
    assert (found["sessions"], found["session_partitions"], found["evictions"]) == (0, 0, 1)
    shares.serve()
    assert (shares.share("t")["acquired"], shares.emptied) == (0, ["g"])


def test_records_below_the_start_of_the_log_are_archived_by_a_sweep(shares: ShareBroker) -> None:
    fill(shares)
    shares.member("m").fetch([T])
    shares.table.log("t", 0).delete_records(2)
    assert shares.share("t")["start_offset"] == 0
    assert not shares.shares.sweep()
    shares.serve()
    assert shares.share("t")["start_offset"] == 2


def test_a_lost_leadership_ends_with_a_sweep(shares: ShareBroker) -> None:
    fill(shares)
    shares.member("m").fetch([T])
    assert len(shares.shares) == 1
    shares.table.log("t", 0).become_follower(2, 5)
    assert not shares.shares.sweep()
    assert len(shares.shares) == 0
    assert shares.shares.describe("g", shares.topic_id("t"), 0) is None


def test_locks_end_when_their_time_is_over(shares: ShareBroker) -> None:
    shares.settings = settings(lock_ms=1)
    fill(shares)
    member = shares.member("m")
    member.fetch([T])

    def released() -> bool:
        shares.shares.expire()
        return bool(shares.share("t")["acquired"] == 0)

    wait_until(released, "the locks end")
    assert shares.shares.counters()["expired"] >= 1
    shares.serve()
    again = ranges(member.fetch())
    assert (again[0][0], again[-1][1], {count for _, _, count in again}) == (0, 3, {2})


def test_locks_within_their_time_are_left(shares: ShareBroker) -> None:
    fill(shares)
    shares.member("m").fetch([T])
    shares.shares.expire()
    assert (shares.share("t")["acquired"], shares.shares.counters()["expired"]) == (4, 0)


def test_changed_settings_are_those_of_the_group(shares: ShareBroker) -> None:
    shares.settings = settings(max_in_flight=2)
    fill(shares)
    one, other = shares.member("m", "g"), shares.member("m", "h")
    one.fetch([T])
    other.fetch([T])
    assert [shares.share("t", group=group)["acquired"] for group in "gh"] == [2, 2]
    shares.shares.configure("g", settings(max_in_flight=3))
    shares.shares.configure("none", settings())
    one.fetch(max_wait_ms=0)
    other.fetch(max_wait_ms=0)
    assert [shares.share("t", group=group)["acquired"] for group in "gh"] == [3, 2]
    reply = one.acknowledge({T: [(0, 0, [RENEW])]}, is_renew_ack=True)
    assert acknowledged(reply) == {0: 0}
    shares.shares.configure("g", settings(renewals=False))
    reply = one.acknowledge({T: [(0, 0, [RENEW])]}, is_renew_ack=True)
    assert acknowledged(reply) != {0: 0}


def test_a_group_is_dropped_unless_somebody_uses_it(shares: ShareBroker) -> None:
    fill(shares, "t", 2)
    one, other = shares.member("m", "g"), shares.member("m", "h")
    one.fetch([T, T1])
    other.fetch([T])
    error = ErrorCode.GROUP_ID_NOT_FOUND
    assert not shares.shares.drop_group("g", error, only_unused=True)
    assert len(shares.shares) == 3
    one.fetch(epoch=-1)
    shares.serve()
    assert shares.shares.drop_group("g", error, only_unused=True)
    assert len(shares.shares) == 1
    assert shares.shares.drop_group("h", error)
    assert shares.shares.drop_group("none", error)
    assert len(shares.shares) == 0


def test_one_share_partition_is_dropped_with_its_error(shares: ShareBroker) -> None:
    fill(shares, "t", 2)
    member = shares.member("m")
    member.fetch([T, T1])
    topic_id = shares.topic_id("t")
    for group, id, partition in (("h", topic_id, 0), ("g", bytes(16), 0), ("g", topic_id, 2)):
        shares.shares.drop_partition(group, id, partition, ErrorCode.UNKNOWN_TOPIC_ID)
    assert len(shares.shares) == 2
    shares.shares.drop_partition("g", topic_id, 1, ErrorCode.UNKNOWN_TOPIC_ID)
    assert [shares.shares.describe("g", topic_id, number) is None for number in (0, 1)] == [False, True]


def test_a_topic_id_has_sixteen_bytes(shares: ShareBroker) -> None:
    table = shares.shares
    for size in (15, 17):
        for call in (
            lambda id: table.describe("g", id, 0),
            lambda id: table.drop_partition("g", id, 0, 1),
            lambda id: table.dead_lettered("g", id, 0, 0, 1),
            lambda id: table.archiving("g", id, 0),
        ):
            with pytest.raises(ValueError, match=f"a topic id has 16 bytes, not {size}"):
                call(bytes(size))


def test_rejected_records_wait_for_their_dead_letters(shares: ShareBroker) -> None:
    shares.settings = settings(dead_letters=True)
    fill(shares)
    member = shares.member("m")
    member.fetch([T])
    topic_id = shares.topic_id("t")
    table = shares.shares
    assert table.archiving("g", topic_id, 0) == []
    assert acknowledged(member.acknowledge({T: [(0, 1, [REJECT]), (2, 3, [ACCEPT])]})) == {0: 0}
    assert table.archiving("g", topic_id, 0) == [(0, 1, 1)]
    assert shares.share("t")["start_offset"] == 0
    table.dead_lettered("g", topic_id, 0, 0, 0)
    assert table.archiving("g", topic_id, 0) == [(1, 1, 1)]
    table.dead_lettered("h", topic_id, 0, 1, 1)
    table.dead_lettered("g", topic_id, 1, 1, 1)
    assert table.archiving("g", topic_id, 0) == [(1, 1, 1)]
    assert table.archiving("h", topic_id, 0) == []
    table.dead_lettered("g", topic_id, 0, 1, 1)
    shares.serve()
    assert table.archiving("g", topic_id, 0) == []
    assert shares.share("t")["start_offset"] == 4


def test_writes_that_are_wanted_or_under_way_are_known(shares: ShareBroker) -> None:
    fill(shares)
    member = shares.member("m")
    member.fetch([T])
    shares.serve()
    table = shares.shares
    assert (table.has_writes("g"), table.has_writes("none")) == (False, False)
    shares.held = True
    exchange = member.acknowledge_exchange({T: [(0, 0, [ACCEPT])]})
    assert table.has_writes("g")
    shares.serve()
    assert table.has_writes("g")
    shares.held = False
    shares.serve()
    exchange.resume()
    assert acknowledged(member.acknowledge_reply(exchange)) == {0: 0}
    assert not table.has_writes("g")


def test_a_share_partition_is_described(shares: ShareBroker) -> None:
    fill(shares)
    topic_id = shares.topic_id("t")
    assert shares.shares.describe("g", topic_id, 0) is None
    one, two = shares.member("m1"), shares.member("m2")
    exchange = one.fetch_exchange([T], max_records=2)
    assert shares.shares.describe("g", topic_id, 0) == {"loading": True}
    one.answer(exchange)
    two.fetch([T], max_records=1)
    found = shares.share("t")
    memory = found.pop("memory")
    assert memory > 0
    assert (found["start_offset"], found["next_offset"], found["delivery_complete"]) == (0, 3, 0)
    assert (found["acquired"], found["members"]) == (3, 2)
    assert one.acknowledge({T: [(1, 1, [ACCEPT])]}).error_code == 0
    found = shares.share("t")
    assert (found["start_offset"], found["acquired"], found["delivery_complete"]) == (0, 2, 1)
