"""LogDirEventNotification: log directories of brokers have failed.

Source: processLogDirEventNotification.
"""

from __future__ import annotations

from typing import Final

from kafkapy.controller import notifications
from kafkapy.controller.context import ReplicaStatus
from kafkapy.controller.controllership import Controllership
from kafkapy.metadata.znodes import LOG_DIR_EVENTS, decode_log_dir_event

NAME: Final = "LogDirEventNotification"
PATH: Final = LOG_DIR_EVENTS


async def run(controllership: Controllership) -> None:
    """Send the brokers their LeaderAndIsr again.

    Their answers say which partitions are on the failed directory.
    """
    names, values = await notifications.read(controllership.store.store, PATH, decode_log_dir_event)
    brokers = set(values) & controllership.context.live_brokers.keys()
    try:
        replicas = await controllership.context.replicas_on(brokers)
        await controllership.replicas.handle_state_changes(
            [r for r in replicas if not controllership.context.is_topic_being_deleted(r.partition.topic)],
            ReplicaStatus.ONLINE,
        )
    finally:
        await notifications.remove(controllership.store.store, PATH, names)
