"""The answers of DescribeLogDirs and DescribeProducers, read from disk and memory.

Sources: KIP-113, KIP-827, KIP-664.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkapy.errors import ErrorCode
from kafkapy.log.log_dir import UNKNOWN_BYTES, LogDir
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy._speedups.log.partition_log import PartitionLog


class LogDirPartition(NamedTuple):
    """A partition in a log directory: its segments' size in bytes, and its lag.

    The lag of a log counts the offsets between its end and the high watermark. The lag of a future log counts those
    between its end and the end of the current log, -1 when that is not known.
    """

    partition: TopicPartition
    size: int
    offset_lag: int
    is_future: bool


class HostedLog(NamedTuple):
    """A log to describe.

    `current` is the log that a future log replaces, None when that log is offline.
    """

    partition: TopicPartition
    log: PartitionLog
    is_future: bool = False
    current: PartitionLog | None = None

    @property
    def offset_lag(self) -> int:
        """The lag as LogDirPartition defines it.

        Source: ReplicaManager.getLogEndOffsetLag.
        """
        _, end, high_watermark, _, _ = self.log.offsets()
        if not self.is_future:
            return max(high_watermark - end, 0)
        return -1 if self.current is None else self.current.log_end_offset - end


class LogDirDescription(NamedTuple):
    """A log directory.

    `total_bytes` and `usable_bytes` describe its volume, -1 when the volume cannot be read.
    """

    path: str
    error: ErrorCode
    partitions: Sequence[LogDirPartition]
    total_bytes: int
    usable_bytes: int


class ActiveProducer(NamedTuple):
    """A producer that a partition remembers.

    Times in ms since the epoch; a missing number is -1.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


def describe_directories(
    live: Iterable[LogDir], failed: Iterable[LogDir], hosted: Mapping[str, Sequence[HostedLog]]
) -> list[LogDirDescription]:
    """Describe the volumes and the logs. Blocking: for a worker thread."""
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
