"""Random faults under the runtime: what was acknowledged or read is never taken back.

Appends fail, replicas lag, leadership moves and takes the records with it that were not replicated. Values of a name
only grow, so that a value that goes back is one that was lost.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from kafkapy import errors
from kafkapy.coordinator.hosted import ShardContext
from kafkapy.coordinator.records import CoordinatorRecord, RecordTypes
from kafkapy.coordinator.result import Later, Result
from kafkapy.coordinator.runtime import CoordinatorRuntime
from kafkapy.protocol.messages.group_metadata_records import OffsetCommitKey, OffsetCommitValue
from kafkapy.records.batches import iter_batches
from kafkapy.testing.coordinator import MemoryWriter, VirtualClock
from kafkapy.types import TopicPartition

PARTITION = TopicPartition("__consumer_offsets", 0)
NAMES = st.sampled_from(["a", "b", "c"])


class Shard:
    """The last value of each name."""

    def __init__(self, context: ShardContext[Shard]) -> None:
        self.values: dict[str, int] = {}

    def apply(self, record: CoordinatorRecord, producer_id: int = -1, producer_epoch: int = -1) -> None:
        key: Any = record.key
        value: Any = record.value
        self.values[key.topic] = value.offset

    def apply_end_transaction_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        raise AssertionError

    def on_loaded(self, now_ms: int) -> None:
        pass

    def on_unloaded(self) -> None:
        pass


def written(name: str, value: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        OffsetCommitKey(group="g", topic=name, partition=0),
        1,
        OffsetCommitValue(offset=value, metadata="", commit_timestamp=1),
        3,
    )


class Faults(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.clock = VirtualClock()
        self.writer = MemoryWriter()
        types = RecordTypes({1: (OffsetCommitKey, OffsetCommitValue)})
        self.runtime: CoordinatorRuntime[Shard] = CoordinatorRuntime(
            "Model", PARTITION.topic, Shard, types, self.writer, self.clock, partition_count=lambda: 1
        )
        self.epoch = 0
        self.next = 0
        self.promised: dict[str, int] = {}
        self.waiting: list[Later[Any]] = []
        self.lead()

    def lead(self) -> None:
        self.epoch += 1
        self.runtime.on_leadership_change(PARTITION, self.epoch, True)
        self.clock.run()

    def promise(self, later: Later[Any]) -> None:
        if later.error is None:
            for name, value in later.result().items():
                assert value >= self.promised.get(name, 0), f"{name} went back from {self.promised[name]} to {value}"
                self.promised[name] = value

    @rule(names=st.lists(NAMES, min_size=1, max_size=3, unique=True))
    def write(self, names: list[str]) -> None:
        self.next += 1
        value = self.next
        later = self.runtime.write(
            0, lambda shard, _: Result(dict.fromkeys(names, value), [written(name, value) for name in names])
        )
        self.waiting.append(later)
        later.then(self.promise)

    @rule()
    def read(self) -> None:
        later = self.runtime.read(0, lambda shard, _: dict(shard.values))
        self.waiting.append(later)
        later.then(self.promise)

    @rule()
    def turn(self) -> None:
        self.clock.run()

    @rule(ms=st.sampled_from([10, 600, 5001]))
    def wait(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule(fails=st.booleans())
    def disk(self, fails: bool) -> None:
        self.writer.failure = errors.KafkaStorageError() if fails else None

    @rule(lags=st.booleans())
    def replicas(self, lags: bool) -> None:
        self.writer.replicate = not lags
        if not lags:
            self.writer.commit()

    @rule(lossy=st.booleans())
    def elect(self, lossy: bool) -> None:
        """Leadership goes away and comes back, with or without what was not replicated."""
        self.epoch += 1
        self.runtime.on_leadership_change(PARTITION, self.epoch, False)
        if lossy:
            high_watermark = self.writer.high_watermark(PARTITION)
            kept: list[bytes] = []
            end = 0
            for batch in self.writer.batches.get(PARTITION, []):
                (view,) = iter_batches(batch)
                # Batches are atomic, and the high watermark stands between two of them.
                if end + view.record_count <= high_watermark:
                    kept.append(batch)
                    end += view.record_count
            self.writer.batches[PARTITION] = kept
            self.writer.ends[PARTITION] = end
        self.lead()

    @invariant()
    def nothing_acknowledged_is_lost(self) -> None:
        for shard in self.runtime.shards().values():
            for name, value in self.promised.items():
                assert shard.values.get(name, 0) >= value

    def teardown(self) -> None:
        if not hasattr(self, "runtime"):
            return
        self.writer.failure = None
        self.replicas(lags=False)
        self.clock.advance(60_000)
        assert all(later.done for later in self.waiting)
        before = dict(self.runtime.shards()[0].values)
        self.lead()
        assert self.runtime.shards()[0].values == before
        self.nothing_acknowledged_is_lost()


def test_what_was_acknowledged_or_read_is_never_taken_back() -> None:
    run_state_machine_as_test(
        Faults,
        settings=settings(
            max_examples=150, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
