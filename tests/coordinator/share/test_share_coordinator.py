"""The share coordinator: what it stores, whom it fences, and what is in its log."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from coordinator.share.conftest import KEY, OTHER, PARTITION, TOPIC, ShareBench

from kafkapy.coordinator.share.shard import MOST_BATCHES
from kafkapy.coordinator.share.state import ShareKey, ShareState, ShareSummary
from kafkapy.errors import ErrorCode
from kafkapy.types import uuid_to_string

FENCED_STATE, FENCED_LEADER = ErrorCode.FENCED_STATE_EPOCH, ErrorCode.FENCED_LEADER_EPOCH
INVALID, UNKNOWN = ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- initialize -----------------------------------------------------------------------------------------------------


def test_a_share_partition_begins_with_its_start_offset(bench: ShareBench) -> None:
    assert bench.summary() == ShareSummary(0, 0, -1, -1)
    assert bench.initialize(state_epoch=5, start_offset=100) is None
    assert bench.summary() == ShareSummary(5, 0, 100, 0)
    assert bench.read(leader_epoch=3) == ShareState(5, 100, 0, ())
    bench.restart()
    assert bench.summary() == ShareSummary(5, 3, 100, 0)


def test_the_leader_decides_a_start_offset_that_is_not_known(bench: ShareBench) -> None:
    bench.initialize(start_offset=-1)
    assert bench.summary() == ShareSummary(1, 0, -1, -1)
    assert bench.read() == ShareState(1, -1, 0, ())
    assert bench.write(start_offset=40) is None
    assert bench.summary() == ShareSummary(1, 0, 40, 0)


def test_a_higher_state_epoch_begins_again_and_fences_the_leader(bench: ShareBench) -> None:
    bench.initialize(state_epoch=1, start_offset=0)
    bench.read(leader_epoch=3)
    bench.write((0, 9, 2, 1), leader_epoch=3, complete=10)
    assert bench.initialize(state_epoch=0, start_offset=7) is FENCED_STATE
    assert bench.initialize(state_epoch=2, start_offset=7) is None
    assert bench.summary() == ShareSummary(2, 0, 7, 0)
    assert bench.batches() == []
    assert bench.write((0, 9, 2, 1), leader_epoch=3) is FENCED_STATE
    assert bench.read(leader_epoch=2) is FENCED_LEADER, "the leaders before stay fenced"
    assert bench.write((7, 9, 2, 1), leader_epoch=3, state_epoch=2) is None


def test_a_repeated_initialization_changes_nothing(bench: ShareBench) -> None:
    bench.initialize(start_offset=5)
    bench.write((5, 9, 2, 1))
    before = bench.log_end
    assert bench.initialize(start_offset=5) is None
    assert bench.log_end == before
    assert bench.batches() == [(5, 9, 2, 1)]


# --- read and write -------------------------------------------------------------------------------------------------


def test_a_leader_reads_what_the_one_before_wrote(bench: ShareBench) -> None:
    bench.initialize()
    bench.read(leader_epoch=1)
    assert bench.write((0, 4, 2, 1), (5, 9, 0, 1), leader_epoch=1, complete=5) is None
    assert bench.write((5, 5, 4, 1), leader_epoch=1, complete=6) is None
    for _ in range(2):
        assert bench.read(leader_epoch=2) == ShareState(1, 0, 6, ((0, 4, 2, 1), (5, 5, 4, 1), (6, 9, 0, 1)))
        bench.restart()


def test_a_read_fences_the_leaders_before(bench: ShareBench) -> None:
    bench.initialize()
    bench.read(leader_epoch=4)
    assert bench.read(leader_epoch=3) is FENCED_LEADER
    assert bench.write((0, 0, 2, 1), leader_epoch=3) is FENCED_LEADER
    assert bench.write((0, 0, 2, 1), leader_epoch=4) is None
    bench.restart()
    assert bench.write((1, 1, 2, 1), leader_epoch=3) is FENCED_LEADER
    before = bench.log_end
    bench.read(leader_epoch=4)
    assert bench.log_end == before, "the same leader needs no record"


def test_the_start_offset_never_goes_back(bench: ShareBench) -> None:
    bench.initialize()
    bench.write((0, 9, 0, 1), start_offset=5, complete=2)
    assert bench.batches() == [(5, 9, 0, 1)]
    assert bench.write((3, 6, 2, 1), start_offset=3, complete=7) is None
    assert bench.batches() == [(5, 6, 2, 1), (7, 9, 0, 1)]
    assert bench.summary() == ShareSummary(1, 0, 5, 2)
    bench.write((7, 7, 2, 1), start_offset=-1, complete=1)
    assert bench.summary() == ShareSummary(1, 0, 5, 2)


@pytest.mark.parametrize(
    ("start_offset", "complete", "stored"), [(10, 3, 4), (10, 9, 9), (10, -1, 4), (9, 9, 4), (11, 1, 1), (11, -1, -1)]
)
def test_the_count_of_complete_deliveries_belongs_to_its_start_offset(
    bench: ShareBench, start_offset: int, complete: int, stored: int
) -> None:
    bench.initialize()
    bench.write(start_offset=10, complete=4)
    bench.write(start_offset=start_offset, complete=complete)
    assert bench.summary().delivery_complete == stored


def test_nothing_is_read_or_written_before_it_is_initialized(bench: ShareBench) -> None:
    assert bench.read() is INVALID
    assert bench.write((0, 0, 2, 1)) is INVALID
    assert bench.log_end == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"state_epoch": -1},
        {"leader_epoch": -1},
        {"start_offset": -2},
        {"key": ShareKey("group", TOPIC, -1)},
        {"batches": [(5, 4, 2, 1)]},
        {"batches": [(-1, 4, 2, 1)]},
        {"batches": [(0, 4, -1, 1)]},
        {"batches": [(0, 4, 2, -1)]},
        {"batches": [(0, 0, 2, 1)] * (MOST_BATCHES + 1)},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_write_that_cannot_be_changes_nothing(bench: ShareBench, wrong: dict[str, Any]) -> None:
    bench.initialize()
    before = bench.states(), bench.log_end
    assert bench.write(*wrong.pop("batches", ()), **wrong) is INVALID
    assert (bench.states(), bench.log_end) == before


def test_topics_and_partitions_that_do_not_exist(bench: ShareBench) -> None:
    nowhere, none = ShareKey("group", uuid4(), 0), ShareKey("group", TOPIC, 10)
    for key in (nowhere, none):
        assert bench.initialize(key) is UNKNOWN
        assert bench.summary(key) is UNKNOWN
        assert bench.delete(key) is UNKNOWN
    bench.initialize()
    bench.topics.clear()
    assert bench.read() is UNKNOWN
    assert bench.write((0, 0, 2, 1)) is UNKNOWN


# --- delete ---------------------------------------------------------------------------------------------------------


def test_a_deleted_share_partition_begins_as_a_new_one(bench: ShareBench) -> None:
    bench.initialize(state_epoch=9)
    bench.read(leader_epoch=9)
    assert bench.delete() is None
    assert bench.delete() is None, "nothing to delete is no error"
    for _ in range(2):
        assert bench.shard.states == {}
        assert bench.shard.topics == {}
        bench.restart()
    assert bench.initialize(state_epoch=0) is None
    assert bench.read(leader_epoch=0) == ShareState(0, 0, 0, ())


def test_share_partitions_of_deleted_topics_are_removed(bench: ShareBench) -> None:
    keys = [ShareKey(group, topic, partition) for group in "ab" for topic in (TOPIC, OTHER) for partition in range(3)]
    for key in keys:
        bench.initialize(key)
    bench.topics.discard(TOPIC)
    bench.coordinator.topics_deleted([TOPIC, uuid4()])
    bench.clock.run()
    for _ in range(2):
        assert set(bench.shard.states) == {key for key in keys if key.topic_id == OTHER}
        bench.restart()


def test_topics_that_were_deleted_elsewhere_are_found_by_the_second_check(bench: ShareBench) -> None:
    bench.initialize()
    bench.initialize(ShareKey("group", OTHER, 0))
    bench.topics.discard(TOPIC)
    bench.clock.advance(bench.config.cold_interval_ms)
    assert KEY in bench.shard.states, "the metadata may be on its way"
    bench.clock.advance(bench.config.cold_interval_ms)
    assert set(bench.shard.states) == {ShareKey("group", OTHER, 0)}


def test_a_topic_that_was_unknown_for_a_moment_keeps_its_share_partitions(bench: ShareBench) -> None:
    bench.initialize()
    bench.topics.discard(TOPIC)
    bench.clock.advance(bench.config.cold_interval_ms)
    bench.topics.add(TOPIC)
    bench.clock.advance(bench.config.cold_interval_ms)
    bench.topics.discard(TOPIC)
    bench.clock.advance(bench.config.cold_interval_ms)
    assert KEY in bench.shard.states


# --- the log --------------------------------------------------------------------------------------------------------


def test_updates_lie_between_snapshots() -> None:
    bench = ShareBench(updates_per_snapshot=3)
    bench.initialize()
    for number in range(8):
        bench.write((number, number, 2, 1), complete=number + 1)
    assert [record.key_version for record in bench.records()] == [0, 1, 1, 1, 0, 1, 1, 1, 0]
    assert [record.value.snapshot_epoch for record in bench.records()] == [0, 0, 0, 0, 1, 1, 1, 1, 2]
    middle = bench.records()[4].value
    assert [(each.first_offset, each.last_offset) for each in middle.state_batches] == [(0, 3)]
    assert middle.create_timestamp == middle.write_timestamp == bench.clock.time_ms()
    assert bench.records()[5].value.state_batches[0].first_offset == 4, "an update has only what has changed"


def test_every_write_is_a_snapshot_without_updates() -> None:
    bench = ShareBench(updates_per_snapshot=0)
    bench.initialize()
    bench.read(leader_epoch=1)
    bench.write((0, 0, 2, 1), leader_epoch=1)
    assert [record.key_version for record in bench.records()] == [0, 0, 0]


def test_writes_of_one_turn_share_a_batch(bench: ShareBench) -> None:
    keys = [ShareKey("group", TOPIC, partition) for partition in range(10)]
    for key in keys:
        bench.initialize(key)
    before = bench.writer.appends
    laters = [bench.coordinator.write(key, 1, 0, 5, 0, []) for key in keys]
    bench.clock.run()
    assert all(later.done and later.error is None for later in laters)
    assert bench.writer.appends == before + 1


def test_a_state_that_no_batch_takes_is_refused() -> None:
    bench = ShareBench()
    bench.initialize()
    bench.writer.max_bytes = 2_000
    before = bench.states()
    single = [(2 * number, 2 * number, 2, 1) for number in range(200)]
    assert bench.write(*single) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert bench.states() == before


def test_another_broker_coordinates(bench: ShareBench) -> None:
    bench.coordinator.on_leadership_change(PARTITION, bench.epoch + 1, False)
    assert bench.initialize() is ErrorCode.NOT_COORDINATOR
    assert bench.summary() is ErrorCode.NOT_COORDINATOR


def test_a_write_waits_for_the_replicas_and_not_for_ever(bench: ShareBench) -> None:
    bench.initialize()
    bench.writer.replicate = False
    later = bench.coordinator.write(KEY, 1, 0, 5, 0, [])
    bench.clock.run()
    assert not later.done
    bench.clock.advance(bench.config.write_timeout_ms)
    assert getattr(later.error, "code", None) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.coordinator.write_times.max_ms == bench.config.write_timeout_ms


# --- keys -----------------------------------------------------------------------------------------------------------


def test_the_text_of_a_key() -> None:
    for key in (KEY, ShareKey("a:b", OTHER, 7), ShareKey("g", TOPIC, -3)):
        assert ShareKey.parse(key.text) == key
    assert KEY.text == f"group:{uuid_to_string(TOPIC)}:0"


@pytest.mark.parametrize(
    "text",
    ["", ":", "group", "group:0", f"group:{uuid_to_string(TOPIC)}", f":{uuid_to_string(TOPIC)}:0",
     f"group:{uuid_to_string(TOPIC)}:x", f"group:{uuid_to_string(TOPIC)}:1_0", "group:not an id:0",
     f"group:{uuid_to_string(TOPIC)}:2147483648", f" :{uuid_to_string(TOPIC)}:0"],
)  # fmt: skip
def test_a_text_that_is_no_key(text: str) -> None:
    with pytest.raises(ValueError, match=""):
        ShareKey.parse(text)


# --- collected writes -----------------------------------------------------------------------------------------------


def test_writes_wait_for_others_when_they_may_linger() -> None:
    bench = ShareBench(linger_ms=20)
    first = bench.coordinator.initialize(KEY, 0, 0)
    bench.clock.advance(10)
    second = bench.coordinator.initialize(ShareKey("group", OTHER, 0), 0, 0)
    bench.clock.advance(9)
    assert not first.done and not second.done
    bench.clock.advance(1)
    assert first.done and second.done
    assert bench.writer.appends == 1
    third = bench.coordinator.delete(KEY)
    bench.clock.advance(19)
    assert not third.done
    bench.clock.advance(1)
    assert third.done


def test_writes_that_fill_a_batch_linger_no_longer() -> None:
    bench = ShareBench(linger_ms=20)
    bench.writer.max_bytes = 1_000
    laters = [bench.coordinator.initialize(ShareKey(f"group-{number}", TOPIC, 0), 0, 0) for number in range(20)]
    bench.clock.run()
    assert all(later.done for later in laters)
