"""The logs at the broker's start, for the controller and the operator."""

from __future__ import annotations

from kafkapy.controller.leader_epochs import NO_LOG, LogAtStart
from kafkapy.log.log_manager import LogManager
from kafkapy.types import TopicPartition


def log_at_start(log_manager: LogManager, partition: TopicPartition) -> LogAtStart:
    """The loaded log of a partition, as the controller wants to know it.

    NO_LOG for a partition that is not there, or on a failed directory.
    """
    log = log_manager.get(partition)
    if log is None:
        return NO_LOG
    epochs = log.leader_epochs()
    return LogAtStart(partition not in log_manager.table.not_closed, epochs[-1][0] if epochs else -1)
