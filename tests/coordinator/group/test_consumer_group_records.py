"""Consumer groups in __consumer_offsets: what is written, and what comes of it when it is read again."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from coordinator.group.consumer_client import SESSION_MS, Member, assigned, settle, topic_id

from kafkapy.coordinator.group.consumer.group import ConsumerGroup
from kafkapy.coordinator.group.consumer.member import MemberState
from kafkapy.coordinator.group.records import GROUP_RECORDS
from kafkapy.coordinator.records import CoordinatorRecord
from kafkapy.errors import ErrorCode
from kafkapy.records.batches import RecordBatchBuilder, decode_records, iter_batches
from kafkapy.testing.coordinator import snapshot_of
from kafkapy.types import TopicPartition

PARTITION = TopicPartition("__consumer_offsets", 0)


def written(bench: Any) -> list[CoordinatorRecord]:
    found = []
    for batch in bench.writer.batches.get(PARTITION, []):
        for each in iter_batches(batch):
            for record in decode_records(each):
                decoded = GROUP_RECORDS.decode(record.key or b"", record.value)
                assert decoded is not None
                found.append(decoded)
    return found


def state(group: ConsumerGroup) -> dict[str, Any]:
    """All of a group that must survive."""
    return {
        "epochs": (group.epoch, group.assignment_epoch, group.metadata_hash),
        "members": group.members,
        "target": group.target,
        "static": group.static_members,
        "resolved": group.resolved,
        "owned": {topic: set(numbers) for topic, numbers in group._owners.items()},
        "subscriptions": group.subscriptions(),
        "state": group.state_name,
    }


def test_the_first_member_writes_itself_the_epochs_and_both_assignments_in_one_batch(bench: Any) -> None:
    bench.enter("a")
    assert [(each.key_version, each.value_version, each.value is None) for each in written(bench)] == [
        (5, 0, False),
        (3, 0, False),
        (7, 0, False),
        (6, 0, False),
        (8, 0, False),
    ]
    assert bench.writer.appends == 1


def test_a_member_that_leaves_is_written_off_in_the_order_that_kafka_replays(bench: Any) -> None:
    bench.enter("a")
    count = len(written(bench))
    bench.beat("a", -1)
    assert [(each.key_version, each.value is None) for each in written(bench)[count:]] == [
        (8, True),
        (7, True),
        (5, True),
        (3, False),
    ]


def test_a_group_that_is_deleted_is_written_off_in_the_order_that_kafka_replays(bench: Any) -> None:
    bench.enter("a")
    bench.beat("a", -1)
    count = len(written(bench))
    bench.coordinator.write("group", lambda shard, _: shard.delete_groups(["group"]))
    bench.clock.run()
    assert [(each.key_version, each.value is None) for each in written(bench)[count:]] == [
        (6, True),
        (4, True),
        (3, True),
    ]


# The bytes that Kafka 4.1 makes of these, written down by hand from its schemas.
TOPIC = UUID("00112233-4455-6677-8899-aabbccddeeff")
GOLDEN = [
    # group "g" in epoch 3, with the hash 5 as a tagged field
    ("00030001 67", "0000 00000003 01 00 08 0000000000000005"),
    # without a hash, as before 4.1
    ("00030001 67", "0000 00000003 00"),
    # member "m": instance null, rack "r", client "c", host "h", topics ["t"], regex "", timeout 100, assignor null,
    # and that it does not speak the classic protocol: a tagged field with null, because its default is an empty struct
    ("00050001 67 0001 6d", "0000 00 02 72 02 63 02 68 02 02 74 01 00000064 00 01 00 01 00"),
    # the same with what a classic member brought: session 7, protocol "p" with metadata 01
    (
        "00050001 67 0001 6d",
        "0000 00 02 72 02 63 02 68 02 02 74 01 00000064 00 01 00 0c 01 00000007 02 02 70 02 01 00 00",
    ),
    ("00060001 67", "0000 00000003 00"),
    ("00070001 67 0001 6d", f"0000 02 {TOPIC.hex} 03 00000000 00000001 00 00"),
    # epoch 3, previous 2, state 2, one topic assigned, none to give up
    ("00080001 67 0001 6d", f"0000 00000003 00000002 02 02 {TOPIC.hex} 02 00000004 00 01 00"),
    # expression "x", topics ["t"], version 9, timestamp 8
    ("00100001 67 0001 78", "0000 02 02 74 0000000000000009 0000000000000008 00"),
]


@pytest.mark.parametrize(("key", "value"), GOLDEN)
def test_kafkas_bytes_are_read_and_written(key: str, value: str) -> None:
    raw = bytes.fromhex(key), bytes.fromhex(value)
    decoded = GROUP_RECORDS.decode(*raw)
    assert decoded is not None
    assert decoded.encode() == raw


def load(bench: Any, records: list[tuple[str, str | None]]) -> None:
    builder = RecordBatchBuilder()
    for key, value in records:
        builder.append(bench.clock.time_ms(), bytes.fromhex(key), None if value is None else bytes.fromhex(value))
    bench.writer.put(PARTITION, builder.build(0))
    bench.restart()


def test_what_kafka_wrote_is_loaded(bench: Any) -> None:
    load(bench, [GOLDEN[2], GOLDEN[0], GOLDEN[5], GOLDEN[4], GOLDEN[6], GOLDEN[7]])
    group = bench.consumer_group("g")
    assert (group.epoch, group.assignment_epoch, group.metadata_hash) == (3, 3, 5)
    member = group.members["m"]
    assert (member.rack_id, member.client_id, member.topic_names) == ("r", "c", {"t"})
    assert (member.member_epoch, member.previous_member_epoch) == (3, 2)
    assert member.state is MemberState.UNRELEASED_PARTITIONS
    assert member.assigned == {TOPIC: {4}}
    assert group.target["m"] == {TOPIC: {0, 1}}
    assert group.resolved["x"].topics == {"t"}


def test_a_state_of_a_later_version_makes_the_member_begin_anew(bench: Any) -> None:
    key, value = GOLDEN[6]
    load(bench, [GOLDEN[2], GOLDEN[0], GOLDEN[4], (key, value.replace("00000002 02 02", "00000002 63 02"))])
    assert bench.consumer_group("g").members["m"].state is MemberState.UNKNOWN
    fenced = bench.beat("m", 3, group="g")
    assert fenced.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert bench.beat("m", 3, group="g", owned={}).error_code == ErrorCode.NONE
    assert bench.consumer_group("g").members["m"].state is MemberState.STABLE


def test_what_a_version_before_the_hash_knew_of_topics_is_written_off(bench: Any) -> None:
    # Key version 4: topic "t" with id, one partition, no racks.
    partition_metadata = ("00040001 67", f"0000 02 {TOPIC.hex} 02 74 00000001 01 00 00")
    load(bench, [GOLDEN[2], partition_metadata, GOLDEN[1], GOLDEN[4]])
    assert bench.consumer_group("g").has_subscription_metadata
    bench.beat("m", 0, group="g", owned={}, rebalance_timeout_ms=5, subscribed_topic_names=["t"])
    assert not bench.consumer_group("g").has_subscription_metadata
    assert [each.value for each in written(bench) if each.key_version == 4][-1] is None


@pytest.mark.parametrize(
    "tombstones",
    [["00030001 67"], ["00050001 67 0001 6d"], ["00080001 67 0001 6d"], ["00070001 67 0001 6d", "00060001 67"]],
)
def test_tombstones_of_what_is_not_there_are_overlooked(bench: Any, tombstones: list[str]) -> None:
    load(bench, [(key, None) for key in tombstones])
    assert bench.shard.groups == {}


def test_a_log_that_was_compacted_between_two_owners_is_loaded(bench: Any) -> None:
    # "n" has got partition 4 of "m"; of m's records only the first is left until it is compacted as well.
    of_n = ("00080001 67 0001 6e", f"0000 00000003 00000002 00 02 {TOPIC.hex} 02 00000004 00 01 00")
    of_m = ("00080001 67 0001 6d", "0000 00000003 00000002 00 01 01 00")
    load(bench, [GOLDEN[0], GOLDEN[6], of_n, of_m])
    group = bench.consumer_group("g")
    assert group.is_owned(TOPIC, 4)
    group.remove("n")
    assert not group.is_owned(TOPIC, 4)


@pytest.mark.parametrize("beats", range(7))
def test_a_restart_at_any_moment_of_a_rebalance_changes_nothing(bench: Any, beats: int) -> None:
    bench.snapshot = snapshot_of({"topic": 6, "other": 3})
    members = [Member(bench, "a", "topic"), Member(bench, "b", "topic", "other", instance_id="i")]
    settle(*members, rounds=1)
    members.append(Member(bench, "c", "other"))
    for turn in range(beats):
        members[turn % 3].beat()
    before = state(bench.consumer_group())
    bench.restart()
    assert state(bench.consumer_group()) == before
    settle(*members)
    assert bench.consumer_group().state_name == "Stable"
    assert {number for each in members for number in each.owned.get(topic_id(bench), ())} == set(range(6))


def test_sessions_and_rebalance_timeouts_begin_anew_after_a_restart(bench: Any) -> None:
    Member(bench, "a", rebalance_ms=20_000)
    Member(bench, "b")
    bench.beat("a", 1)
    bench.clock.advance(15_000)
    bench.restart()
    bench.clock.advance(19_999)
    assert set(bench.consumer_group().members) == {"a", "b"}
    bench.clock.advance(1)
    assert set(bench.consumer_group().members) == {"b"}
    bench.clock.advance(SESSION_MS - 20_000)
    assert bench.consumer_group().state_name == "Empty"


def test_a_refused_write_changes_nothing(bench: Any) -> None:
    Member(bench, "a")
    before = state(bench.consumer_group())
    bench.writer.max_bytes = 100
    refused = bench.enter("b")
    assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert state(bench.consumer_group()) == before
    bench.writer.max_bytes = 1_048_588
    assert assigned(bench.beat("a", 1, owned={}, rebalance_timeout_ms=5, subscribed_topic_names=["topic"]))


def test_a_member_from_before_there_were_classic_ones_is_none(bench: Any) -> None:
    load(bench, [("00050001 67 0001 6d", "0000 00 02 72 02 63 02 68 02 02 74 01 00000064 00 00"), GOLDEN[0]])
    assert bench.consumer_group("g").members["m"].classic is None
