"""One partition as this broker hosts it: log, leader and leader epoch.

Source: kafka.cluster.Partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kafkapy import errors
from kafkapy.metadata.broker_requests import LeaderAndIsrPartition
from kafkapy.metadata.znodes import PartitionState
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy._speedups.log.partition_log import PartitionLog


class PendingIsr(NamedTuple):
    """An ISR that the controller has been asked for. Compared by identity."""

    isr: tuple[int, ...]
    joining: int | None
    """The new member; None when members leave."""


class Partition:
    """This broker's part in one partition.

    Owned by ReplicaManager; changed on the control loop. The data plane does not look here: it asks the PartitionLog,
    which hears of every change of leadership first.
    """

    __slots__ = ("assignment", "broker_id", "log", "offline", "pending", "topic_id", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, topic_id: UUID, broker_id: int) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.broker_id = broker_id
        self.log: PartitionLog | None = None
        self.assignment: LeaderAndIsrPartition | None = None
        self.pending: PendingIsr | None = None
        """The change of the ISR that is on its way to the controller."""
        self.offline = False
        """The log directory has failed; the flag stays until the broker restarts."""

    @property
    def leader_epoch(self) -> int:
        """The epoch that the controller sent last, -1 before the first."""
        return -1 if self.assignment is None else self.assignment.state.leader_epoch

    @property
    def state(self) -> PartitionState | None:
        """Leader, epochs and committed ISR; None before the first LeaderAndIsr."""
        return None if self.assignment is None else self.assignment.state

    def set_isr(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        """Note a change of the ISR that the controller has made for this leader."""
        if self.assignment is not None:
            state = self.assignment.state._replace(isr=isr, version=partition_epoch, recovering=False)
            self.assignment = self.assignment._replace(state=state)

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition."""
        return not self.offline and self.assignment is not None and self.assignment.state.leader == self.broker_id

    def local_log(self, current_leader_epoch: int = -1, leader_only: bool = True) -> PartitionLog:
        """The log, for a request that names a leader epoch.

        `current_leader_epoch` -1: the request names none.

        KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH; NOT_LEADER_OR_FOLLOWER when this broker does not
        lead and `leader_only`. The epoch is checked first, so that a client with old metadata learns that it is old.
        """
        if self.offline:
            raise errors.KafkaStorageError(f"The log directory of partition {self.topic_partition} is offline")
        if current_leader_epoch != -1 and current_leader_epoch != self.leader_epoch:
            older = current_leader_epoch < self.leader_epoch
            code = errors.ErrorCode.FENCED_LEADER_EPOCH if older else errors.ErrorCode.UNKNOWN_LEADER_EPOCH
            raise errors.error_for(code)
        if self.log is None or (leader_only and not self.is_leader):
            raise errors.NotLeaderOrFollowerError(f"This broker does not lead partition {self.topic_partition}")
        return self.log
