"""A virtual clock and logs in memory, for tests of coordinators."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeVar
from uuid import uuid5

from kafkapy import errors
from kafkapy.coordinator.writer import Appended, CommittedListener, LoadedChunk, loaded_batch
from kafkapy.metadata.cache import MetadataSnapshot, PartitionMetadata, TopicMetadata
from kafkapy.metadata.znodes import BrokerRegistration
from kafkapy.records.batches import iter_batches
from kafkapy.types import ZERO_UUID, Endpoint, TopicPartition

T = TypeVar("T")


class _Alarm:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class VirtualClock:
    """A clock that a test advances.

    One test uses it, on its thread. `run` and `advance` execute due callbacks and blocking work.
    """

    def __init__(self, time_ms: int = 1_700_000_000_000) -> None:
        self._epoch_ms = time_ms
        self._now_ms = 0
        self._ready: deque[Callable[[], None]] = deque()
        self._alarms: list[tuple[int, int, _Alarm]] = []
        self._sequence = itertools.count()

    def time_ms(self) -> int:
        """The wall clock in ms; it advances with the monotonic clock."""
        return self._epoch_ms + self._now_ms

    def monotonic_ms(self) -> int:
        """Milliseconds since the clock was created."""
        return self._now_ms

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call in the next `run`."""
        self._ready.append(callback)

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> _Alarm:
        """Call when `advance` reaches the deadline."""
        alarm = _Alarm(callback)
        heapq.heappush(self._alarms, (deadline_ms, next(self._sequence), alarm))
        return alarm

    def run_blocking(
        self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[Exception], None]
    ) -> None:
        """Do the work in the next `run`."""

        def do() -> None:
            try:
                value = work()
            except Exception as error:
                failed(error)
            else:
                done(value)

        self._ready.append(do)

    def run(self) -> None:
        """Call everything that is ready, including callbacks that become ready meanwhile."""
        while self._ready:
            self._ready.popleft()()

    def advance(self, ms: int) -> None:
        """Advance the clock; alarms run at their deadlines, in order."""
        self.run()
        end = self._now_ms + ms
        while self._alarms and self._alarms[0][0] <= end:
            deadline, _, alarm = heapq.heappop(self._alarms)
            if alarm.callback is None:
                continue
            self._now_ms = max(self._now_ms, deadline)
            alarm.callback()
            self.run()
        self._now_ms = end
        self.run()

    @property
    def alarms(self) -> int:
        """Number of alarms that are set and not cancelled."""
        return sum(1 for _, _, alarm in self._alarms if alarm.callback is not None)


def snapshot_of(topics: Mapping[str, int], racks: Mapping[int, str] | None = None) -> MetadataSnapshot:
    """The metadata of a cluster with these topics: {name: number of partitions}.

    The topic id is derived from the name. With `racks` (broker to rack) each partition has its replica on the next
    broker.
    """
    brokers = {
        each: BrokerRegistration(each, (Endpoint("PLAINTEXT", "localhost", 9092),), rack=rack)
        for each, rack in (racks or {}).items()
    }
    ids = sorted(brokers) or [0]
    made = {
        name: TopicMetadata(
            name,
            uuid5(ZERO_UUID, name),
            {n: PartitionMetadata(n, ids[n % len(ids)], 0, (ids[n % len(ids)],), (0,)) for n in range(count)},
        )
        for name, count in topics.items()
    }
    names = {topic.topic_id: name for name, topic in made.items()}
    return MetadataSnapshot(brokers=brokers, topics=made, topic_names=names)


class MemoryWriter:
    """Partition logs as lists of batches.

    One test uses it, on its thread. `replicate` False holds the high watermark until `commit`; `slow` holds appends
    until `finish`; appends end with `failure`; ensure_writable raises `unwritable`. It leads every partition,
    in the epoch of `epochs` or 0; high_watermark takes any epoch of a partition that is not in `epochs`.
    """

    def __init__(self) -> None:
        self.batches: dict[TopicPartition, list[bytes]] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        """Offsets below which records were deleted."""
        self.replicate = True
        self.slow = False
        self.failure: Exception | None = None
        self.unwritable: Exception | None = None
        self.read_failure: Exception | None = None
        self.sync_failure: Exception | None = None
        self.synced: dict[TopicPartition, int] = {}
        self.max_bytes = 1_048_588
        self.appends = 0
        self.epochs: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._listeners: list[CommittedListener] = []
        self._on_their_way: deque[tuple[TopicPartition, bytes, Appended]] = deque()

    def ensure_writable(self, partition: TopicPartition) -> int:
        """See PartitionWriter."""
        if self.unwritable is not None:
            raise self.unwritable
        return self.max_bytes

    def append(self, partition: TopicPartition, batches: bytes, leader_epoch: int, done: Appended) -> None:
        """See PartitionWriter."""
        if self.slow:
            self._on_their_way.append((partition, batches, done))
        else:
            self._end(partition, batches, done)

    def together(self, work: Callable[[], None]) -> None:
        """See PartitionWriter."""
        work()

    @property
    def waiting(self) -> int:
        """Number of slow appends that have not ended."""
        return len(self._on_their_way)

    def finish(self, count: int | None = None) -> None:
        """End `count` slow appends in order; None ends all."""
        for _ in range(len(self._on_their_way) if count is None else count):
            self._end(*self._on_their_way.popleft())

    def _end(self, partition: TopicPartition, batches: bytes, done: Appended) -> None:
        try:
            end = self.put(partition, batches)
        except (errors.KafkaError, OSError) as error:
            done(error)
        else:
            done(end)

    def put(self, partition: TopicPartition, batches: bytes) -> int:
        """Append at once, and return the offset after the last record."""
        if self.failure is not None:
            raise self.failure
        self.appends += 1
        log = self.batches.setdefault(partition, [])
        for batch in iter_batches(batches, check_crc=True):
            if batch.size > self.max_bytes:
                raise errors.MessageTooLargeError(f"{batch.size} bytes")
            base = self.ends.get(partition, 0)
            log.append(base.to_bytes(8, "big") + batch.to_bytes()[8:])
            self.ends[partition] = base + batch.last_offset_delta + 1
        if self.replicate:
            self._committed[partition] = self.ends[partition]
        return self.ends[partition]

    def leader_epoch(self, partition: TopicPartition) -> int:
        """See PartitionWriter."""
        return self.epochs.get(partition, 0)

    def high_watermark(self, partition: TopicPartition, leader_epoch: int = -1) -> int:
        """See PartitionWriter."""
        if self.epochs.get(partition, leader_epoch) != leader_epoch:
            return -1
        return self._committed.get(partition, 0)

    def end_offset(self, partition: TopicPartition) -> int:
        """See PartitionWriter."""
        return self.ends.get(partition, 0)

    def commit(self) -> None:
        """Advance the high watermarks to the log end offsets."""
        for partition, end in self.ends.items():
            self._committed[partition] = end
            for listener in self._listeners:
                listener(partition)

    def sync(self, partition: TopicPartition) -> None:
        """See PartitionWriter; `synced` says how far."""
        if self.sync_failure is not None:
            raise self.sync_failure
        self.synced[partition] = self.ends.get(partition, 0)

    def lendable(self, partition: TopicPartition) -> None:
        """See PartitionWriter."""

    def on_committed(self, listener: CommittedListener) -> None:
        """See PartitionWriter."""
        self._listeners.append(listener)

    def read(self, partition: TopicPartition, offset: int) -> LoadedChunk:
        """See PartitionWriter; returns one batch at a time."""
        if self.read_failure is not None:
            raise self.read_failure
        log = self.batches.get(partition, [])
        index = max(offset, 0)
        if index >= len(log):
            return LoadedChunk([], index, at_end=True)
        start = self.log_starts.get(partition, 0)
        found = [loaded_batch(batch, start) for batch in iter_batches(log[index])]
        loaded = [each for each in found if each is not None]
        return LoadedChunk(loaded, index + 1, at_end=index + 1 >= len(log))
