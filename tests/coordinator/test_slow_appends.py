"""A coordinator whose partition is on a slow disk: appends end long after they were given to the writer."""

from __future__ import annotations

from typing import Any

import pytest
from coordinator.test_runtime import PARTITION, TOPIC, Bench, record

from kafkapy import errors
from kafkapy.coordinator.hosted import ShardState
from kafkapy.coordinator.result import ProducerStamp, Result
from kafkapy.records.batches import iter_batches
from kafkapy.types import TopicPartition

TIMEOUT_MS = 5000


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.writer.slow = True
    return bench


def written(bench: Bench) -> list[tuple[bool, int]]:
    """Of each batch in the log: whether it is a marker, and how many records it has."""
    batches = [batch for data in bench.writer.batches[PARTITION] for batch in iter_batches(data)]
    return [(batch.is_control, batch.last_offset_delta + 1) for batch in batches]


def test_replies_wait_for_the_append_and_reads_for_what_they_saw(bench: Bench) -> None:
    first = bench.put("a", 1)
    bench.clock.run()
    read = bench.values()
    bench.clock.run()
    assert not first.done
    assert not read.done
    assert bench.shard.values == {"a": 1}
    bench.writer.finish()
    assert first.result() == "a"
    assert read.result() == {"a": 1}


def test_one_append_at_a_time_and_all_that_came_meanwhile_in_the_next(bench: Bench) -> None:
    first = bench.put("a", 0)
    bench.clock.run()
    others = []
    for number in range(20):
        others.append(bench.put(f"n{number}", number))
        bench.clock.run()
    bench.writer.finish(1)
    assert first.done
    assert not any(other.done for other in others)
    bench.writer.finish(1)
    assert all(other.done for other in others)
    assert written(bench) == [(False, 1), (False, 20)]


def test_another_partition_does_not_wait(bench: Bench) -> None:
    bench.put("a", 1)
    bench.clock.run()
    bench.writer.slow = False
    bench.runtime.on_leadership_change(TopicPartition(TOPIC, 1), 1, True)
    bench.clock.run()
    other = bench.runtime.write(1, lambda shard, now_ms: Result("b", [record("b", 1)]))
    bench.clock.run()
    assert other.result() == "b"


def test_too_slow_a_disk_is_an_error_and_the_records_stay(bench: Bench) -> None:
    late = bench.put("a", 1)
    bench.clock.run()
    bench.clock.advance(TIMEOUT_MS - 1000)
    behind = bench.put("b", 2)
    bench.clock.advance(1000)
    with pytest.raises(errors.CoordinatorNotAvailableError):
        late.result()
    assert not behind.done
    bench.clock.advance(TIMEOUT_MS)
    with pytest.raises(errors.CoordinatorNotAvailableError):
        behind.result()
    bench.writer.finish()
    bench.writer.finish()
    assert bench.values().result() == {"a": 1, "b": 2}
    assert written(bench) == [(False, 1), (False, 1)]


def test_one_look_at_the_time_for_all_appends(bench: Bench) -> None:
    bench.put("a", 1)
    bench.clock.run()
    assert bench.clock.alarms == 1
    bench.clock.advance(TIMEOUT_MS - 1000)
    bench.writer.finish()
    late = bench.put("b", 2)
    bench.clock.advance(TIMEOUT_MS - 1)
    assert bench.clock.alarms == 1
    assert not late.done
    bench.clock.advance(1 + TIMEOUT_MS // 4)
    with pytest.raises(errors.CoordinatorNotAvailableError):
        late.result()
    bench.writer.finish()
    bench.clock.advance(2 * TIMEOUT_MS)
    assert bench.clock.alarms == 0


def test_a_failure_fails_what_waits_and_loads_again(bench: Bench) -> None:
    first = bench.put("a", 1)
    bench.clock.run()
    second = bench.put("b", 1)
    bench.clock.run()
    bench.writer.failure = errors.KafkaStorageError()
    bench.writer.finish()
    for failed in (first, second):
        with pytest.raises(errors.NotCoordinatorError):
            failed.result()
    bench.writer.failure = None
    bench.clock.run()
    assert bench.values().result() == {}


def test_a_load_waits_for_the_append_of_the_shard_before(bench: Bench) -> None:
    """Else it would read up to an end that the append then moves: the shard would lack a record of its log."""
    lost = bench.put("a", 1)
    bench.clock.run()
    bench.runtime.on_leadership_change(PARTITION, 2, False)
    bench.runtime.on_leadership_change(PARTITION, 3, True)
    bench.clock.run()
    with pytest.raises(errors.NotCoordinatorError):
        lost.result()
    assert bench.runtime.states() == {0: ShardState.LOADING}
    bench.runtime.on_leadership_change(PARTITION, 4, True)
    bench.clock.run()
    assert bench.runtime.states() == {0: ShardState.LOADING}
    bench.writer.finish()
    bench.clock.run()
    assert bench.values().result() == {"a": 1}


def test_a_record_that_cannot_be_applied_while_another_is_on_its_way(bench: Bench) -> None:
    bench.put("a", 1)
    bench.clock.run()
    with pytest.raises(errors.UnknownServerError):
        bench.put("poison", 1).result()
    bench.clock.run()
    bench.writer.finish()
    bench.clock.run()
    assert bench.values().result() == {"a": 1}


def in_transaction(bench: Bench, name: str, value: int) -> Any:
    return bench.put(name, value, producer=ProducerStamp(7, 0))


def test_memory_sees_markers_and_writes_in_the_order_of_the_log(bench: Bench) -> None:
    in_transaction(bench, "a", 1)
    bench.clock.run()
    before = bench.put("b", 1)
    marker = bench.runtime.complete_transaction(0, 7, 0, 0, True)
    after = bench.put("a", 2)
    second = bench.runtime.complete_transaction(0, 7, 0, 0, True)
    last = bench.put("c", 3)
    bench.clock.run()
    assert not marker.done
    assert bench.shard.values == {"b": 1}
    for _ in range(6):
        bench.writer.finish(1) if bench.writer.waiting else None
        bench.clock.run()
    for later in (before, marker, after, second, last):
        later.result()
    assert bench.shard.values == {"a": 2, "b": 1, "c": 3}
    assert written(bench) == [(False, 1), (False, 1), (True, 1), (False, 1), (True, 1), (False, 1)]
    bench.writer.slow = False
    bench.runtime.on_leadership_change(PARTITION, 2, True)
    bench.clock.run()
    assert bench.values().result() == {"a": 2, "b": 1, "c": 3}


def test_a_marker_that_is_refused_changes_nothing_and_lets_writes_go_on(bench: Bench) -> None:
    in_transaction(bench, "a", 1)
    bench.clock.run()
    bench.writer.finish()
    marker = bench.runtime.complete_transaction(0, 7, 0, 0, True)
    after = bench.put("b", 2)
    bench.clock.run()
    bench.writer.failure = errors.InvalidProducerEpochError()
    bench.writer.finish(1)
    bench.writer.failure = None
    with pytest.raises(errors.InvalidProducerEpochError):
        marker.result()
    bench.clock.run()
    bench.writer.finish()
    assert after.result() == "b"
    assert bench.shard.values == {"b": 2}


def test_a_shard_that_goes_fails_its_markers_and_what_is_behind_them(bench: Bench) -> None:
    on_its_way = bench.runtime.complete_transaction(0, 7, 0, 0, True)
    waits = bench.runtime.complete_transaction(0, 8, 0, 0, True)
    write = bench.put("a", 1)
    bench.runtime.on_leadership_change(PARTITION, 2, False)
    bench.writer.finish()
    for failed in (on_its_way, waits, write):
        with pytest.raises(errors.NotCoordinatorError):
            failed.result()


def test_a_stop_gives_the_writer_what_is_unwritten(bench: Bench) -> None:
    bench.put("a", 1)
    bench.runtime.stop()
    bench.writer.finish()
    assert written(bench) == [(False, 1)]
