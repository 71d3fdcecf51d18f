"""The failover: a broker was elected as the controller.

Source: onControllerFailover.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from kafkapy.controller import notifications
from kafkapy.controller.controllership import Controllership
from kafkapy.controller.events import preferred_election
from kafkapy.metadata.features import initial_levels
from kafkapy.metadata.znodes import ISR_CHANGES, LOG_DIR_EVENTS

logger = logging.getLogger("kafka.controller.KafkaController")

LAYOUT = 2
"""The newest layout of /feature."""


async def run(controllership: Controllership, raise_epochs: Callable[[], Awaitable[None]]) -> None:
    """Read the store, tell all brokers, elect leaders, and resume pending work.

    `raise_epochs` is called once the leaderships are known, before a broker hears of them.
    """
    context = controllership.context
    store = controllership.store.store
    version = controllership.metadata_version
    if controllership.config.metadata_store == "zookeeper":
        await controllership.store.set_up_features(version.has_features, version.feature_znode_version, {})
    else:
        await controllership.store.set_up_features(True, LAYOUT, initial_levels(version))
    for path in (LOG_DIR_EVENTS, ISR_CHANGES):
        await notifications.remove(store, path, await store.children(path))
    context.live_brokers = await controllership.registered_brokers()
    topics = await controllership.store.topics()
    await controllership.configs.load_topics(topics)
    await controllership.adopt_topics(topics)
    context.leadership = await controllership.store.partition_states(list(context.all_partitions()))
    await raise_epochs()
    for broker in context.live_brokers.values():
        controllership.channels.add_broker(broker)
    marked = await controllership.store.topics_to_delete()
    await _initialize_deletions(controllership, marked)
    await controllership.batch.add_update_metadata(context.live_brokers)
    await controllership.batch.send()
    await controllership.replicas.startup()
    await controllership.partitions.initialize()
    await controllership.partitions.elect_where_needed()
    await controllership.bring_new_replicas_online()
    written = await controllership.reassignments.adopt_written()
    await controllership.reassignments.resume(lambda partition, _: partition not in written)
    await controllership.deletion.resume()
    await preferred_election.run(controllership)
    logger.info("The controller with epoch %d is ready", context.epoch)


async def _initialize_deletions(controllership: Controllership, marked: set[str]) -> None:
    known = marked & controllership.context.assignments.keys()
    if not controllership.config.get_bool("delete.topic.enable"):
        if marked:
            logger.info(
                "The controller cancels the deletion of topics %s: delete.topic.enable is false",
                ", ".join(sorted(marked)),
            )
        await controllership.store.unmark_for_deletion(marked)
        known = set()
    else:
        await controllership.store.unmark_for_deletion(marked - known)
    controllership.deletion.initialize(known)
