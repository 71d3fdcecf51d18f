"""The runtime with a shard that counts, a virtual clock and a log in memory."""

from __future__ import annotations

import logging
import sys
from itertools import pairwise
from typing import Any

import pytest

from kafkapy import errors
from kafkapy.coordinator.hosted import ShardContext
from kafkapy.coordinator.partitioning import java_hash, partition_of
from kafkapy.coordinator.records import CoordinatorRecord, RecordTypes
from kafkapy.coordinator.result import Later, ProducerStamp, Result
from kafkapy.coordinator.runtime import CoordinatorRuntime
from kafkapy.coordinator.writer import Appended
from kafkapy.protocol.messages.group_metadata_records import OffsetCommitKey, OffsetCommitValue
from kafkapy.records.batches import RecordBatchBuilder
from kafkapy.testing.coordinator import MemoryWriter, VirtualClock
from kafkapy.types import TopicPartition

TOPIC = "__consumer_offsets"
PARTITION = TopicPartition(TOPIC, 0)


def record(name: str, offset: int | None) -> CoordinatorRecord:
    value = None if offset is None else OffsetCommitValue(offset=offset, metadata="", commit_timestamp=1)
    return CoordinatorRecord(OffsetCommitKey(group="g", topic=name, partition=0), 1, value, 3)


def batch_of(key: bytes, value: bytes | None, count: int = 1) -> bytes:
    """A batch with `count` times the same record, as a client could write it."""
    builder = RecordBatchBuilder()
    for _ in range(count):
        builder.append(1, key, value)
    return builder.build(0)


class Shard:
    """A map from names to numbers; what a transaction writes is seen when it has committed."""

    def __init__(self, context: ShardContext[Shard]) -> None:
        self.context = context
        self.values: dict[str, int] = {}
        self.open: dict[int, list[CoordinatorRecord]] = {}
        self.loaded = self.unloaded = 0

    def apply(self, record: CoordinatorRecord, producer_id: int = -1, producer_epoch: int = -1) -> None:
        key: Any = record.key
        value: Any = record.value
        if key.topic == "poison":
            raise ValueError("poison")
        if producer_id >= 0:
            self.open.setdefault(producer_id, []).append(record)
        elif value is None:
            self.values.pop(key.topic, None)
        else:
            self.values[key.topic] = value.offset

    def apply_end_transaction_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        for each in self.open.pop(producer_id, []):
            if committed:
                self.apply(each)

    def on_loaded(self, now_ms: int) -> None:
        self.loaded += 1

    def on_unloaded(self) -> None:
        self.unloaded += 1


class NotingShard(Shard):
    """Notes the offsets of its records."""

    def __init__(self, context: ShardContext[Shard]) -> None:
        super().__init__(context)
        self.told_end = 0
        self.noted: list[tuple[str, int]] = []

    def stored_at(self, record: CoordinatorRecord, offset: int) -> None:
        key: Any = record.key
        self.noted.append((key.topic, offset))


class Bench:
    """A runtime with one partition, and short forms."""

    def __init__(self, writer: MemoryWriter | None = None, load: bool = True, shard: type[Shard] = Shard) -> None:
        self.clock = VirtualClock()
        self.writer = writer or MemoryWriter()
        types = RecordTypes({1: (OffsetCommitKey, OffsetCommitValue)})
        self.runtime = CoordinatorRuntime(
            "Test", TOPIC, shard, types, self.writer, self.clock, partition_count=lambda: 50
        )
        if load:
            self.runtime.on_leadership_change(PARTITION, 1, True)
            self.clock.run()

    @property
    def shard(self) -> Shard:
        return self.runtime.shards()[0]

    def put(self, name: str, value: int | None, **how: Any) -> Later[str]:
        return self.runtime.write(0, lambda shard, now_ms: Result(name, [record(name, value)], **how))

    def values(self) -> Later[dict[str, int]]:
        return self.runtime.read(0, lambda shard, now_ms: dict(shard.values))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_javas_hash_decides_the_partition() -> None:
    # Values of String.hashCode from the Java language's definition, computed by hand for short texts.
    assert java_hash("") == 0
    assert java_hash("a") == 97
    assert java_hash("ab") == 97 * 31 + 98
    assert java_hash("polygenelubricants") == -(2**31)
    assert partition_of("polygenelubricants", 50) == 0
    assert partition_of("\U0001f600", 50) == ((0xD83D * 31 + 0xDE00) & 0x7FFFFFFF) % 50
    # A negative hash: where Apache Kafka 3.9.1 has put the group.
    assert java_hash("corpus-group") == -1081962438
    assert partition_of("corpus-group", 50) == 38
    assert partition_of("corpus-left-open", 50) == 9


def test_a_long_key_is_not_remembered() -> None:
    long = "".join(["long", "k" * 32_763])
    references = sys.getrefcount(long)
    assert partition_of(long, 50) == abs(java_hash(long)) % 50
    assert sys.getrefcount(long) == references


def test_a_write_is_seen_at_once_and_answered_when_it_is_committed(bench: Bench) -> None:
    bench.writer.replicate = False
    wrote = bench.put("a", 1)
    read = bench.values()
    assert bench.shard.values == {"a": 1}
    bench.clock.run()
    assert not wrote.done and not read.done
    bench.writer.commit()
    assert wrote.result() == "a"
    assert read.result() == {"a": 1}


def test_a_shard_hears_offsets_and_its_records_are_released_before_they_are_committed() -> None:
    bench = Bench(shard=NotingShard)
    bench.writer.replicate = False
    records = [record("a", 1), record("b", 2)]
    references = [sys.getrefcount(each) for each in records]
    replies = [
        bench.put("first", 0),
        bench.runtime.write(0, lambda shard, now_ms: Result("two", list(records))),
        bench.put("last", 3),
    ]
    bench.clock.run()
    shard: Any = bench.shard
    assert shard.noted == [("first", 0), ("a", 1), ("b", 2), ("last", 3)]
    assert [sys.getrefcount(each) for each in records] == references
    assert not any(each.done for each in replies)
    bench.put("next", 4)
    bench.clock.run()
    assert shard.noted[4:] == [("next", 4)]


def test_operations_of_one_turn_share_a_batch(bench: Bench) -> None:
    replies = [bench.put(f"n{i}", i) for i in range(100)]
    assert not any(reply.done for reply in replies)
    bench.clock.run()
    assert all(reply.done for reply in replies)
    assert bench.writer.appends == 1
    assert len(bench.writer.batches[PARTITION]) == 1


def test_batches_are_no_larger_than_the_partition_takes() -> None:
    writer = MemoryWriter()
    writer.max_bytes = 1000
    bench = Bench(writer)
    replies = [bench.put(f"n{i}", i) for i in range(100)]
    bench.clock.run()
    assert [reply.result() for reply in replies] == [f"n{i}" for i in range(100)]
    assert len(writer.batches[PARTITION]) > 5


def test_a_record_too_large_is_refused_and_not_applied(bench: Bench) -> None:
    bench.writer.max_bytes = 200
    with pytest.raises(errors.MessageTooLargeError):
        bench.put("x" * 300, 1).result()
    assert bench.shard.values == {}


def test_an_operation_that_raises_changes_and_writes_nothing(bench: Bench) -> None:
    def refuse(shard: Shard, now_ms: int) -> Result[None]:
        raise errors.IllegalGenerationError()

    with pytest.raises(errors.IllegalGenerationError):
        bench.runtime.write(0, refuse).result()
    bench.clock.run()
    assert bench.writer.appends == 0


def test_a_reply_that_comes_later_is_handed_on(bench: Bench) -> None:
    inner: Later[int] = Later()
    outer = bench.runtime.write(0, lambda shard, now_ms: Result(inner))
    assert not outer.done
    inner.set(7)
    assert outer.result() == 7


def test_after_comes_before_the_reply_and_only_when_committed(bench: Bench) -> None:
    seen: list[object] = []
    bench.writer.replicate = False
    wrote = bench.put("a", 1, after=lambda error: seen.append((error, wrote.done)))
    bench.clock.run()
    assert seen == []
    bench.writer.commit()
    assert seen == [(None, False)]
    assert wrote.done


def test_an_after_that_fails_keeps_nobody_else_waiting(bench: Bench) -> None:
    def fail(error: BaseException | None) -> None:
        raise ValueError(error)

    first, second = bench.put("a", 1, after=fail), bench.put("b", 2)
    bench.clock.run()
    assert isinstance(first.error, errors.UnknownServerError)
    assert second.result() == "b"
    assert bench.shard.values == {"a": 1, "b": 2}


def test_what_is_not_replicated_in_time_is_answered_with_an_error_and_stays(bench: Bench) -> None:
    seen: list[BaseException | None] = []
    bench.writer.replicate = False
    wrote = bench.put("a", 1, after=seen.append)
    read = bench.values()
    bench.clock.advance(5001)
    for late in (wrote, read):
        with pytest.raises(errors.CoordinatorNotAvailableError):
            late.result()
    assert isinstance(seen[0], errors.CoordinatorNotAvailableError)
    bench.writer.commit()
    assert len(seen) == 1
    assert bench.values().result() == {"a": 1}


def test_too_few_replicas_refuse_writes_but_not_reads(bench: Bench) -> None:
    bench.put("a", 1)
    bench.clock.run()
    bench.writer.unwritable = errors.NotEnoughReplicasError()
    with pytest.raises(errors.CoordinatorNotAvailableError):
        bench.put("b", 2).result()
    assert bench.values().result() == {"a": 1}
    assert bench.shard.loaded == 1


def test_a_failed_append_fails_what_waits_and_loads_the_shard_again(bench: Bench) -> None:
    bench.put("a", 1)
    bench.clock.run()
    before = bench.shard
    bench.writer.failure = errors.KafkaStorageError()
    wrote, read = bench.put("a", 2), bench.values()
    bench.clock.run()
    for failed in (wrote, read):
        with pytest.raises(errors.NotCoordinatorError):
            failed.result()
    assert before.unloaded == 1
    bench.writer.failure = None
    assert bench.values().result() == {"a": 1}


def test_an_append_that_breaks_down_fails_what_waits_and_no_other_shard(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.runtime.on_leadership_change(TopicPartition(TOPIC, 1), 1, True)
    bench.clock.run()
    append = bench.writer.append

    def break_down(partition: TopicPartition, batches: bytes, leader_epoch: int, done: Appended) -> None:
        if partition == PARTITION:
            raise RuntimeError("a mistake of the broker")
        append(partition, batches, leader_epoch, done)

    bench.writer.append = break_down  # type: ignore[method-assign]
    broken = bench.put("a", 1)
    other = bench.runtime.write(1, lambda shard, now_ms: Result("b", [record("b", 1)]))
    with caplog.at_level(logging.ERROR):
        bench.clock.run()
    assert other.result() == "b"
    with pytest.raises(errors.UnknownServerError):
        broken.result()
    assert "a mistake of the broker" in caplog.text
    bench.writer.append = append  # type: ignore[method-assign]
    assert bench.values().result() == {}, "the shard is what its log says"


def test_a_record_that_cannot_be_applied_loads_the_shard_again(bench: Bench) -> None:
    bench.put("a", 1)
    bench.clock.run()
    with pytest.raises(errors.UnknownServerError):
        bench.put("poison", 1).result()
    bench.clock.run()
    assert bench.values().result() == {"a": 1}


def test_loading_applies_what_the_log_holds(bench: Bench) -> None:
    for i in range(2500):
        bench.put(f"n{i % 100}", i)
        if i % 50 == 0:
            bench.clock.run()
    bench.put("n0", None)
    bench.clock.run()
    again = Bench(bench.writer)
    assert again.shard.loaded == 1
    assert again.runtime.load_times.count == 1
    assert again.shard.values == bench.shard.values
    assert "n0" not in again.shard.values


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b"x"),
        (b"\0", b"x"),
        (b"\0\1", b"y"),
        (b"\xff\xff", b"y"),
        (b"\x7f\xff", b"of a later version"),
        (b"\0\1\0\1g\0\1a\0\0\0\0", b""),
        (b"\0\1\0\1g\0\1a\0\0\0\0", b"\0\3"),
        (b"\0\1\0\1g\0\1a\0\0\0\0 and more", None),
    ],
)
def test_loading_skips_a_record_that_no_coordinator_wrote(
    bench: Bench, key: bytes, value: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    bench.put("a", 1)
    bench.clock.run()
    bench.writer.put(PARTITION, batch_of(key, value, 3))
    bench.put("b", 2)
    bench.clock.run()
    again = Bench(bench.writer)
    assert again.values().result() == {"a": 1, "b": 2}
    skips = [line for line in caplog.messages if "skip" in line]
    assert len(skips) == 2, "the first is told, then their number"
    assert "skipped 3 records" in skips[1]


def test_loading_fails_for_a_value_of_a_newer_broker(bench: Bench) -> None:
    bench.writer.put(PARTITION, batch_of(b"\0\1\0\1g\0\1a\0\0\0\0", b"\x7f\xffnewer"))
    again = Bench(bench.writer)
    with pytest.raises(errors.NotCoordinatorError):
        again.values().result()


def test_requests_are_refused_while_loading_and_elsewhere(bench: Bench) -> None:
    loading = Bench(bench.writer, load=False)
    with pytest.raises(errors.NotCoordinatorError):
        loading.values().result()
    loading.runtime.on_leadership_change(PARTITION, 1, True)
    with pytest.raises(errors.CoordinatorLoadInProgressError):
        loading.put("a", 1).result()
    loading.clock.run()
    assert loading.values().result() == {}


def test_partitions_of_other_topics_are_ignored(bench: Bench) -> None:
    bench.runtime.on_leadership_change(TopicPartition("other", 3), 1, True)
    assert set(bench.runtime.states()) == {0}


def test_a_load_that_fails_is_tried_again() -> None:
    writer = MemoryWriter()
    writer.read_failure = errors.KafkaStorageError()
    bench = Bench(writer)
    with pytest.raises(errors.NotCoordinatorError):
        bench.values().result()
    writer.read_failure = None
    bench.clock.advance(600)
    assert bench.values().result() == {}


def test_a_shard_stays_in_the_next_epoch_of_its_leader_and_is_loaded_again_after_a_follower(bench: Bench) -> None:
    first = bench.shard
    bench.runtime.on_leadership_change(PARTITION, 1, True)
    bench.runtime.on_leadership_change(PARTITION, 0, False)
    assert bench.shard is first
    bench.runtime.on_leadership_change(PARTITION, 2, True)
    bench.clock.run()
    assert bench.shard is first
    bench.runtime.on_leadership_change(PARTITION, 3, False)
    bench.runtime.on_leadership_change(PARTITION, 4, True)
    bench.clock.run()
    assert bench.shard is not first
    assert first.unloaded == 1


def test_what_waits_for_replicas_is_answered_in_the_next_epoch_of_the_leader(bench: Bench) -> None:
    bench.writer.epochs[PARTITION] = 1
    bench.writer.replicate = False
    wrote = bench.put("a", 1)
    bench.clock.run()
    bench.writer.epochs[PARTITION] = 2
    bench.writer.commit()
    assert not wrote.done, "the log is in an epoch that the shard has not heard of"
    bench.runtime.on_leadership_change(PARTITION, 2, True)
    assert wrote.done
    wrote.result()


def test_losing_leadership_fails_what_waits(bench: Bench) -> None:
    bench.writer.replicate = False
    wrote = bench.put("a", 1)
    bench.clock.run()
    bench.runtime.on_leadership_change(PARTITION, 2, False)
    with pytest.raises(errors.NotCoordinatorError):
        wrote.result()
    with pytest.raises(errors.NotCoordinatorError):
        bench.values().result()


def test_stopping_writes_what_is_unwritten(bench: Bench) -> None:
    wrote = bench.put("a", 1)
    bench.runtime.stop()
    assert wrote.result() == "a"
    assert Bench(bench.writer).shard.values == {"a": 1}
    assert bench.clock.alarms == 0


def test_transactions_are_applied_by_their_marker(bench: Bench) -> None:
    bench.put("a", 1, producer=ProducerStamp(7, 0))
    bench.put("b", 1, producer=ProducerStamp(8, 0))
    bench.put("c", 1)
    bench.clock.run()
    assert bench.shard.values == {"c": 1}
    assert len(bench.writer.batches[PARTITION]) == 3
    bench.runtime.complete_transaction(0, 7, 0, 0, True).result()
    bench.runtime.complete_transaction(0, 8, 0, 0, False).result()
    assert bench.shard.values == {"a": 1, "c": 1}
    assert Bench(bench.writer).shard.values == {"a": 1, "c": 1}


@pytest.mark.parametrize(
    ("failure", "answer"),
    [
        (errors.InvalidProducerEpochError(), errors.InvalidProducerEpochError),
        (OSError(28, "No space left on device"), errors.NotCoordinatorError),
    ],
)
def test_a_refused_marker_changes_nothing(bench: Bench, failure: Exception, answer: type[errors.KafkaError]) -> None:
    bench.put("a", 1, producer=ProducerStamp(7, 0))
    bench.clock.run()
    bench.writer.failure = failure
    with pytest.raises(answer):
        bench.runtime.complete_transaction(0, 7, 0, 0, True).result()
    assert bench.shard.values == {}
    assert bench.shard.loaded == 1


def test_timeouts_write_and_are_tried_again_when_they_cannot(bench: Bench) -> None:
    timer = bench.shard.context.timer
    timer.schedule("k", 100, lambda shard, now_ms: Result(None, [record("t", 1)]))
    bench.writer.unwritable = errors.NotEnoughReplicasError()
    bench.clock.advance(150)
    assert bench.shard.values == {}
    bench.writer.unwritable = None
    bench.clock.advance(500)
    assert bench.shard.values == {"t": 1}


def test_a_timeout_that_is_too_large_is_tried_less_and_less_often(bench: Bench) -> None:
    """What it computes may be expensive: the assignment of a large group."""
    runs: list[int] = []

    def work(shard: Any, now_ms: int) -> Result[None]:
        runs.append(bench.clock.monotonic_ms())
        return Result(None, [record("t", 1)])

    bench.shard.context.timer.schedule("k", 100, work)
    most, bench.writer.max_bytes = bench.writer.max_bytes, 50
    bench.clock.advance(200_000)
    assert [late - early for early, late in pairwise(runs)][:9] == [
        500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000
    ]  # fmt: skip
    bench.writer.max_bytes = most
    bench.clock.advance(30_000)
    assert bench.shard.values == {"t": 1}
    count = len(runs)
    bench.clock.advance(100_000)
    assert len(runs) == count


def test_a_timeout_that_raises_anything_is_tried_again(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    runs: list[int] = []

    def work(shard: Any, now_ms: int) -> Result[None]:
        runs.append(bench.clock.monotonic_ms())
        if len(runs) < 4:
            raise ValueError("a defect")
        return Result(None, [record("t", 1)])

    bench.shard.context.timer.schedule("k", 100, work)
    bench.clock.advance(10_000)
    assert [late - early for early, late in pairwise(runs)] == [500, 1000, 2000]
    assert bench.shard.values == {"t": 1}
    assert caplog.text.count("ValueError: a defect") == 3


def test_a_restarted_timeout_keeps_its_operation_and_a_failed_one_is_not_restarted(bench: Bench) -> None:
    timer = bench.shard.context.timer
    assert not timer.restart("k", 100)
    timer.schedule("k", 100, lambda shard, now_ms: Result(None, [record("t", 1)]))
    bench.clock.advance(60)
    assert timer.restart("k", 100)
    bench.writer.unwritable = errors.NotEnoughReplicasError()
    bench.clock.advance(99)
    assert timer.restart("k", 1)
    bench.clock.advance(1)
    assert "k" in timer
    assert not timer.restart("k", 10_000), "it waits for its next attempt"
    bench.writer.unwritable = None
    timer.schedule("k", 100, lambda shard, now_ms: Result(None, [record("t", 2)]))
    assert timer.restart("k", 200)
    bench.clock.advance(199)
    assert bench.shard.values == {}
    bench.clock.advance(1)
    assert bench.shard.values == {"t": 2}


def test_timeouts_end_with_their_shard(bench: Bench) -> None:
    bench.shard.context.timer.schedule("k", 100, lambda shard, now_ms: Result(None, [record("t", 1)]))
    bench.runtime.on_leadership_change(PARTITION, 2, False)
    bench.runtime.on_leadership_change(PARTITION, 3, True)
    bench.clock.advance(200)
    assert bench.shard.values == {}
