"""The log of the share coordinator is deleted up to what is needed: what is left says as much as all of it did."""

from __future__ import annotations

from typing import Any

import pytest
from coordinator.share.conftest import KEY, OTHER, PARTITION, TOPIC, ShareBench
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.coordinator.share.state import ShareKey
from kafkapy.errors import KafkaStorageError

COLD = ShareKey("cold", TOPIC, 1)
KEYS = [ShareKey(group, topic, 0) for group in "ab" for topic in (TOPIC, OTHER)]


def busy(bench: ShareBench, count: int, key: ShareKey = KEY) -> None:
    for number in range(count):
        bench.write((number, number, 2, 1), key=key, complete=number + 1)


def test_records_before_the_last_snapshots_are_deleted() -> None:
    bench = ShareBench(updates_per_snapshot=4)
    bench.initialize()
    bench.initialize(COLD)
    busy(bench, 12)
    before = bench.states()
    bench.coordinator.prune()
    bench.clock.run()
    assert bench.log_start == 1, "the cold one's snapshot is needed"
    busy(bench, 1, COLD)
    bench.delete(COLD)
    bench.coordinator.prune()
    bench.clock.run()
    assert bench.records()[0].key_version == 0
    assert 1 < bench.log_start < bench.log_end
    del before[COLD]
    bench.restart()
    assert bench.states() == before


def test_a_log_that_nobody_needs_is_deleted_as_a_whole(bench: ShareBench) -> None:
    bench.initialize()
    busy(bench, 5)
    bench.delete()
    bench.clock.advance(bench.config.prune_interval_ms)
    assert bench.log_start == bench.log_end
    bench.restart()
    assert bench.states() == {}
    bench.initialize()
    bench.restart()
    assert KEY in bench.shard.states


def test_a_log_that_begins_with_an_update_is_kept_until_there_is_a_snapshot() -> None:
    bench = ShareBench(updates_per_snapshot=4)
    bench.initialize()
    busy(bench, 1)
    bench.initialize(COLD)
    bench.writer.log_starts[PARTITION] = 1  # without the first snapshot
    bench.restart()
    assert bench.shard.needed_from == 1
    bench.coordinator.prune()
    bench.clock.run()
    before = bench.states()
    assert KEY in before
    bench.restart()
    assert bench.states() == before
    bench.initialize(state_epoch=2)
    assert bench.shard.needed_from == 2, "the snapshot of the cold one"


def test_only_what_is_committed_makes_other_records_redundant() -> None:
    bench = ShareBench(updates_per_snapshot=0)
    bench.initialize()
    bench.writer.replicate = False
    bench.coordinator.write(KEY, 1, 0, 5, 0, [])
    bench.clock.run()
    bench.coordinator.prune()
    bench.clock.run()
    assert bench.log_start == 0
    bench.writer.commit()
    bench.clock.run()
    assert bench.log_start == 1


def test_a_deletion_that_fails_is_repeated() -> None:
    bench = ShareBench(updates_per_snapshot=0)
    bench.initialize()
    busy(bench, 5)
    bench.refusal = KafkaStorageError("the disk")
    bench.clock.advance(bench.config.prune_interval_ms)
    assert (bench.log_start, bench.coordinator.pruned) == (0, {})
    bench.refusal = None
    bench.clock.advance(bench.config.prune_interval_ms)
    assert (bench.log_start, bench.coordinator.pruned) == (5, {0: 5})


def test_a_cold_share_partition_gets_a_new_snapshot_when_it_holds_the_log() -> None:
    bench = ShareBench(updates_per_snapshot=2)
    bench.initialize(COLD)
    bench.write((0, 3, 2, 1), key=COLD, complete=4)
    bench.initialize()
    busy(bench, 30)
    before = bench.states()
    made = bench.clock.time_ms()
    bench.clock.advance(bench.config.cold_interval_ms)
    again = bench.shard.states[COLD]
    assert (again.created_ms, again.written_ms) == (made, made + bench.config.cold_interval_ms)
    assert again.snapshot_epoch == 1
    bench.coordinator.prune()
    bench.clock.run()
    assert bench.log_start >= 30
    bench.restart()
    assert bench.states() == before


def test_snapshots_are_not_repeated_for_nothing() -> None:
    bench = ShareBench(updates_per_snapshot=2)
    for partition in range(10):
        bench.initialize(ShareKey("cold", TOPIC, partition))
    bench.initialize()
    busy(bench, 5)
    end = bench.log_end
    for _ in range(5):
        bench.clock.advance(bench.config.cold_interval_ms)
    assert bench.log_end == end, "most of the log is needed"
    busy(bench, 30)
    bench.clock.advance(bench.config.cold_interval_ms)
    end = bench.log_end
    for _ in range(5):
        bench.clock.advance(bench.config.cold_interval_ms)
    assert bench.log_end == end, "what follows the new snapshots is needed"


def test_many_cold_share_partitions_are_looked_at_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkapy.coordinator.share.coordinator.LOOKED_AT_ONCE", 3)
    bench = ShareBench(updates_per_snapshot=0)
    cold = [ShareKey("cold", TOPIC, partition) for partition in range(10)]
    for key in cold:
        bench.initialize(key)
    bench.initialize()
    busy(bench, 40)
    bench.clock.advance(bench.config.cold_interval_ms + 1)
    assert {bench.shard.states[key].snapshot_epoch for key in cold} == {1}
    assert bench.shard.needed_from >= 40


def kept(bench: ShareBench) -> Any:
    """What must survive. The leader epoch is told again by the next read of the leader."""
    return {key: (epoch, *state) for key, (epoch, _, *state) in bench.states().items()}


@settings(max_examples=100)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("initialize"), st.integers(0, 3), st.integers(0, 5)),
            st.tuples(st.just("write"), st.integers(0, 3), st.integers(0, 5)),
            st.tuples(st.just("read"), st.integers(0, 3), st.integers(0, 5)),
            st.tuples(st.just("delete"), st.integers(0, 3), st.just(0)),
            st.tuples(st.just("wait"), st.just(0), st.integers(1, 3)),
            st.tuples(st.just("prune"), st.just(0), st.just(0)),
            st.tuples(st.just("restart"), st.just(0), st.just(0)),
        ),
        max_size=40,
    ),
    st.integers(0, 3),
)
def test_what_is_left_says_as_much_as_all_of_it(steps: list[tuple[str, int, int]], updates: int) -> None:
    pruned = ShareBench(updates_per_snapshot=updates)
    whole = ShareBench(updates_per_snapshot=updates, prune_interval_ms=10**12)
    for action, which, number in steps:
        key = KEYS[which]
        for bench in (pruned, whole):
            if action == "initialize":
                bench.initialize(key, state_epoch=number, start_offset=number)
            elif action == "write":
                batch = (2 * number, 2 * number + which, 2, 1)
                bench.write(batch, key=key, state_epoch=5, leader_epoch=5, start_offset=number, complete=number)
            elif action == "read":
                bench.read(key, leader_epoch=5)
            elif action == "delete":
                bench.delete(key)
            elif action == "wait":
                bench.coordinator.look_after_cold()
                bench.clock.advance(number * 100_000)
            elif action == "restart":
                bench.restart()
        if action == "prune":
            pruned.coordinator.prune()
            pruned.clock.run()
        assert kept(pruned) == kept(whole)
    pruned.coordinator.prune()
    pruned.clock.run()
    assert pruned.shard.needed_from <= pruned.log_start <= pruned.log_end
    pruned.restart()
    whole.restart()
    assert kept(pruned) == kept(whole)
