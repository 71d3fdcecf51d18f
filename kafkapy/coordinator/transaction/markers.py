"""Writes the end markers of transactions to partitions that this broker leads.

The coordinator uses it for its own transactions, and the WriteTxnMarkers handler for those of others. Source:
kafka.server.KafkaApis.handleWriteTxnMarkersRequest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from kafkapy import errors
from kafkapy.coordinator.clock import Clock
from kafkapy.coordinator.result import Later
from kafkapy.coordinator.timer import TimerHeap
from kafkapy.coordinator.writer import PartitionWriter
from kafkapy.errors import ErrorCode, KafkaError, error_for
from kafkapy.metadata.topic_names import GROUP_METADATA_TOPIC
from kafkapy.records.control import build_end_transaction_marker
from kafkapy.types import TopicPartition

NO_EPOCH: Final = -1

_NOT_READY: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors of a group coordinator that cannot take a marker now.

Transaction coordinators know them by another name.
"""


class Marker(NamedTuple):
    """The outcome of a producer's transaction, as each partition gets it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool


class MarkerWriter(Protocol):
    """The target of markers: the logs of this broker, or other brokers."""

    def write(self, partition: TopicPartition, marker: Marker) -> Later[None]:
        """Write a marker; done when it is committed.

        NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT: to be tried again.
        INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED: refused.
        """


CompleteOffsets = Callable[[int, Marker], Later[None]]
"""Tells the group coordinator that a transaction has ended in a partition of __consumer_offsets."""


class _Written(NamedTuple):
    """A marker in a log: the offset after it, and the leader epoch of the append."""

    end_offset: int
    leader_epoch: int
    later: Later[None]


class LocalMarkerWriter:
    """Writes markers to partitions led here.

    KafkaServer makes it; used on the control loop's thread. `complete_offsets` writes those for __consumer_offsets, so
    that the offsets count from the marker on.
    """

    def __init__(
        self,
        writer: PartitionWriter,
        clock: Clock,
        complete_offsets: CompleteOffsets,
        *,
        timeout_ms: Callable[[], int],
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._complete_offsets = complete_offsets
        self._timeout_ms = timeout_ms
        self._timer = TimerHeap(clock)
        self._waiting: dict[TopicPartition, deque[_Written]] = {}
        writer.on_committed(self._committed)

    def close(self) -> None:
        """Drop all waiting markers."""
        self._timer.close()
        self._waiting.clear()

    def write(self, partition: TopicPartition, marker: Marker) -> Later[None]:
        """Write a marker; see MarkerWriter.

        UNKNOWN_SERVER_ERROR, as in Kafka, for a marker that is no producer's.
        """
        if marker.producer_id < 0 or marker.producer_epoch == NO_EPOCH:
            said = f"A marker needs a producer, not {marker.producer_id} with epoch {marker.producer_epoch}"
            return Later.failure(error_for(ErrorCode.UNKNOWN_SERVER_ERROR, said))
        if marker.producer_epoch < 0:
            return Later.failure(error_for(ErrorCode.INVALID_PRODUCER_EPOCH))
        if partition.topic == GROUP_METADATA_TOPIC:
            later: Later[None] = Later()
            self._complete_offsets(partition.partition, marker).then(lambda done: _pass_on(done, later))
            return later
        batch = build_end_transaction_marker(
            marker.producer_id,
            marker.producer_epoch,
            committed=marker.committed,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=self._clock.time_ms(),
        )
        later = Later()

        def appended(outcome: int | Exception) -> None:
            if isinstance(outcome, int):
                self._when_committed(partition, _Written(outcome, leader_epoch, later))
            elif isinstance(outcome, errors.FencedLeaderEpochError):
                later.fail(error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, outcome.message))
            elif isinstance(outcome, KafkaError):
                later.fail(outcome)
            else:
                later.fail(error_for(ErrorCode.KAFKA_STORAGE_ERROR, str(outcome)))

        try:
            self._writer.ensure_writable(partition)
        except KafkaError as error:
            return Later.failure(error)
        # The epoch ties the append and the wait together: the next leader may truncate the marker.
        leader_epoch = self._writer.leader_epoch(partition)
        if leader_epoch < 0:
            return Later.failure(error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        self._writer.append(partition, batch, leader_epoch, appended)
        return later

    def leadership_changed(self, partition: TopicPartition) -> None:
        """Fail the markers that wait for replicas of a leadership that has ended."""
        self._committed(partition)

    def _when_committed(self, partition: TopicPartition, written: _Written) -> None:
        later = written.later
        self._waiting.setdefault(partition, deque()).append(written)
        self._committed(partition)
        if not later.done:
            self._timer.schedule(later, self._timeout_ms(), lambda: later.fail(error_for(ErrorCode.REQUEST_TIMED_OUT)))

    def _committed(self, partition: TopicPartition) -> None:
        waiting = self._waiting.get(partition)
        if waiting is None:
            return
        while waiting:
            end_offset, leader_epoch, later = waiting[0]
            high_watermark = self._writer.high_watermark(partition, leader_epoch)
            if 0 <= high_watermark < end_offset and not later.done:
                return
            waiting.popleft()
            self._timer.cancel(later)
            if high_watermark < 0:
                later.fail(error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            else:
                later.set(None)
        if self._waiting.get(partition) is waiting:
            del self._waiting[partition]


def _pass_on(done: Later[None], later: Later[None]) -> None:
    error = done.error
    if error is None:
        later.set(None)
    elif isinstance(error, KafkaError) and error.code in _NOT_READY:
        later.fail(error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message))
    else:
        later.fail(error)
