"""Opens and deletes the logs of partitions, on worker threads.

A batch is one piece of work, so that ten thousand partitions do not block the control loop. Source: kafka.cluster.
Partition.createLogIfNotExists, kafka.server.ReplicaManager.stopPartitions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kafkapy import errors
from kafkapy.log.shortage import is_shortage
from kafkapy.metadata.broker_requests import LeaderAndIsrPartition
from kafkapy.replica.partition import Partition
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy._speedups.log.partition_log import PartitionLog
    from kafkapy._speedups.log.replication import Replication
    from kafkapy.config.topic import LogConfig
    from kafkapy.log.log_manager import LogManager

SHORTAGE_S: Final = 30.0
SHORTAGE_PAUSE_S: Final = 0.2
"""Seconds that a new partition waits for descriptors or memory, and the pause between attempts."""


class LogOpener:
    """Opens logs as the controller wants them to lead or follow.

    Made by ReplicaManager; its methods run on a worker thread.
    """

    def __init__(
        self,
        broker_id: int,
        log_manager: LogManager,
        log_config: Callable[[str], LogConfig],
        replication: Replication,
    ) -> None:
        self._broker_id = broker_id
        self._replication = replication
        self._log_manager = log_manager
        self._log_config = log_config

    def open_batch(
        self, batch: Sequence[tuple[Partition, LeaderAndIsrPartition]]
    ) -> list[PartitionLog | BaseException]:
        """Open the log of each partition and begin to lead or follow.

        The result holds an error in place of a log that failed.
        """
        outcomes: list[PartitionLog | BaseException] = []
        for partition, each in batch:
            try:
                outcomes.append(self._take_up_in_time(partition, each))
            except Exception as error:
                outcomes.append(error)
        return outcomes

    def delete_batch(self, batch: Sequence[TopicPartition]) -> list[BaseException | None]:
        """Delete the logs of a batch."""
        outcomes: list[BaseException | None] = []
        for topic_partition in batch:
            try:
                self._log_manager.delete(topic_partition)
                outcomes.append(None)
            except (OSError, errors.KafkaError) as error:
                outcomes.append(error)
        return outcomes

    def _take_up_in_time(self, partition: Partition, each: LeaderAndIsrPartition) -> PartitionLog:
        """Open the partition's log; wait while descriptors or memory are short.

        A partition that is refused now stays refused, so it waits. OSError after SHORTAGE_S.
        """
        deadline = time.monotonic() + SHORTAGE_S
        while True:
            try:
                return self._take_up(partition, each)
            except OSError as error:
                if not is_shortage(error) or time.monotonic() > deadline:
                    raise
            time.sleep(SHORTAGE_PAUSE_S)

    def _take_up(self, partition: Partition, each: LeaderAndIsrPartition) -> PartitionLog:
        log = partition.log
        if log is None:
            log = self._open_log(partition, each.is_new)
            log.use_replication(self._replication)
        state = each.state
        if state.leader == self._broker_id:
            log.become_leader(
                self._broker_id, state.leader_epoch, state.isr, each.replicas, partition_epoch=state.version
            )
        else:
            log.become_follower(state.leader, state.leader_epoch, partition_epoch=state.version)
        return log

    def _open_log(self, partition: Partition, is_new: bool) -> PartitionLog:
        topic_partition = partition.topic_partition
        manager = self._log_manager
        config = self._log_config(topic_partition.topic)
        loaded = manager.get(topic_partition)
        if loaded is not None:
            # Loaded at the start, perhaps before the topic's settings were read.
            if loaded.config is not config:
                loaded.update_config(config)
        elif not is_new and manager.offline_dirs:
            # The log may be on the failed directory: an empty one elsewhere would hide that its records are gone.
            raise errors.KafkaStorageError(f"The log of {topic_partition} may be on a log directory that is offline")
        try:
            return manager.get_or_create(topic_partition, partition.topic_id, config)
        except errors.InconsistentTopicIdError:
            if not is_new:
                raise
        manager.set_aside(topic_partition)
        return manager.get_or_create(topic_partition, partition.topic_id, config)
