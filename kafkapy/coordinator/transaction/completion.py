"""The completion of decided transactions: all markers, then the last record.

Source: kafka.coordinator.transaction.TransactionMarkerChannelManager and
TransactionMarkerRequestCompletionHandler.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from kafkapy import errors
from kafkapy.coordinator.result import Later, Result
from kafkapy.coordinator.transaction.markers import Marker, MarkerWriter
from kafkapy.coordinator.transaction.metadata import TransactionMetadata
from kafkapy.coordinator.transaction.shard import TransactionShard
from kafkapy.coordinator.transaction.state import TransactionState
from kafkapy.errors import ErrorCode, code_of
from kafkapy.types import TopicPartition

logger = logging.getLogger("kafka.coordinator.transaction.TransactionMarkerChannelManager")

RETRY_PAUSE_MS: Final = 100

_REFUSED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Another coordinator has taken over: this one must not end the transaction any more."""
_SKIPPED: Final = frozenset({ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
"""The partition cannot hold a marker, now or later."""
_PERHAPS_DELETED: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER})

Run = Callable[[int, Callable[[TransactionShard, int], Result[Any]]], Later[Any]]


class _Completion:
    """One transaction whose markers are being written."""

    __slots__ = ("failures", "in_flight", "marker", "metadata", "remaining", "shard", "unwritten")

    def __init__(self, shard: TransactionShard, metadata: TransactionMetadata) -> None:
        self.shard = shard
        self.metadata = metadata
        self.marker = Marker(
            metadata.producer_id,
            metadata.producer_epoch,
            shard.coordinator_epoch,
            metadata.state is TransactionState.PREPARE_COMMIT,
        )
        self.remaining = set(metadata.partitions)
        self.in_flight: dict[TopicPartition, Later[None]] = {}
        self.failures = 0
        self.unwritten = False
        """All markers are written, and the last record is not."""

    @property
    def name(self) -> str:
        """The transactional id and its producer, for people."""
        return f"{self.metadata.transactional_id} ({self.marker.producer_id}, epoch {self.marker.producer_epoch})"


class Completions:
    """The prepared transactions.

    Owned by the TransactionCoordinator; used on the control loop's thread. `run` runs a write operation on a
    partition's shard. `is_gone` returns whether a partition that did not take a marker was deleted, so that no
    transaction waits for it.
    """

    def __init__(self, run: Run, markers: MarkerWriter, is_gone: Callable[[TopicPartition], bool]) -> None:
        self._run = run
        self._markers = markers
        self._is_gone = is_gone
        self._jobs: dict[tuple[int, str], _Completion] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def waiting_markers(self) -> int:
        """Markers for partitions whose leader is unknown, or not ready yet."""
        return sum(len(job.remaining - job.in_flight.keys()) for job in list(self._jobs.values()))

    @property
    def waiting_ends(self) -> int:
        """Transactions whose last record could not be written yet."""
        return sum(job.unwritten for job in list(self._jobs.values()))

    def start(self, shard: TransactionShard, metadata: TransactionMetadata) -> None:
        """Write the markers of a transaction whose outcome is committed."""
        key = (shard.partition, metadata.transactional_id)
        job = self._jobs.get(key)
        if job is not None and job.shard is shard and job.metadata == metadata:
            return
        job = _Completion(shard, metadata)
        self._jobs[key] = job
        if job.remaining:
            self._send(job)
        else:
            self._complete(job)

    def _is_current(self, job: _Completion) -> bool:
        key = (job.shard.partition, job.metadata.transactional_id)
        if self._jobs.get(key) is not job:
            return False
        if job.shard.unloaded:
            # The next coordinator of the partition finds the transaction prepared.
            del self._jobs[key]
            return False
        return True

    def forget(self, shard: TransactionShard) -> None:
        """Drop the shard's transactions: another broker coordinates its partition now."""
        for key in [key for key, job in self._jobs.items() if job.shard is shard]:
            # Markers that wait for their turn must not follow those of the next coordinator.
            for later in list(self._jobs.pop(key).in_flight.values()):
                later.fail(errors.NotCoordinatorError())

    def _send(self, job: _Completion) -> None:
        for partition in sorted(job.remaining - job.in_flight.keys()):
            later = job.in_flight[partition] = self._markers.write(partition, job.marker)
            later.then(lambda done, partition=partition: self._answered(job, partition, done))  # type: ignore[misc]

    def _answered(self, job: _Completion, partition: TopicPartition, done: Later[None]) -> None:
        job.in_flight.pop(partition, None)
        if not self._is_current(job):
            return
        if done.error is not None:
            code = code_of(done.error)
            if code in _REFUSED:
                logger.info("Partition %s refuses the marker of transaction %s: %s", partition, job.name, code.name)
                del self._jobs[(job.shard.partition, job.metadata.transactional_id)]
                return
            gone = code in _PERHAPS_DELETED and self._is_gone(partition)
            if code not in _SKIPPED and not gone:
                self._send_later(job, partition, code)
                return
        job.remaining.discard(partition)
        if not job.remaining:
            self._complete(job)

    def _send_later(self, job: _Completion, partition: TopicPartition, code: ErrorCode) -> None:
        job.failures += 1
        if job.failures & (job.failures - 1) == 0:  # the 1st, 2nd, 4th, 8th ... time: a partition may be away for long
            logger.warning(
                "Partition %s cannot take the marker of transaction %s yet: %s", partition, job.name, code.name
            )

        def again(shard: TransactionShard, now_ms: int) -> Result[None]:
            del shard, now_ms
            if self._is_current(job):
                self._send(job)
            return Result(None)

        job.shard.timer.schedule(("markers", job.metadata.transactional_id), RETRY_PAUSE_MS, again)

    def _complete(self, job: _Completion) -> None:
        metadata = job.metadata

        def complete(shard: TransactionShard, now_ms: int) -> Result[None]:
            return shard.complete(metadata, now_ms) if shard is job.shard else Result(None)

        def ended(done: Later[Any]) -> None:
            if done.error is None:
                self._jobs.pop((job.shard.partition, metadata.transactional_id), None)
            elif self._is_current(job):
                job.unwritten = True
                job.shard.timer.schedule(("complete", metadata.transactional_id), RETRY_PAUSE_MS, again)

        def again(shard: TransactionShard, now_ms: int) -> Result[None]:
            if not self._is_current(job):
                # The record was committed late, and the next transaction is being ended already.
                return Result(None)
            del self._jobs[(job.shard.partition, metadata.transactional_id)]
            return complete(shard, now_ms)

        self._run(job.shard.partition, complete).then(ended)
