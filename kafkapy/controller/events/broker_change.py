"""BrokerChange: brokers have registered, or their registrations are gone.

Source: processBrokerChange.
"""

from __future__ import annotations

import logging
from typing import Final

from kafkapy.controller.context import ReplicaStatus
from kafkapy.controller.controllership import Controllership
from kafkapy.metadata.znodes import BROKER_IDS, broker_path
from kafkapy.slices import in_slices

logger = logging.getLogger("kafka.controller.KafkaController")

NAME: Final = "BrokerChange"
PATH: Final = BROKER_IDS


async def run(controllership: Controllership) -> None:
    """Compare the registered brokers with the known ones."""
    context = controllership.context
    now = await controllership.registered_brokers()
    before = dict(context.live_brokers)
    bounced = {each for each in before.keys() & now.keys() if before[each].epoch != now[each].epoch}
    gone = (before.keys() - now.keys()) | bounced
    new = (now.keys() - before.keys()) | bounced
    controllership.watches.forget([broker_path(broker_id) for broker_id in gone - now.keys()])
    for broker_id in sorted(gone):
        logger.info("Broker %d is gone", broker_id)
        await controllership.channels.remove_broker(broker_id)
        del context.live_brokers[broker_id]
    if gone:
        for broker_id in gone:
            context.offline_dir_partitions.pop(broker_id, None)
            context.shutting_down_brokers.discard(broker_id)
        await controllership.replicas_offline(await context.replicas_on(gone))
    for broker_id in sorted(new):
        logger.info("Broker %d came up", broker_id)
        context.live_brokers[broker_id] = now[broker_id]
        controllership.channels.add_broker(now[broker_id])
    if new:
        await _brokers_started(controllership, new)


async def _brokers_started(controllership: Controllership, brokers: set[int]) -> None:
    context = controllership.context
    await controllership.batch.add_update_metadata(context.live_brokers.keys() - brokers)
    await controllership.batch.send()
    await controllership.batch.add_update_metadata(brokers, context.leadership)
    await controllership.batch.send()
    replicas = await context.replicas_on(brokers)
    kept = [r async for r in in_slices(replicas) if not context.is_topic_being_deleted(r.partition.topic)]
    await controllership.replicas.handle_state_changes(kept, ReplicaStatus.ONLINE)
    await controllership.partitions.elect_where_needed()
    await controllership.bring_new_replicas_online()
    await controllership.reassignments.resume(lambda _, assignment: not brokers.isdisjoint(assignment.target))
    if context.topics_to_delete:
        await controllership.deletion.retry({r.partition.topic async for r in in_slices(replicas)})
