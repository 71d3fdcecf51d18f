"""Leader epochs rise after a possible loss of records (KIP-320).

A consumer asks with OffsetForLeaderEpoch, or with the last epoch in its fetches, whether the log still holds its
position. A log that lost unsynced records to a power failure and went on in the same epoch would say yes, and the
consumer would skip the new records in the place of the lost ones. So a partition whose log was not closed cleanly, or
is missing, is led in a new epoch. Apache Kafka gets there because a broker that dies loses its leaderships; a cluster
of one broker elects no leader while it is down.

A log that knows a newer epoch than the store is newer than the store, which was restored from a backup or made again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from kafkapy.controller.context import ControllerContext
from kafkapy.controller.controller_store import ControllerStore
from kafkapy.metadata.znodes import PartitionState
from kafkapy.slices import in_slices
from kafkapy.types import TopicPartition

logger = logging.getLogger("state.change.logger")


class LogAtStart(NamedTuple):
    """The state of a partition's log when this broker started."""

    intact: bool
    """The log was closed cleanly: no records are missing."""
    latest_epoch: int
    """The newest leader epoch of the log, -1 without any."""


NO_LOG = LogAtStart(False, -1)
LogsAtStart = Callable[[TopicPartition], LogAtStart]


def next_epoch(epoch: int, log: LogAtStart) -> int:
    """The leader epoch after a start.

    `epoch` is the one in the store, -1 for a partition that never had a leader.
    """
    if log.latest_epoch > epoch or (epoch >= 0 and not log.intact):
        return max(epoch, log.latest_epoch) + 1
    return epoch


async def raise_epochs(
    context: ControllerContext, store: ControllerStore, broker_id: int, logs_at_start: LogsAtStart
) -> None:
    """Raise epochs of this broker's partitions in the store and the context.

    Called within the first failover, before any broker hears of a leader.
    """
    raised: dict[TopicPartition, PartitionState] = {}
    made: dict[TopicPartition, PartitionState] = {}
    async for partition in in_slices(context.all_partitions()):
        replicas = context.replicas_of(partition)
        if broker_id not in replicas:
            continue
        state = context.leadership.get(partition)
        epoch = -1 if state is None else state.leader_epoch
        wanted = next_epoch(epoch, logs_at_start(partition))
        if wanted == epoch:
            continue
        if state is not None:
            raised[partition] = state._replace(leader_epoch=wanted, controller_epoch=context.epoch)
        elif replicas == (broker_id,):
            made[partition] = PartitionState(broker_id, wanted, (broker_id,), context.epoch)
    if made:
        context.leadership.update(await store.create_partition_states(made))
    if raised:
        # A partition that another broker changes at this moment gets a new epoch by that change.
        written, refused = await store.update_partition_states(raised)
        context.leadership.update(written)
        context.leadership.update(await store.partition_states(refused))
    if raised or made:
        logger.info(
            "The leader epochs of %d partitions rise: their logs were not closed cleanly", len(raised) + len(made)
        )
