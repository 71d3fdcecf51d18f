"""DeleteRecords over replicas: the response waits for the live replicas.

Source: kafka.server.DelayedDeleteRecords, kafka.cluster.Partition.lowWatermarkIfLeader.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from kafkapy import errors
from kafkapy.replica.partition import Partition

if TYPE_CHECKING:
    from kafkapy._speedups.log.partition_log import PartitionLog
    from kafkapy._speedups.log.replication import Replication


class DeletedRecords(NamedTuple):
    """The outcome of a DeleteRecords on a leader."""

    offset: int
    """The offset asked for; the high watermark for the request -1."""
    low_watermark: int
    """The lowest log start offset of the live replicas; -1 while one of them is not known."""


class _Waiting(NamedTuple):
    partition: Partition
    log: PartitionLog
    offset: int
    reached: asyncio.Future[int]


class RecordDeletions:
    """Requests that wait for the low watermark of a partition.

    Owned by ReplicaManager, used on the control loop. The data plane announces followers' log starts only while a
    request waits.
    """

    def __init__(self, replication: Replication) -> None:
        self._replication = replication
        self._waiting: dict[int, list[_Waiting]] = {}

    def low_watermark(self, log: PartitionLog) -> int:
        """The lowest log start offset of the leader and its live followers.

        -1 while a follower has not fetched in this leader epoch.
        """
        lowest = log.log_start_offset
        for replica, _, start, _, _, _ in log.followers():
            if start < lowest and self._replication.is_live(replica):
                lowest = start
        return lowest

    async def reached(self, partition: Partition, log: PartitionLog, offset: int) -> int:
        """The low watermark, as soon as it is at least `offset`.

        NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR when this broker ceases to lead.
        """
        waiting = _Waiting(partition, log, offset, asyncio.get_running_loop().create_future())
        entries = self._waiting.setdefault(log.id, [])
        entries.append(waiting)
        log.announce_log_starts = True
        try:
            self._check(waiting)
            return await waiting.reached
        finally:
            entries.remove(waiting)
            if not entries:
                log.announce_log_starts = False
                del self._waiting[log.id]

    def log_start_moved(self, log_id: int, _replica: int, _text: bytes = b"") -> None:
        """Handle the data plane's event: a follower has another log start."""
        for waiting in self._waiting.get(log_id, ()):
            self._check(waiting)

    def check(self) -> None:
        """Look again at all requests, after a change of leadership or live brokers."""
        for entries in self._waiting.values():
            for waiting in entries:
                self._check(waiting)

    def _check(self, waiting: _Waiting) -> None:
        if waiting.reached.done():
            return
        partition, log = waiting.partition, waiting.log
        if partition.offline:
            waiting.reached.set_exception(errors.KafkaStorageError("The log directory is offline"))
        elif not partition.is_leader or not log.is_leader:
            waiting.reached.set_exception(errors.NotLeaderOrFollowerError("This broker does not lead any more"))
        else:
            low_watermark = self.low_watermark(log)
            if low_watermark >= waiting.offset:
                waiting.reached.set_result(low_watermark)
