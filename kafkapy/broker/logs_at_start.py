"""What the start of the broker found in its log directories, as the controller and the operator want to know it."""

from __future__ import annotations

from kafkapy.controller.leader_epochs import NO_LOG, LogAtStart
from kafkapy.log.log_manager import LogManager
from kafkapy.types import TopicPartition


def log_at_start(log_manager: LogManager, partition: TopicPartition) -> LogAtStart:
    """What was loaded of a partition's log; NO_LOG for one that is not there, or on a failed directory."""
    log = log_manager.get(partition)
    if log is None:
        return NO_LOG
    epochs = log.leader_epochs()
    return LogAtStart(partition not in log_manager.table.not_closed, epochs[-1][0] if epochs else -1)
