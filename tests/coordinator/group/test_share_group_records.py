"""Share groups in __consumer_offsets: what is written, and what comes of it when it is read again."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from coordinator.group.share_client import GROUP, Member, beat, group_of, settle, topic_id
from coordinator.group.test_consumer_group_records import load, written

from kafkapy.coordinator.group.classic.group import ClassicGroup
from kafkapy.coordinator.group.records import GROUP_RECORDS
from kafkapy.coordinator.group.share.group import ShareGroup
from kafkapy.coordinator.group.share.state_partitions import StateTopic
from kafkapy.errors import ErrorCode
from kafkapy.testing.coordinator import snapshot_of

SESSION_MS = 45_000


def kinds(bench: Any, start: int = 0) -> list[tuple[int, bool]]:
    """Key version, and whether it is a tombstone, of the records from `start` on."""
    return [(each.key_version, each.value is None) for each in written(bench)[start:]]


def state(group: ShareGroup) -> dict[str, Any]:
    """All of a group that must survive."""
    return {
        "epochs": (group.epoch, group.assignment_epoch, group.metadata_hash),
        "members": group.members,
        "target": group.target,
        "states": group.state_partitions,
        "subscriptions": group.subscriptions(),
        "counts": group._targeted,
        "state": group.state_name,
    }


def test_the_first_member_writes_itself_the_epochs_its_assignment_and_its_partitions_in_one_batch(bench: Any) -> None:
    bench.persister.hold = True
    Member(bench, "a")
    assert kinds(bench) == [(10, False), (11, False), (13, False), (12, False), (14, False), (15, False)]
    assert all(each.value_version == 0 for each in written(bench))
    assert bench.writer.appends == 1
    bench.persister.release()
    bench.clock.advance(0)
    assert kinds(bench, 6) == [(15, False)]


def test_a_heartbeat_that_changes_nothing_writes_nothing(bench: Any) -> None:
    member = Member(bench, "a")
    settle(member)
    appends = bench.writer.appends
    settle(member)
    assert bench.writer.appends == appends


def test_a_member_that_leaves_is_written_off_in_the_order_that_kafka_replays(bench: Any) -> None:
    member = Member(bench, "a")
    count = len(written(bench))
    member.leave()
    assert kinds(bench, count) == [(14, True), (13, True), (10, True), (11, False), (12, False)]


def test_a_group_that_is_deleted_is_written_off_in_the_order_that_kafka_replays(bench: Any) -> None:
    Member(bench, "a").leave()
    count = len(written(bench))
    bench.coordinator.write(GROUP, lambda shard, _: shard.delete_groups([GROUP]))
    bench.clock.run()
    assert kinds(bench, count) == [(12, True), (15, True), (11, True)]
    assert GROUP not in bench.shard.groups


def test_a_group_is_the_same_after_a_restart(bench: Any) -> None:
    bench.snapshot = snapshot_of({"topic": 6, "other": 2})
    members = [Member(bench, "a"), Member(bench, "b", "other"), Member(bench, "c", "topic", "other")]
    settle(*members)
    members.pop().leave()
    before = state(group_of(bench))
    bench.restart()
    assert state(group_of(bench)) == before
    settle(*members)
    assert state(group_of(bench))["epochs"][:2] == (before["epochs"][0],) * 2, "the assignment without the third"
    bench.clock.advance(SESSION_MS)
    assert group_of(bench).members == {}


def test_sessions_begin_again_after_a_restart(bench: Any) -> None:
    Member(bench, "a")
    bench.clock.advance(SESSION_MS - 1)
    bench.restart()
    bench.clock.advance(SESSION_MS - 1)
    assert group_of(bench).members.keys() == {"a"}
    bench.clock.advance(1)
    assert group_of(bench).members == {}


def test_a_group_that_was_deleted_is_gone_after_a_restart_and_may_begin_again(bench: Any) -> None:
    Member(bench, "a").leave()
    bench.coordinator.write(GROUP, lambda shard, _: shard.delete_groups([GROUP]))
    bench.clock.run()
    bench.restart()
    assert bench.shard.groups == {}
    assert beat(bench, "a", 0, subscribed_topic_names=["topic"]).member_epoch == 2


def test_a_record_that_cannot_be_written_changes_nothing(bench: Any) -> None:
    bench.writer.failure = OSError("no space")
    failed = beat(bench, "a", 0, subscribed_topic_names=["topic"])
    assert failed.error_code != ErrorCode.NONE
    bench.writer.failure = None
    bench.clock.advance(60_000)
    assert GROUP not in bench.shard.groups
    assert bench.persister.calls == []


# The bytes that Kafka 4.4 makes of these, written down by hand from its schemas.
TOPIC = UUID("00112233-4455-6677-8899-aabbccddeeff")
GOLDEN = [
    # member "m": rack "r", client "c", host "h", topics ["t"]
    ("000a0001 67 0001 6d", "0000 02 72 02 63 02 68 02 02 74 00"),
    # rack null
    ("000a0001 67 0001 6d", "0000 00 02 63 02 68 02 02 74 00"),
    # group "g" in epoch 3, with the hash 5
    ("000b0001 67", "0000 00000003 0000000000000005 00"),
    # target epoch 3, of the time 7; without a time, as before 4.4
    ("000c0001 67", "0000 00000003 01 00 08 0000000000000007"),
    ("000c0001 67", "0000 00000003 00"),
    ("000d0001 67 0001 6d", f"0000 02 {TOPIC.hex} 03 00000000 00000001 00 00"),
    # epoch 3, previous 2, state 0, one topic
    ("000e0001 67 0001 6d", f"0000 00000003 00000002 00 02 {TOPIC.hex} 02 00000004 00 00"),
    # initializing partition 1 of topic "t", initialized partition 0, deleting topic "t"
    (
        "000f0001 67",
        f"0000 02 {TOPIC.hex} 02 74 02 00000001 00 02 {TOPIC.hex} 02 74 02 00000000 00 02 {TOPIC.hex} 02 74 00 00",
    ),
]


@pytest.mark.parametrize(("key", "value"), GOLDEN)
def test_kafkas_bytes_are_read_and_written(key: str, value: str) -> None:
    raw = bytes.fromhex(key), bytes.fromhex(value)
    decoded = GROUP_RECORDS.decode(*raw)
    assert decoded is not None
    assert decoded.encode() == raw


def test_what_kafka_wrote_is_taken_over(bench: Any) -> None:
    load(bench, [*((key, value) for key, value in GOLDEN if value != GOLDEN[0][1])])
    bench.restart()
    group = group_of(bench, "g")
    member = group.members["m"]
    assert (group.epoch, group.metadata_hash, group.assignment_epoch) == (3, 5, 3)
    assert (member.client_id, member.client_host, member.topic_names) == ("c", "h", frozenset({"t"}))
    assert (member.member_epoch, member.previous_member_epoch, member.assigned) == (3, 2, {TOPIC: frozenset({4})})
    assert group.target == {"m": {TOPIC: frozenset({0, 1})}}
    assert group.state_partitions.initializing == {TOPIC: StateTopic("t", frozenset({1}))}
    assert group.state_partitions.initialized == {TOPIC: StateTopic("t", frozenset({0}))}
    assert group.state_partitions.deleting == {TOPIC: "t"}


TOMBSTONES = ["000e0001 67 0001 6d", "000d0001 67 0001 6d", "000c0001 67", "000a0001 67 0001 6d", "000f0001 67"]


def test_tombstones_of_what_compaction_has_removed_are_skipped(bench: Any) -> None:
    load(bench, [(key, None) for key in [*TOMBSTONES, "000b0001 67"]])
    bench.restart()
    assert bench.shard.groups == {}


def test_the_tombstone_of_a_group_ends_it_whatever_else_was_left(bench: Any) -> None:
    load(bench, [*GOLDEN, ("000b0001 67", None)])
    bench.restart()
    assert bench.shard.groups == {}


def test_a_group_that_only_held_offsets_gives_way_to_the_records_of_a_share_group(bench: Any) -> None:
    bench.commit({("topic", 0): 5}, group="g")
    assert isinstance(bench.shard.groups["g"], ClassicGroup)
    load(bench, GOLDEN[2:3])
    bench.restart()
    assert isinstance(bench.shard.groups["g"], ShareGroup)


def test_the_state_partitions_name_their_topics(bench: Any) -> None:
    settle(Member(bench, "a"))
    found = group_of(bench).state_partitions
    assert found.initialized == {topic_id(bench): StateTopic("topic", frozenset(range(6)))}
    assert found.topic_names == {topic_id(bench): "topic"}
