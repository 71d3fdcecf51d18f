"""Removes deleted topics' offsets and share-partitions, so that no new topic inherits them.

A topic's name is free again only when every shard has written tombstones for its offsets and synced them (see
TopicDeletionManager): then neither a crash, nor a power failure, nor a shard that was being loaded brings them back.
Source of the tombstones: org.apache.kafka.coordinator.group.OffsetMetadataManager.onPartitionsDeleted, which a crash of
Kafka's broker can skip.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkapy.coordinator.clock import Clock
from kafkapy.coordinator.group.records import offset_tombstone
from kafkapy.coordinator.records import CoordinatorRecord
from kafkapy.coordinator.result import Later, Result
from kafkapy.coordinator.timer import TimerHeap
from kafkapy.coordinator.writer import PartitionWriter
from kafkapy.errors import ErrorCode, code_of
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.coordinator.group.shard import GroupShard
    from kafkapy.coordinator.runtime import CoordinatorRuntime

logger = logging.getLogger("kafka.coordinator.group.OffsetMetadataManager")

RECORDS_PER_STEP: Final = 2000
"""Tombstones in one batch."""
LOOKED_AT_PER_STEP: Final = 20_000
"""Offsets that one turn of the loop reads; a larger group takes a turn by itself."""
RETRY_MS: Final = 100
LONGEST_RETRY_MS: Final = 5_000
"""Longest pause in ms before a shard that could not write is asked again.

The shard is loading, or its log is offline.
"""


_MOVED: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_LEADER_OR_FOLLOWER)


class _Sweep:
    """One walk over a shard's offsets and share groups of some topics.

    Its steps are operations of the runtime.
    """

    def __init__(self, topics: frozenset[str]) -> None:
        self._topics = topics
        self._shard: GroupShard | None = None
        self._groups: deque[str] = deque()
        self._group = ""
        self._found: deque[TopicPartition] = deque()
        self._share_groups: deque[str] = deque()

    def step(self, shard: GroupShard, now_ms: int) -> Result[bool]:
        """Write some tombstones; the reply says whether more may follow."""
        del now_ms
        store = shard.store
        if shard is not self._shard:
            self._shard = shard
            self._groups = deque(store.groups_of_topics(self._topics))
            self._share_groups = deque(shard.share_offsets.groups_of_topics(self._topics))
            self._found.clear()
        records: list[CoordinatorRecord] = []
        looked_at = 0
        if self._found:
            shard.leases.recall(self._group)
        while len(records) < RECORDS_PER_STEP:
            if self._found:
                partition = self._found.popleft()
                if store.get(self._group, partition) is not None or store.is_pending(self._group, partition):
                    records.append(offset_tombstone(self._group, *partition))
            elif self._groups and looked_at < LOOKED_AT_PER_STEP:
                shard.leases.recall(self._groups[0])
                self._group = self._groups.popleft()
                found, looked = store.partitions_of_topics(self._group, self._topics)
                self._found.extend(found)
                looked_at += looked
            else:
                break
        if not records and self._share_groups:
            # The states of one share group are one record, which may be large.
            records += shard.share_offsets.forget_topics(self._share_groups.popleft(), self._topics)
        return Result(bool(self._found or self._groups or self._share_groups), records)


@dataclass(slots=True, eq=False)
class _Request:
    topics: frozenset[str]
    left: int
    """Partitions that still have offsets of the topics."""
    later: Later[None]


class DeletedTopics:
    """Removes topics' offsets from the shards of __consumer_offsets.

    Owned by GroupCoordinator; used on its thread. `led_elsewhere` returns whether another broker writes a partition.
    """

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        writer: PartitionWriter,
        clock: Clock,
        led_elsewhere: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self._runtime = runtime
        self._writer = writer
        self._clock = clock
        self._led_elsewhere = led_elsewhere
        self._timer = TimerHeap(clock)
        self._queued: dict[int, list[_Request]] = {}
        self._busy: set[int] = set()
        """Partitions with a sweep in progress, or waiting for a retry."""
        self._open: set[_Request] = set()

    def forget(self, topics: Iterable[str], partitions: Iterable[int]) -> Later[None]:
        """Remove the topics' offsets from partitions of __consumer_offsets.

        Done when that survives a power failure. A partition that cannot be written is tried again, for as long as it
        takes, or until another broker leads it: the sweep is its coordinator's then.
        """
        numbers = list(dict.fromkeys(partitions))
        request = _Request(frozenset(topics), len(numbers), Later())
        if not numbers or not request.topics:
            request.later.set(None)
            return request.later
        self._open.add(request)
        for number in numbers:
            self._queued.setdefault(number, []).append(request)
            self._begin(number)
        return request.later

    def abandon(self) -> None:
        """End all requests: __consumer_offsets is deleted, and all offsets with it."""
        self._queued.clear()
        requests, self._open = self._open, set()
        for request in requests:
            request.later.set(None)

    def close(self) -> None:
        """Stop all retries."""
        self._timer.close()
        self._queued.clear()

    def _begin(self, number: int) -> None:
        if number not in self._busy and number in self._queued:
            self._busy.add(number)
            self._clock.call_soon(lambda: self._sweep(number, RETRY_MS))

    def _sweep(self, number: int, pause_ms: int) -> None:
        requests = [each for each in self._queued.pop(number, ()) if not each.later.done]
        if not requests:
            self._busy.discard(number)
            return
        partition = TopicPartition(self._runtime.topic, number)
        sweep = _Sweep(frozenset().union(*(each.topics for each in requests)))

        def step() -> None:
            self._runtime.write(number, sweep.step).then(stepped)

        def stepped(done: Later[bool]) -> None:
            if isinstance(done.error, Exception):
                failed(done.error)
            elif done.result():
                self._clock.call_soon(step)
            else:
                self._clock.run_blocking(lambda: self._writer.sync(partition), synced, failed)

        def synced(_: None) -> None:
            for request in requests:
                request.left -= 1
                if not request.left:
                    self._open.discard(request)
                    request.later.set(None)
            self._busy.discard(number)
            self._begin(number)

        def failed(error: Exception) -> None:
            if code_of(error) in _MOVED and number not in self._runtime.states() and self._led_elsewhere(number):
                synced(None)
                return
            logger.info(
                "Offsets of deleted topics stay in %s; the coordinator retries in %d ms: %s", partition, pause_ms, error
            )
            self._queued[number] = requests + self._queued.get(number, [])
            longer = min(2 * pause_ms, LONGEST_RETRY_MS)
            self._timer.schedule(number, pause_ms, lambda: self._sweep(number, longer))

        try:
            step()
        except Exception as error:
            logger.exception("Offsets of deleted topics cannot be removed from %s", partition)
            failed(error)
