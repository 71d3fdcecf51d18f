"""Committed offsets: commit, fetch, delete, transactions, expiry, and what a restart keeps."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy import errors
from kafkapy.coordinator.group.classic.group import ClassicGroupState
from kafkapy.coordinator.group.offset_requests import NO_OFFSET, FetchedOffset, NewOffset
from kafkapy.coordinator.result import ProducerStamp
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.group_metadata_records import OffsetCommitKey, OffsetCommitValue
from kafkapy.records.batches import iter_records
from kafkapy.types import TopicPartition

Bench = Any
DAY_MS = 24 * 60 * 60 * 1000
HOUR_MS = DAY_MS // 24
"""A retention after which not a thousand checks have looked at thousands of offsets."""
TOPIC = ("topic", 0)


def offset(value: int) -> FetchedOffset:
    return FetchedOffset(value)


def test_what_is_committed_is_fetched_also_after_a_restart(bench: Bench) -> None:
    committed = bench.commit({TOPIC: NewOffset(42, 7, "note"), ("topic", 1): 5, ("other", 0): 0})
    assert set(committed.values()) == {ErrorCode.NONE}
    for _ in range(2):
        assert bench.fetch() == {
            TOPIC: FetchedOffset(42, 7, "note"),
            ("topic", 1): offset(5),
            ("other", 0): offset(0),
        }
        assert bench.fetch(TOPIC, ("none", 3)) == {TOPIC: FetchedOffset(42, 7, "note"), ("none", 3): NO_OFFSET}
        bench.restart()


def test_an_unknown_group_has_no_offsets(bench: Bench) -> None:
    assert bench.fetch() == {}
    assert bench.fetch(TOPIC) == {TOPIC: NO_OFFSET}


def test_records_are_written_in_kafkas_versions(bench: Bench) -> None:
    bench.commit({TOPIC: NewOffset(42, 7, "note")})
    bench.commit({TOPIC: 43}, retention_ms=1000)
    batches = b"".join(bench.writer.batches[TopicPartition("__consumer_offsets", 0)])
    first, second = list(iter_records(batches))
    now = bench.clock.time_ms()
    assert OffsetCommitKey.decode_versioned(first.key) == (
        1,
        OffsetCommitKey(group="group", topic="topic", partition=0),
    )
    # version 3, offset, leader epoch, metadata, commit time
    expected = b"\0\3" + (42).to_bytes(8, "big") + (7).to_bytes(4, "big") + b"\0\4note" + now.to_bytes(8, "big")
    assert first.value == expected
    version, value = OffsetCommitValue.decode_versioned(second.value)
    assert (version, value.offset, value.expire_timestamp) == (1, 43, now + 1000)


@pytest.mark.parametrize(("metadata", "fits"), [("x" * 4096, True), ("x" * 4097, False), ("\u20ac" * 2000, False)])
def test_metadata_has_a_limit_in_bytes(bench: Bench, metadata: str, fits: bool) -> None:
    answer = bench.commit({TOPIC: NewOffset(1, metadata=metadata), ("topic", 1): 2})
    assert answer[TopicPartition("topic", 1)] is ErrorCode.NONE
    expected = ErrorCode.NONE if fits else ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert answer[TopicPartition(*TOPIC)] is expected
    assert (bench.fetch(TOPIC)[TOPIC] != NO_OFFSET) is fits


def test_a_commit_larger_than_a_batch_is_refused_and_changes_nothing(bench: Bench) -> None:
    bench.commit({TOPIC: 1})
    bench.writer.max_bytes = 5000
    many = {("topic", number): NewOffset(2, metadata="x" * 100) for number in range(100)}
    assert bench.commit(many) is ErrorCode.MESSAGE_TOO_LARGE
    assert bench.fetch() == {TOPIC: offset(1)}


# --- who may commit -------------------------------------------------------------------------------------------------


def test_members_commit_with_their_generation(bench: Bench) -> None:
    members, generation = bench.stable_group(2)
    ok = bench.commit({TOPIC: 1}, member_id=members[0], generation_id=generation)
    assert ok == {TopicPartition(*TOPIC): ErrorCode.NONE}
    stale = bench.commit({TOPIC: 2}, member_id=members[0], generation_id=generation - 1)
    assert stale is ErrorCode.ILLEGAL_GENERATION
    assert bench.commit({TOPIC: 2}, member_id="x", generation_id=generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.commit({TOPIC: 2}) is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.fetch(TOPIC)[TOPIC] == offset(1)


def test_commits_are_refused_between_join_and_assignment_and_taken_before(bench: Bench) -> None:
    members, generation = bench.stable_group(1)
    bench.join_new()
    assert bench.classic().state is ClassicGroupState.PREPARING_REBALANCE
    last = bench.commit({TOPIC: 1}, member_id=members[0], generation_id=generation)
    assert last == {TopicPartition(*TOPIC): ErrorCode.NONE}
    bench.join(members[0])
    assert bench.classic().state is ClassicGroupState.COMPLETING_REBALANCE
    early = bench.commit({TOPIC: 2}, member_id=members[0], generation_id=generation + 1)
    assert early is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_members_of_unknown_groups_cannot_commit(bench: Bench, version: int, error: ErrorCode) -> None:
    assert bench.commit({TOPIC: 1}, member_id="m", generation_id=1, version=version) is error


def test_anybody_commits_to_an_empty_group(bench: Bench) -> None:
    members, _ = bench.stable_group(1)
    bench.leave(*members)
    assert bench.commit({TOPIC: 9}) == {TopicPartition(*TOPIC): ErrorCode.NONE}


# --- transactions ---------------------------------------------------------------------------------------------------


def complete(bench: Bench, producer_id: int, committed: bool) -> None:
    bench.coordinator.runtime.complete_transaction(0, producer_id, 0, 0, committed).result()


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("committed", [True, False])
def test_offsets_of_a_transaction_count_when_it_has_committed(bench: Bench, committed: bool, restart: bool) -> None:
    bench.commit({TOPIC: 1})
    bench.commit({TOPIC: 5, ("topic", 1): 6}, producer=ProducerStamp(7, 0))
    if restart:
        bench.restart()
    assert bench.fetch() == {TOPIC: offset(1)}
    unstable = bench.fetch(TOPIC, ("topic", 1), ("topic", 2), stable=True)
    assert [each.error for each in unstable.values()] == [
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.NONE,
    ]
    complete(bench, 7, committed)
    if restart:
        bench.restart()
    expected = {TOPIC: offset(5), ("topic", 1): offset(6)} if committed else {TOPIC: offset(1)}
    assert bench.fetch(stable=True) == expected


def test_a_commit_that_came_later_is_not_replaced_by_a_transaction(bench: Bench) -> None:
    bench.commit({TOPIC: 5}, producer=ProducerStamp(7, 0))
    bench.commit({TOPIC: 9})
    complete(bench, 7, True)
    assert bench.fetch() == {TOPIC: offset(9)}
    bench.restart()
    assert bench.fetch() == {TOPIC: offset(9)}


def test_transactional_commits_of_a_group_under_way_are_taken(bench: Bench) -> None:
    bench.stable_group(1)
    taken = bench.commit({TOPIC: 5}, producer=ProducerStamp(7, 0))
    assert taken == {TopicPartition(*TOPIC): ErrorCode.NONE}
    wrong = bench.commit({TOPIC: 5}, producer=ProducerStamp(7, 0), member_id="x", generation_id=1)
    assert wrong is ErrorCode.UNKNOWN_MEMBER_ID
    none = bench.commit({TOPIC: 5}, producer=ProducerStamp(7, 0), group="none", generation_id=1, version=9)
    assert none is ErrorCode.ILLEGAL_GENERATION


# --- delete ---------------------------------------------------------------------------------------------------------


def delete_offsets(bench: Bench, *partitions: tuple[str, int], group: str = "group") -> Any:
    asked = [TopicPartition(*each) for each in partitions]
    later = bench.coordinator.write(group, lambda shard, _: shard.offsets.delete(group, asked))
    bench.clock.run()
    return later.result() if later.error is None else later.error.code


def delete_groups(bench: Bench, *groups: str) -> dict[str, ErrorCode]:
    later = bench.coordinator.runtime.write(0, lambda shard, _: shard.delete_groups(groups))
    bench.clock.run()
    answer: dict[str, ErrorCode] = later.result()
    return answer


def test_offsets_of_topics_that_nobody_reads_are_deleted(bench: Bench) -> None:
    members, generation = bench.stable_group(1)
    bench.commit({TOPIC: 1, ("old", 0): 2}, member_id=members[0], generation_id=generation)
    answer = delete_offsets(bench, TOPIC, ("old", 0), ("never", 0))
    assert list(answer.values()) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE, ErrorCode.NONE]
    assert bench.fetch() == {TOPIC: offset(1)}
    bench.restart()
    assert bench.fetch() == {TOPIC: offset(1)}


def test_offsets_of_other_kinds_of_groups_are_deleted_only_when_they_are_empty(bench: Bench) -> None:
    assert delete_offsets(bench, TOPIC) is ErrorCode.GROUP_ID_NOT_FOUND
    bench.stable_group(1, protocol_type="connect", protocols={"x": b""})
    assert delete_offsets(bench, TOPIC) is ErrorCode.NON_EMPTY_GROUP


def test_groups_are_deleted_with_their_offsets(bench: Bench) -> None:
    members, _ = bench.stable_group(1)
    bench.commit({TOPIC: 1}, group="simple")
    bench.commit({TOPIC: 1}, group="simple", producer=ProducerStamp(7, 0))
    assert delete_groups(bench, "group", "simple", "none") == {
        "group": ErrorCode.NON_EMPTY_GROUP,
        "simple": ErrorCode.NONE,
        "none": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    bench.leave(*members)
    assert delete_groups(bench, "group") == {"group": ErrorCode.NONE}
    for _ in range(2):
        assert bench.shard.groups == {}
        assert bench.fetch(group="simple") == {}
        complete(bench, 7, True)
        bench.restart()


@pytest.mark.parametrize("how", ["pending", "aborted", "deleted"])
def test_a_group_that_was_deleted_after_its_offsets_had_gone_is_not_loaded_again(bench: Bench, how: str) -> None:
    producer = None if how == "deleted" else ProducerStamp(7, 0)
    bench.commit({TOPIC: 1}, producer=producer)
    if how == "aborted":
        complete(bench, 7, False)
    elif how == "deleted":
        assert delete_offsets(bench, TOPIC) == {TopicPartition(*TOPIC): ErrorCode.NONE}
    assert bench.fetch() == {}
    assert delete_groups(bench, "group") == {"group": ErrorCode.NONE}
    for _ in range(2):
        assert bench.shard.groups == {}
        bench.restart()


@pytest.mark.parametrize("restart", [False, True])
def test_a_group_whose_transaction_was_aborted_goes_with_the_next_check(bench: Bench, restart: bool) -> None:
    bench.commit({TOPIC: 1}, producer=ProducerStamp(7, 0))
    if restart:
        bench.restart()
    bench.clock.advance(600_001)
    assert list(bench.shard.groups) == ["group"], "its transaction is open"
    complete(bench, 7, False)
    bench.clock.advance(600_001)
    for _ in range(2):
        assert bench.shard.groups == {}
        bench.restart()


def test_a_group_that_was_never_written_is_deleted_without_a_record(bench: Bench) -> None:
    bench.join()
    appends = bench.writer.appends
    assert delete_groups(bench, "group") == {"group": ErrorCode.NONE}
    assert bench.shard.groups == {}
    assert bench.writer.appends == appends


def test_offsets_of_deleted_topics_are_forgotten(bench: Bench) -> None:
    bench.commit({TOPIC: 1, ("gone", 0): 2})
    bench.commit({("gone", 1): 2}, group="second", producer=ProducerStamp(7, 0))
    bench.coordinator.topics_deleted(["gone"])
    bench.clock.run()
    complete(bench, 7, True)
    assert bench.fetch() == {TOPIC: offset(1)}
    assert bench.fetch(group="second") == {}


def test_more_offsets_of_a_deleted_topic_than_fit_into_a_batch_are_forgotten(bench: Bench) -> None:
    for start in range(0, 5000, 1000):
        bench.commit({("gone", number): 1 for number in range(start, start + 1000)})
    bench.writer.max_bytes = 300_000
    bench.coordinator.topics_deleted(["gone"])
    bench.clock.advance(0)
    assert bench.fetch() == {}


# --- expiry ---------------------------------------------------------------------------------------------------------


def test_offsets_of_an_empty_group_expire_from_when_it_became_empty(bench: Bench) -> None:
    members, generation = bench.stable_group(1, session_ms=1_800_000)
    bench.commit({TOPIC: 1}, member_id=members[0], generation_id=generation)
    for _ in range(8 * 96):
        bench.clock.advance(DAY_MS // 96)
        assert bench.heartbeat(members[0], generation) is ErrorCode.NONE
    bench.leave(*members)
    bench.clock.advance(7 * DAY_MS - 1000)
    assert bench.fetch() == {TOPIC: offset(1)}
    bench.clock.advance(601_000)
    assert bench.fetch() == {}
    assert bench.shard.groups == {}
    bench.restart()
    assert bench.shard.groups == {}


def test_a_topic_that_a_stable_group_reads_no_more_expires_alone(bench: Bench) -> None:
    members, generation = bench.stable_group(1, session_ms=1_800_000)
    bench.commit({TOPIC: 1, ("old", 0): 2}, member_id=members[0], generation_id=generation)
    for _ in range(8 * 96):
        bench.clock.advance(DAY_MS // 96)
        bench.heartbeat(members[0], generation)
    assert bench.fetch() == {TOPIC: offset(1)}


def test_offsets_without_a_group_expire_from_their_commit(bench: Bench) -> None:
    bench.commit({TOPIC: 1})
    bench.clock.advance(6 * DAY_MS)
    bench.commit({("topic", 1): 1})
    bench.clock.advance(2 * DAY_MS)
    assert bench.fetch() == {("topic", 1): offset(1)}
    bench.clock.advance(6 * DAY_MS)
    assert bench.shard.groups == {}


def test_a_retention_that_the_client_chose_counts(bench: Bench) -> None:
    bench.commit({TOPIC: 1}, retention_ms=1_000_000)
    bench.clock.advance(600_001)
    assert bench.fetch() == {TOPIC: offset(1)}
    bench.clock.advance(600_001)
    assert bench.fetch() == {}


def test_more_offsets_than_fit_into_a_batch_expire(bench: Bench) -> None:
    bench.restart(offsets_retention_ms=HOUR_MS)
    for start in range(0, 5000, 1000):
        bench.commit({("topic", number): 1 for number in range(start, start + 1000)})
    bench.writer.max_bytes = 300_000
    bench.clock.advance(HOUR_MS + 600_001)
    assert bench.fetch() == {}
    assert bench.shard.groups == {}
    assert bench.coordinator.counters.offset_expirations == 5000


def test_every_group_is_looked_at_once_in_an_expiry(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """But those in which a batch ended."""
    bench.restart(offsets_retention_ms=HOUR_MS)
    for number in range(50):
        bench.commit({("topic", n): 1 for n in range(100)}, group=f"g{number}")
    looked: list[str] = []
    expired = bench.shard.offsets.expired

    def look(group: Any, now_ms: int, most: int) -> Any:
        looked.append(group.group_id)
        return expired(group, now_ms, most)

    bench.clock.advance(HOUR_MS - 1000)
    monkeypatch.setattr(bench.shard.offsets, "expired", look)
    bench.clock.advance(601_000)
    assert bench.shard.groups == {}
    assert set(looked) == {f"g{number}" for number in range(50)}
    assert len(looked) <= 50 + 3


def test_one_groups_trouble_does_not_keep_the_others_offsets(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "bad", "z"):
        bench.commit({TOPIC: 1}, group=name)
    expired = bench.shard.offsets.expired

    def fail(group: Any, now_ms: int, most: int) -> Any:
        if group.group_id == "bad":
            raise RuntimeError("a bug")
        return expired(group, now_ms, most)

    monkeypatch.setattr(bench.shard.offsets, "expired", fail)
    bench.clock.advance(7 * DAY_MS + 600_001)
    assert list(bench.shard.groups) == ["bad"]
    monkeypatch.undo()
    bench.clock.advance(600_001)
    assert bench.shard.groups == {}


def test_an_expiry_that_cannot_be_written_is_tried_again_at_the_next_check(bench: Bench) -> None:
    bench.restart(offsets_retention_ms=HOUR_MS)
    for start in range(0, 3000, 1000):
        bench.commit({("topic", number): 1 for number in range(start, start + 1000)})
    bench.writer.max_bytes = 1000
    bench.clock.advance(HOUR_MS + 600_001)
    assert len(bench.fetch()) == 3000
    bench.writer.max_bytes = 1_048_588
    bench.clock.advance(600_001)
    assert bench.fetch() == {}


def test_offsets_under_a_transaction_do_not_expire(bench: Bench) -> None:
    bench.commit({TOPIC: 1})
    bench.commit({TOPIC: 2}, producer=ProducerStamp(7, 0))
    bench.clock.advance(8 * DAY_MS)
    assert bench.fetch() == {TOPIC: offset(1)}


def test_an_id_that_was_given_out_keeps_its_group(bench: Bench) -> None:
    bench.clock.advance(599_999)
    member = bench.join().result().member_id
    bench.clock.advance(10)
    assert not bench.join(member).done
    bench.leave(member)
    bench.clock.advance(bench.delay_ms + 600_001)
    assert bench.shard.groups == {}


def test_a_failed_commit_is_never_seen(bench: Bench) -> None:
    bench.commit({TOPIC: 1})
    bench.writer.failure = errors.KafkaStorageError()
    assert bench.commit({TOPIC: 2}) is ErrorCode.NOT_COORDINATOR
    bench.writer.failure = None
    assert bench.fetch() == {TOPIC: offset(1)}


# --- listing --------------------------------------------------------------------------------------------------------


def test_groups_are_listed_by_state_and_type(bench: Bench) -> None:
    bench.stable_group(1)
    bench.commit({TOPIC: 1}, group="simple")

    def names(states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[str]:
        return sorted(each.group_id for each in bench.shard.list_groups(set(states), set(types)))

    assert names() == ["group", "simple"]
    assert names(("stable",)) == ["group"]
    assert names(("empty", "dead")) == ["simple"]
    assert names((), ("classic",)) == ["group", "simple"]
    assert names((), ("consumer",)) == []
    listed = {each.group_id: each for each in bench.shard.list_groups(set(), set())}
    assert (listed["group"].protocol_type, listed["group"].group_state) == ("consumer", "Stable")
    assert (listed["simple"].protocol_type, listed["simple"].group_type) == ("", "classic")


def test_a_group_is_described_with_its_members_when_it_is_stable(bench: Bench, subscription: Any) -> None:
    members, _ = bench.stable_group(2)
    described = bench.shard.describe_classic("group")
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert [each.member_id for each in described.members] == members
    assert described.members[0].client_host == "/127.0.0.1"
    assert described.members[0].member_metadata == subscription("topic")
    assert described.members[0].member_assignment == members[0].encode()
    bench.join_new()
    described = bench.shard.describe_classic("group")
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert described.members[0].member_metadata == b""
    assert bench.shard.describe_classic("none") is None
