"""Offsets of a deleted topic are forgotten for good before `topics_deleted` is done, whatever is between."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy import errors
from kafkapy.coordinator.group import deleted_topics
from kafkapy.coordinator.group.deleted_topics import LONGEST_RETRY_MS
from kafkapy.coordinator.group.offset_requests import NewOffset, OffsetCommit
from kafkapy.coordinator.group.offsets import OffsetStore
from kafkapy.coordinator.result import Later, ProducerStamp
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.group_metadata_records import OffsetCommitKey, OffsetCommitValue
from kafkapy.testing.coordinator import snapshot_of
from kafkapy.types import TopicPartition

Bench = Any
PARTITION = TopicPartition("__consumer_offsets", 0)


def delete(bench: Bench, *topics: str) -> Later[None]:
    later: Later[None] = bench.coordinator.topics_deleted(topics, [0])
    bench.clock.run()
    return later


def test_a_shard_that_is_being_loaded_forgets_when_it_is_loaded(bench: Bench) -> None:
    bench.commit({("gone", 0): 2, ("topic", 0): 1})
    bench.coordinator.runtime.on_leadership_change(PARTITION, bench.epoch + 1, True)
    later = bench.coordinator.topics_deleted(["gone"], [0])
    assert not later.done
    bench.clock.advance(1000)
    assert later.result() is None
    assert set(bench.fetch()) == {("topic", 0)}
    bench.restart()
    assert set(bench.fetch()) == {("topic", 0)}


def test_a_partition_that_is_not_led_here_is_waited_for(bench: Bench) -> None:
    bench.commit({("gone", 0): 2})
    bench.coordinator.runtime.on_leadership_change(PARTITION, bench.epoch + 1, False)
    later = delete(bench, "gone")
    bench.clock.advance(60_000)
    assert not later.done
    bench.coordinator.runtime.on_leadership_change(PARTITION, bench.epoch + 2, True)
    bench.clock.advance(LONGEST_RETRY_MS)
    assert later.done
    assert bench.fetch() == {}


@pytest.mark.parametrize("what", ["failure", "unwritable", "sync_failure"])
@pytest.mark.parametrize("error", [errors.KafkaStorageError(), errors.NotLeaderOrFollowerError(), OSError(28, "full")])
def test_a_write_that_fails_is_tried_again(bench: Bench, what: str, error: Exception) -> None:
    bench.commit({("gone", 0): 2})
    if what == "unwritable" and isinstance(error, OSError):
        error = errors.NotEnoughReplicasError()
    setattr(bench.writer, what, error)
    later = delete(bench, "gone")
    bench.clock.advance(10)
    assert not later.done
    setattr(bench.writer, what, None)
    bench.clock.advance(LONGEST_RETRY_MS)
    assert later.result() is None
    assert bench.fetch() == {}


def test_pauses_grow_while_a_partition_cannot_be_synced(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """And begin anew for the next topics."""
    caplog.set_level(logging.INFO, "kafka.coordinator.group.OffsetMetadataManager")
    bench.commit({("gone", 0): 2, ("late", 0): 2})
    for topic in ("gone", "late"):
        caplog.clear()
        bench.writer.sync_failure = OSError(28, "full")
        later = delete(bench, topic)
        bench.clock.advance(16_000)
        bench.writer.sync_failure = None
        bench.clock.advance(LONGEST_RETRY_MS)
        assert later.done
        found = [re.search(r"retries in (\d+) ms", each) for each in caplog.messages]
        assert [int(each[1]) for each in found if each] == [100, 200, 400, 800, 1600, 3200, 5000, 5000]
        assert "Offsets of deleted topics stay in __consumer_offsets-0; the coordinator" in caplog.text


def test_nothing_is_deleted_where_there_is_no_topic_or_no_partition(bench: Bench) -> None:
    bench.commit({("gone", 0): 2})
    for topics, partitions in (([], [0]), (["gone"], [])):
        assert bench.coordinator.topics_deleted(topics, partitions).done
    bench.clock.run()
    assert set(bench.fetch()) == {("gone", 0)}


def test_it_is_done_when_tombstones_are_synced_and_not_before(bench: Bench) -> None:
    bench.commit({("gone", 0): 2})
    written = bench.writer.ends[PARTITION]
    bench.writer.replicate = False
    later = delete(bench, "gone")
    bench.clock.advance(100)
    assert not later.done
    bench.writer.commit()
    bench.clock.run()
    assert later.done
    assert bench.writer.synced[PARTITION] == bench.writer.ends[PARTITION] > written


def test_topics_that_are_deleted_meanwhile_are_forgotten_too(bench: Bench) -> None:
    bench.commit({("one", 0): 2, ("two", 0): 2})
    bench.writer.slow = True
    first, second = delete(bench, "one"), delete(bench, "two")
    bench.writer.finish()
    bench.clock.run()
    assert first.done
    assert not second.done
    bench.writer.finish()
    bench.clock.run()
    assert second.done
    assert bench.fetch() == {}


def test_without_the_offsets_topic_there_is_nothing_to_wait_for(bench: Bench) -> None:
    bench.commit({("gone", 0): 2})
    bench.coordinator.runtime.on_leadership_change(PARTITION, bench.epoch + 1, False)
    later = delete(bench, "gone")
    bench.coordinator.deleted_topics.abandon()
    assert later.done
    bench.clock.advance(LONGEST_RETRY_MS)
    assert len(bench.coordinator.deleted_topics._timer) == 0


def test_offsets_of_other_topics_are_not_looked_at(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []
    whole = OffsetStore.partitions_of_topics

    def spy(store: OffsetStore, group_id: str, topics: Any) -> Any:
        looked_at.append(group_id)
        return whole(store, group_id, topics)

    monkeypatch.setattr(OffsetStore, "partitions_of_topics", spy)
    for number in range(20):
        bench.commit({("topic", each): 1 for each in range(100)}, group=f"group-{number}")
    bench.commit({("gone-3", 0): 1}, group="group-3")
    assert delete(bench, *(f"gone-{number}" for number in range(1000))).done
    assert looked_at == ["group-3"]


def test_each_turn_of_the_loop_writes_and_looks_at_a_part(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deleted_topics, "RECORDS_PER_STEP", 10)
    monkeypatch.setattr(deleted_topics, "LOOKED_AT_PER_STEP", 15)
    for number in range(6):
        bench.commit({("gone", each): 1 for each in range(12)} | {("topic", 0): 1}, group=f"group-{number}")
    steps = []
    write = bench.coordinator.runtime.write

    def spy(partition: int, operation: Any) -> Any:
        def counted(shard: Any, now_ms: int) -> Any:
            result = operation(shard, now_ms)
            steps.append(len(result.records))
            return result

        return write(partition, counted)

    monkeypatch.setattr(bench.coordinator.runtime, "write", spy)
    assert delete(bench, "gone").done
    assert sum(steps) == 72
    assert max(steps) == 10
    for number in range(6):
        assert set(bench.fetch(group=f"group-{number}")) == {("topic", 0)}


@pytest.mark.parametrize("again", [False, True])
def test_a_commit_that_was_on_its_way_is_refused(bench: Bench, again: bool) -> None:
    looked_up = snapshot_of({"topic": 6, "gone": 1})
    bench.snapshot = looked_up
    commit = OffsetCommit("group", {TopicPartition(*each): NewOffset(5) for each in (("topic", 0), ("gone", 0))})
    commit = commit._replace(looked_up=looked_up)
    topics = dict(snapshot_of({"topic": 6}).topics)
    if again:
        topics["gone"] = snapshot_of({"other": 1}).topics["other"]
    bench.snapshot = replace(looked_up, topics=topics)
    later = bench.coordinator.write("group", lambda shard, now: shard.offsets.commit(None, commit, now))
    bench.clock.run()
    assert later.result() == {("topic", 0): ErrorCode.NONE, ("gone", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert set(bench.fetch()) == {("topic", 0)}


# --- the index ------------------------------------------------------------------------------------------------------

GROUPS, TOPICS = st.sampled_from("gh"), st.sampled_from("tuv")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), GROUPS, TOPICS, st.integers(0, 2), st.sampled_from([-1, -1, 1, 2])),
        st.tuples(st.just("remove"), GROUPS, TOPICS, st.integers(0, 2)),
        st.tuples(st.just("end"), st.sampled_from([1, 2]), st.booleans()),
    ),
    max_size=40,
)


@given(STEPS)
def test_the_index_is_what_a_look_at_every_offset_finds(steps: list[Any]) -> None:
    store = OffsetStore()
    for kind, *arguments in steps:
        if kind == "put":
            group, topic, number, producer = arguments
            store.apply(OffsetCommitKey(group=group, topic=topic, partition=number), OffsetCommitValue(), producer)
        elif kind == "remove":
            group, topic, number = arguments
            store.apply(OffsetCommitKey(group=group, topic=topic, partition=number), None)
        else:
            store.apply_end_transaction_marker(*arguments)
        for topic in "tuv":
            held = {
                group
                for group in "gh"
                if any(each.topic == topic for each in [*store.of_group(group), *store.pending_of_group(group)])
            }
            assert set(store.groups_of_topics([topic])) == held
            for group in "gh":
                found, _ = store.partitions_of_topics(group, {topic})
                assert bool(found) == (group in held)


def test_offsets_of_a_transaction_are_forgotten_with_it(bench: Bench) -> None:
    bench.commit({("gone", 1): 2}, group="second", producer=ProducerStamp(7, 0))
    assert delete(bench, "gone").done
    bench.coordinator.runtime.complete_transaction(0, 7, 0, 0, True)
    bench.clock.run()
    assert bench.fetch(group="second") == {}
