"""A coordinator's access to the log of one partition.

Coordinators know only `PartitionWriter` of a log; `PartitionLogWriter` is the real one, and
kafkapy.testing.coordinator.MemoryWriter keeps its log in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kafkapy import errors
from kafkapy.records.batches import BatchView, decode_records, iter_batches
from kafkapy.records.control import read_control_batch
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy._speedups.log.appender import LogAppender
    from kafkapy._speedups.log.partition_log import PartitionLog

logger = logging.getLogger("kafka.coordinator.PartitionLogWriter")

READ_TO_LOG_END: Final = 2
DEFAULT_LOAD_BYTES: Final = 5 * 1024 * 1024

CommittedListener = Callable[[TopicPartition], None]
Appended = Callable[["int | Exception"], None]
"""Called with the offset after the last record, or with the error."""


class LoadedBatch(NamedTuple):
    """One batch: keys and values, or a transaction's end marker."""

    records: list[tuple[bytes, bytes | None]]
    producer_id: int = -1
    producer_epoch: int = -1
    is_transactional: bool = False
    committed: bool | None = None
    """Whether the transaction of a marker was committed; None for a batch of records."""
    offsets: Sequence[int] = ()
    """The offsets of the records."""


class LoadedChunk(NamedTuple):
    """Some batches in their order, and the offset of the next read."""

    batches: list[LoadedBatch]
    next_offset: int
    at_end: bool


class PartitionWriter(Protocol):
    """The log behind a coordinator.

    Called on the coordinator's thread, `read` on any.
    """

    def ensure_writable(self, partition: TopicPartition) -> int:
        """The size in bytes of the largest batch that the partition takes.

        NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR or NOT_ENOUGH_REPLICAS when an append would be refused now.
        """

    def append(self, partition: TopicPartition, batches: bytes, leader_epoch: int, done: Appended) -> None:
        """Append whole batches, and call `done` on the coordinator's thread.

        `done` may run before this returns. It gets the offset after the last record, or an error of ensure_writable,
        MESSAGE_TOO_LARGE, or FENCED_LEADER_EPOCH. The batches are committed when `high_watermark` reaches that offset.

        The disk may be slow, so the caller waits for each append to a partition where their order counts.
        """

    def together(self, work: Callable[[], None]) -> None:
        """Call `work`, then run the appends that it requested together.

        On a quick disk they have ended when this returns.
        """

    def leader_epoch(self, partition: TopicPartition) -> int:
        """The epoch in which this broker leads the partition.

        -1 when it does not lead it.
        """

    def high_watermark(self, partition: TopicPartition, leader_epoch: int) -> int:
        """The offset below which all records are committed.

        The value of the leader of that epoch: -1 when this broker does not lead the partition in it, as the offsets of
        its records may hold others by now.
        """

    def end_offset(self, partition: TopicPartition) -> int:
        """The offset after the last record, committed or not.

        -1 for a partition that is not hosted. on_committed's listeners are called for it as for an append.
        """

    def read(self, partition: TopicPartition, offset: int) -> LoadedChunk:
        """Batches from an offset to the end of the log. May block.

        Offset -1: the log's start. NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """

    def sync(self, partition: TopicPartition) -> None:
        """Make appended records survive a power failure. May block; any thread.

        NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
        """

    def lendable(self, partition: TopicPartition) -> PartitionLog | None:
        """The log for appends of the data plane beside those of the coordinator.

        None when this broker does not lead it, or the data plane cannot append to it.
        """

    def on_committed(self, listener: CommittedListener) -> None:
        """Call the listener when an append may have become committed.

        The high watermark may have reached an end that `append` gave and that `high_watermark` did not cover yet.
        """


class HostsPartitions(Protocol):
    """The ReplicaManager as PartitionLogWriter needs it."""

    def log(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The log of a hosted partition; None when it is not hosted or offline."""


class PartitionLogWriter:
    """Writes to the logs that this broker leads, with acks=all.

    Owned by KafkaServer, shared by all coordinators. `high_watermark_moved` is for the data plane's HIGH_WATERMARK
    events. They are requested only while an append waits: with one replica in sync, an append moves the high watermark
    itself.
    """

    def __init__(
        self,
        replicas: HostsPartitions,
        load_bytes: Mapping[str, int] = MappingProxyType({}),
        appender: LogAppender | None = None,
    ) -> None:
        """Create the writer.

        `load_bytes` are the bytes of one read when a partition is loaded, by topic.
        `appender` runs the appends on threads of the log's directory; without one they run at once.
        """
        self._replicas = replicas
        self._load_bytes = load_bytes
        self._appender = appender
        self._listeners: list[CommittedListener] = []
        self._waiting: dict[int, TopicPartition] = {}

    def _log(self, partition: TopicPartition) -> PartitionLog:
        log = self._replicas.log(partition)
        if log is None or not log.is_leader:
            raise errors.NotLeaderOrFollowerError(f"This broker does not lead {partition}")
        return log

    def ensure_writable(self, partition: TopicPartition) -> int:
        """See PartitionWriter."""
        log = self._log(partition)
        if log.offline_errno:
            raise errors.KafkaStorageError(f"The log of {partition} is offline")
        wanted = log.min_in_sync_replicas
        if wanted > 1 and log.in_sync_replicas < wanted:
            raise errors.NotEnoughReplicasError(f"{partition} has fewer than {wanted} replicas in sync")
        return int(log.config.max_message_bytes)

    def append(self, partition: TopicPartition, batches: bytes, leader_epoch: int, done: Appended) -> None:
        """See PartitionWriter."""

        def ended(outcome: int | Exception) -> None:
            if isinstance(outcome, int):
                self._watch(partition, log, outcome)
            done(outcome)

        try:
            log = self._log(partition)
            if self._appender is not None and self._appender.append(log, batches, leader_epoch, ended):
                return
            _, last_offset, _ = log.append_as_leader(batches, required_acks=-1, leader_epoch=leader_epoch)
        except (errors.KafkaError, OSError) as error:
            done(error)
        else:
            ended(last_offset + 1)

    def close(self) -> None:
        """Release the appender, and with it the event queue.

        No append may be in progress.
        """
        self._appender = None

    def together(self, work: Callable[[], None]) -> None:
        """See PartitionWriter."""
        appender = self._appender
        if appender is None or not appender.hold():
            work()
            return
        try:
            work()
        finally:
            self._report(appender.settle())

    def appended(self, _handle: int, _argument: int, _text: bytes = b"") -> None:
        """Handle the data plane's event that appends have ended."""
        appender = self._appender
        if appender is not None:
            self.together(lambda: self._report(appender.take()))

    def _report(self, failures: list[Exception]) -> None:
        for error in failures:
            logger.error("A callback of a completed append failed", exc_info=error)

    def _watch(self, partition: TopicPartition, log: PartitionLog, end_offset: int) -> None:
        if log.high_watermark < end_offset:
            # The event is asked for before the caller looks at the high watermark, so none is missed in between.
            log.announce_high_watermark = True
            self._waiting[log.id] = partition

    def leader_epoch(self, partition: TopicPartition) -> int:
        """See PartitionWriter."""
        log = self._replicas.log(partition)
        return -1 if log is None else _led_epoch(log)

    def high_watermark(self, partition: TopicPartition, leader_epoch: int) -> int:
        """See PartitionWriter."""
        log = self._replicas.log(partition)
        if log is None:
            return -1
        # Read first: when the epoch holds afterwards, the value is of that epoch.
        high_watermark: int = log.high_watermark
        return high_watermark if _led_epoch(log) == leader_epoch else -1

    def end_offset(self, partition: TopicPartition) -> int:
        """See PartitionWriter."""
        log = self._replicas.log(partition)
        if log is None:
            return -1
        end = log.log_end_offset
        self._watch(partition, log, end)
        return end

    def read(self, partition: TopicPartition, offset: int) -> LoadedChunk:
        """See PartitionWriter. Runs on worker threads."""
        log = self._log(partition)
        start = max(offset, log.log_start_offset)
        end = log.log_end_offset
        if start >= end:
            return LoadedChunk([], start, at_end=True)
        load_bytes = self._load_bytes.get(partition.topic, DEFAULT_LOAD_BYTES)
        try:
            data, *_ = log.read(start, load_bytes, isolation=READ_TO_LOG_END, leader_only=True)
        except OSError as error:
            raise errors.KafkaStorageError(f"The log of {partition} cannot be read: {error}") from error
        loaded: list[LoadedBatch] = []
        next_offset = start
        for batch in iter_batches(data, check_crc=True):
            if batch.next_offset <= start:
                continue
            next_offset = batch.next_offset
            found = loaded_batch(batch, start)
            if found is not None:
                loaded.append(found)
        return LoadedChunk(loaded, next_offset, at_end=next_offset >= end or next_offset == start)

    def sync(self, partition: TopicPartition) -> None:
        """See PartitionWriter."""
        log = self._log(partition)
        try:
            log.flush()
        except OSError as error:
            raise errors.KafkaStorageError(f"The log of {partition} cannot be synced: {error}") from error

    def lendable(self, partition: TopicPartition) -> PartitionLog | None:
        """See PartitionWriter."""
        log = self._replicas.log(partition)
        return log if log is not None and log.is_leader and log.in_sync_replicas == 1 else None

    def on_committed(self, listener: CommittedListener) -> None:
        """See PartitionWriter."""
        self._listeners.append(listener)

    def high_watermark_moved(self, log_id: int, high_watermark: int, _text: bytes = b"") -> None:
        """Handle the data plane's event that a log's high watermark has moved."""
        partition = self._waiting.get(log_id)
        if partition is None:
            return
        log = self._replicas.log(partition)
        # The data plane may have appended since the event.
        if log is None or max(high_watermark, log.high_watermark) >= log.log_end_offset:
            del self._waiting[log_id]
            if log is not None:
                log.announce_high_watermark = False
        self.together(lambda: self._tell(partition))

    def _tell(self, partition: TopicPartition) -> None:
        for listener in self._listeners:
            listener(partition)


def loaded_batch(batch: BatchView, start: int) -> LoadedBatch | None:
    """The records of a batch from an offset on, or a marker, else None."""
    if batch.is_control:
        marker = read_control_batch(batch)
        if marker is None:
            return None
        return LoadedBatch([], batch.producer_id, batch.producer_epoch, True, marker.committed)
    kept = [record for record in decode_records(batch) if record.offset >= start]
    records = [(record.key or b"", record.value) for record in kept]
    producer = batch.producer_id, batch.producer_epoch, batch.is_transactional
    return LoadedBatch(records, *producer, offsets=[record.offset for record in kept])


def _led_epoch(log: PartitionLog) -> int:
    """The epoch in which this broker leads, -1 when it does not."""
    # A change of leadership between the two reads is seen by the third.
    epoch: int = log.leader_epoch
    return epoch if log.is_leader and log.leader_epoch == epoch else -1
