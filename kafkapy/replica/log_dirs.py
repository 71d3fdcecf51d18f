"""What DescribeLogDirs and DescribeProducers answer, and the look at the disk behind it (KIP-113, KIP-827, KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkapy.errors import ErrorCode
from kafkapy.log.log_dir import UNKNOWN_BYTES, LogDir
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy._speedups.log.partition_log import PartitionLog


class LogDirPartition(NamedTuple):
    """A partition in a log directory: bytes of its segments, and how far its log end is behind the high watermark; that
    of a future log behind the log end, -1 when that is not known."""

    partition: TopicPartition
    size: int
    offset_lag: int
    is_future: bool


class HostedLog(NamedTuple):
    """A log to describe. `current` is the log that a future log is to replace, None when that is offline."""

    partition: TopicPartition
    log: PartitionLog
    is_future: bool = False
    current: PartitionLog | None = None

    @property
    def offset_lag(self) -> int:
        """See LogDirPartition (ReplicaManager.getLogEndOffsetLag)."""
        _, end, high_watermark, _, _ = self.log.offsets()
        if not self.is_future:
            return max(high_watermark - end, 0)
        return -1 if self.current is None else self.current.log_end_offset - end


class LogDirDescription(NamedTuple):
    """A log directory. `total_bytes` and `usable_bytes` are of its volume, -1 when that cannot be asked."""

    path: str
    error: ErrorCode
    partitions: Sequence[LogDirPartition]
    total_bytes: int
    usable_bytes: int


class ActiveProducer(NamedTuple):
    """A producer that a partition remembers; times in ms since the epoch, -1 for what it does not have."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


def describe_directories(
    live: Iterable[LogDir], failed: Iterable[LogDir], hosted: Mapping[str, Sequence[HostedLog]]
) -> list[LogDirDescription]:
    """Look at the volumes and the logs. Blocking; for a worker thread."""
    found = []
    for log_dir in live:
        total = usable = UNKNOWN_BYTES
        error = ErrorCode.NONE
        path = str(log_dir.path)
        try:
            total, usable = log_dir.volume()
        except OSError:
            error = ErrorCode.KAFKA_STORAGE_ERROR
        partitions = [
            LogDirPartition(each.partition, each.log.size, each.offset_lag, each.is_future)
            for each in hosted.get(path, ())
        ]
        found.append(LogDirDescription(path, error, partitions, total, usable))
    for log_dir in failed:
        path = str(log_dir.path)
        found.append(LogDirDescription(path, ErrorCode.KAFKA_STORAGE_ERROR, (), UNKNOWN_BYTES, UNKNOWN_BYTES))
    return found
