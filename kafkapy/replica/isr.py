"""IsrManager: which followers of the partitions led here are in sync.

A follower outside the ISR that has caught up joins it, and a member that lags leaves it. The controller decides about
each change (AlterPartition); until its answer the partition's state is pending:

    state           committed ISR (acks=all may append)     maximal ISR (high watermark)
    Committed       isr                                     isr
    PendingExpand   isr before                              isr before, and the new member
    PendingShrink   isr before                              isr before

Source: kafka.cluster.Partition (maybeExpandIsr, maybeShrinkIsr, submitAlterPartition).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from kafkapy import errors
from kafkapy.errors import ErrorCode
from kafkapy.replica.alter_partition import AlterPartitionSender, IsrChange
from kafkapy.replica.partition import Partition, PendingIsr
from kafkapy.slices import in_slices

if TYPE_CHECKING:
    from kafkapy._speedups.log.partition_log import PartitionLog
    from kafkapy._speedups.log.replication import Replication
    from kafkapy.metadata.znodes import PartitionState

logger = logging.getLogger("kafka.cluster.Partition")

RETRY_S: Final = 0.05
"""Pause before a change is asked for again after an error that may pass."""

BACK_TO_COMMITTED: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""The controller has not applied the change, and the partition epoch is right."""
STAYS_PENDING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""The partition has another state than this broker knows: the next LeaderAndIsr brings it."""


class IsrManager:
    """The ISR changes of all partitions led here.

    Owned by KafkaServer, used on the control loop. The data plane's event FOLLOWER_CAUGHT_UP leads to
    `follower_caught_up`; a timer of half replica.lag.time.max.ms calls `shrink_all`.
    """

    def __init__(self, broker_id: int, replication: Replication, sender: AlterPartitionSender) -> None:
        self._broker_id = broker_id
        self._replication = replication
        self._sender = sender
        self._led: dict[int, Partition] = {}
        self._changes: set[asyncio.Task[None]] = set()
        self.expands = 0
        """Replicas' joins since the start (IsrExpandsPerSec)."""
        self.shrinks = 0
        """Removals of lagging replicas since the start (IsrShrinksPerSec)."""
        self.failed = 0
        """Changes that the controller refused since the start (FailedIsrUpdatesPerSec)."""

    async def close(self) -> None:
        """End all changes. The sender is closed by its owner."""
        for task in list(self._changes):
            task.cancel()
        await asyncio.gather(*self._changes, return_exceptions=True)
        self._led.clear()

    # --- what leads to a change ---------------------------------------------------------------------------------------

    def leadership_changed(self, partition: Partition, log: PartitionLog) -> None:
        """Take a new assignment over, and forget a change on its way.

        For each LeaderAndIsr, and when the log goes offline.
        """
        partition.pending = None
        assignment = partition.assignment
        if assignment is None or not partition.is_leader or len(assignment.replicas) < 2:
            self._led.pop(log.id, None)
            return
        self._led[log.id] = partition
        # Followers that caught up before this moment, in the new epoch, are announced again.
        state = assignment.state
        log.set_isr(state.version, state.isr, state.isr, leader_epoch=state.leader_epoch)

    def forget(self, partition: Partition, log: PartitionLog) -> None:
        """Look no more after a partition that is not hosted any longer."""
        partition.pending = None
        self._led.pop(log.id, None)

    def follower_caught_up(self, log_id: int, replica_id: int, _text: bytes = b"") -> None:
        """Handle an event: a follower outside the ISR has caught up."""
        partition = self._led.get(log_id)
        if partition is None or partition.pending is not None:
            return  # the end of the change has it announced again
        state, log = partition.state, partition.log
        if state is None or log is None or log.leader_epoch != state.leader_epoch or replica_id in state.isr:
            return
        if not self._replication.is_live(replica_id):
            self._committed(partition, state)
            return
        self._change(partition, (*state.isr, replica_id), joining=replica_id)

    async def shrink_all(self) -> None:
        """Have lagging members leave the ISRs (isr-expiration)."""
        async for partition in in_slices(list(self._led.values())):
            self.shrink(partition)

    def shrink(self, partition: Partition) -> None:
        """Have the lagging members of one partition leave its ISR."""
        state, log = partition.state, partition.log
        if state is None or log is None or partition.pending is not None or len(state.isr) < 2:
            return
        if log.leader_epoch != state.leader_epoch or log.offline_errno:
            return
        lagging = self.lagging(log, state.isr)
        if lagging:
            isr = tuple(replica for replica in state.isr if replica not in lagging)
            logger.info(
                "Partition %s: the leader asks to shrink the ISR from %s to %s; high watermark %d, log end %d",
                partition.topic_partition,
                list(state.isr),
                list(isr),
                log.high_watermark,
                log.log_end_offset,
            )
            self._change(partition, isr)

    def lagging(self, log: PartitionLog, isr: Collection[int]) -> set[int]:
        """The members not caught up for replica.lag.time.max.ms.

        A member at the log end never lags, however long ago it fetched (KAFKA-7152).
        """
        end, now_ms, lag_ms = log.log_end_offset, self._replication.now_ms(), self._replication.lag_time_ms
        followers = {replica: (at, caught_up_ms) for replica, at, _, caught_up_ms, _, _ in log.followers()}
        lagging = set()
        for replica in isr:
            at, caught_up_ms = followers.get(replica, (-1, -1))
            if replica != self._broker_id and at != end and (caught_up_ms < 0 or now_ms - caught_up_ms > lag_ms):
                lagging.add(replica)
        return lagging

    # --- a change -----------------------------------------------------------------------------------------------------

    def _change(self, partition: Partition, isr: tuple[int, ...], joining: int | None = None) -> None:
        state, log, assignment = partition.state, partition.log, partition.assignment
        assert state is not None and log is not None and assignment is not None
        maximal = state.isr if joining is None else isr
        if not log.set_isr(state.version, state.isr, maximal, leader_epoch=state.leader_epoch):
            return  # a new assignment is on its way from the log to the partition
        partition.pending = pending = PendingIsr(isr, joining)
        known = {replica: epoch for replica, _, _, _, epoch, _ in log.followers()}
        change = IsrChange(
            partition.topic_partition,
            partition.topic_id,
            self._broker_id,
            state.leader_epoch,
            state.version,
            isr,
            tuple(known.get(replica, -1) for replica in isr),
            state.controller_epoch,
        )
        task = asyncio.get_running_loop().create_task(self._ask(partition, pending, change))
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)

    async def _ask(self, partition: Partition, pending: PendingIsr, change: IsrChange) -> None:
        while partition.pending is pending:
            try:
                state = await self._sender.alter(change)
            except errors.KafkaError as error:
                if partition.pending is not pending:
                    return
                if self._failed(partition, pending, errors.code_of(error)):
                    return
                await asyncio.sleep(RETRY_S)
            else:
                self._answered(partition, pending, state)
                return

    def _failed(self, partition: Partition, pending: PendingIsr, code: ErrorCode) -> bool:
        """Whether that is the end of the change."""
        self.failed += 1
        current = partition.state
        if code in BACK_TO_COMMITTED and current is not None:
            logger.info(
                "Partition %s: the controller refuses the ISR %s with %s; it stays %s",
                partition.topic_partition,
                list(pending.isr),
                code.name,
                list(current.isr),
            )
            partition.pending = None
            self._committed(partition, current)
            return True
        if code in STAYS_PENDING:
            # The maximal ISR stays, so that the high watermark is safe whatever the controller has done.
            logger.info(
                "Partition %s: the controller refuses the ISR %s with %s; the leader waits for its new state",
                partition.topic_partition,
                list(pending.isr),
                code.name,
            )
            return True
        logger.warning(
            "Partition %s: the ISR %s was not set because of %s; the leader asks again",
            partition.topic_partition,
            list(pending.isr),
            code.name,
        )
        return False

    def _answered(self, partition: Partition, pending: PendingIsr, state: PartitionState) -> None:
        current = partition.state
        if partition.pending is not pending or current is None:
            return  # LeaderAndIsr was faster
        if state.leader_epoch != current.leader_epoch or state.version < current.version:
            self.failed += 1
            return
        partition.pending = None
        partition.set_isr(state.isr, state.version)
        if pending.joining is not None:
            self.expands += 1
        else:
            self.shrinks += 1
        logger.info(
            "Partition %s: the ISR is %s in partition epoch %d",
            partition.topic_partition,
            list(state.isr),
            state.version,
        )
        self._committed(partition, current._replace(isr=state.isr, version=state.version))

    @staticmethod
    def _committed(partition: Partition, state: PartitionState) -> None:
        if partition.log is not None:
            partition.log.set_isr(state.version, state.isr, state.isr, leader_epoch=state.leader_epoch)
