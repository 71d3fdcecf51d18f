"""The partitions of this broker in its log directories: DescribeLogDirs, AlterReplicaLogDirs.

Sources: KIP-113, KIP-827, KIP-1066, ReplicaManager.alterReplicaLogDirs; KIP-664 for what DescribeProducers shows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkapy import errors
from kafkapy.errors import ErrorCode
from kafkapy.log.dir_scan import MAX_NAME, future_name
from kafkapy.log.log_dir import UNKNOWN_BYTES, LogDir
from kafkapy.replica.alter_log_dirs import ReplicaAlterLogDirsManager
from kafkapy.replica.partition import Partition
from kafkapy.slices import in_slices
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy._speedups.log.partition_log import PartitionLog
    from kafkapy.log.log_manager import LogManager
    from kafkapy.log.log_table import LogTable

logger = logging.getLogger("kafka.server.ReplicaManager")

LOGGED_AT_MOST: Final = 100
"""Most partitions of one request whose failed moves are logged."""


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

    `total_bytes` and `usable_bytes` describe its volume, -1 when the volume cannot be read. A cordoned directory gets
    no new partitions.
    """

    path: str
    error: ErrorCode
    partitions: Sequence[LogDirPartition]
    total_bytes: int
    usable_bytes: int
    is_cordoned: bool


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


class ReplicaLogDirs:
    """Describes the log directories, and begins moves between them.

    Owned by ReplicaManager, used on the control loop. `partitions` are the hosted ones; `find` raises for others.
    """

    def __init__(
        self,
        log_manager: LogManager,
        partitions: Mapping[TopicPartition, Partition],
        find: Callable[[TopicPartition], Partition],
        moves: ReplicaAlterLogDirsManager,
    ) -> None:
        self._futures = log_manager.futures
        self._log_table = log_manager.table
        self._partitions = partitions
        self._find = find
        self._moves = moves
        self._altering = asyncio.Lock()

    async def describe(self) -> list[LogDirDescription]:
        """Every log directory with its partitions and space.

        A failed directory has an error and no partitions.
        """
        hosted: dict[str, list[HostedLog]] = {}
        # Taken first: a future log that takes its log's place meanwhile is then seen at least once.
        futures = self._futures.all()
        for topic_partition, partition in self._partitions.items():
            if partition.log is not None and not partition.offline:
                directory = self._log_table.dir_of(topic_partition)
                hosted.setdefault(str(directory), []).append(HostedLog(topic_partition, partition.log))
                if topic_partition in futures and futures[topic_partition].place.log_dir.path == directory:
                    del futures[topic_partition]
        for topic_partition, future in futures.items():
            replaced = self._partitions.get(topic_partition)
            current = None if replaced is None or replaced.offline else replaced.log
            each = HostedLog(topic_partition, future.log, True, current)
            hosted.setdefault(str(future.place.log_dir.path), []).append(each)
        return await asyncio.to_thread(_describe, self._log_table, hosted)

    async def alter(self, wanted: Mapping[TopicPartition, str]) -> dict[TopicPartition, ErrorCode]:
        """Begin to move replicas to other log directories; one outcome for each.

        LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR (a directory is offline), INVALID_REPLICA_ASSIGNMENT (it is cordoned),
        INVALID_TOPIC_EXCEPTION (its name is too long for a future log). A partition that this broker does not host is
        remembered, and created in that directory if it arrives: REPLICA_NOT_AVAILABLE, or UNKNOWN_TOPIC_OR_PARTITION.
        """
        outcomes: dict[TopicPartition, ErrorCode] = {}
        async with self._altering:
            logged = 0
            async for topic_partition, directory in in_slices(wanted.items()):
                try:
                    await self._alter(topic_partition, Path(directory), directory)
                    outcomes[topic_partition] = ErrorCode.NONE
                except errors.NotLeaderOrFollowerError:
                    outcomes[topic_partition] = ErrorCode.REPLICA_NOT_AVAILABLE
                except errors.KafkaError as error:
                    if logged < LOGGED_AT_MOST:
                        logger.warning("Partition %s cannot move to another log directory: %s", topic_partition, error)
                    logged += 1
                    outcomes[topic_partition] = errors.code_of(error)
        return outcomes

    async def _alter(self, topic_partition: TopicPartition, directory: Path, written: str) -> None:
        table, futures = self._log_table, self._futures
        if len(future_name(topic_partition).encode()) > MAX_NAME:
            raise errors.InvalidTopicError("The topic name is too long.")
        if str(directory) != written:
            raise errors.LogDirNotFoundError(f"Log dir {written} is not found in the config.")
        table.check_dir(directory)
        if directory in table.cordoned and table.dir_of(topic_partition) != directory:
            raise errors.InvalidReplicaAssignmentError(f"Log directory {directory} is cordoned")
        hosted = self._partitions.get(topic_partition)
        if hosted is not None and not hosted.offline:
            future = futures.get(topic_partition)
            if future is not None and future.place.log_dir.path != directory:
                await asyncio.to_thread(futures.remove, topic_partition)
        if hosted is not None and hosted.offline:
            raise errors.KafkaStorageError(f"Partition {topic_partition} is offline")
        await asyncio.to_thread(table.prefer, topic_partition, directory)
        self._find(topic_partition).local_log(leader_only=False)
        await asyncio.to_thread(futures.create, topic_partition, directory)
        if futures.is_moving(topic_partition):
            self._moves.add(topic_partition)


def _describe(table: LogTable, hosted: Mapping[str, Sequence[HostedLog]]) -> list[LogDirDescription]:
    """Describe the volumes and the logs, failed directories last. Blocking: for a worker thread."""
    dirs = sorted(table.dirs, key=lambda each: each.failure is not None)
    return [_described(each, hosted.get(str(each.path), ()), each.path in table.cordoned) for each in dirs]


def _described(log_dir: LogDir, logs: Sequence[HostedLog], cordoned: bool) -> LogDirDescription:
    path = str(log_dir.path)
    total = usable = UNKNOWN_BYTES
    error = ErrorCode.KAFKA_STORAGE_ERROR
    if log_dir.failure is not None:
        return LogDirDescription(path, error, (), total, usable, cordoned)
    with suppress(OSError):
        total, usable = log_dir.volume()
        error = ErrorCode.NONE
    partitions = [LogDirPartition(each.partition, each.log.size, each.offset_lag, each.is_future) for each in logs]
    return LogDirDescription(path, error, partitions, total, usable, cordoned)
