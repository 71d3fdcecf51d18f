"""PartitionModifications: a topic's node has changed; a tool, or a broker, has added partitions.

Source: processPartitionModifications.
"""

from __future__ import annotations

import logging
from typing import Final

from kafkapy.controller.controllership import Controllership
from kafkapy.metadata.store import BadVersionError, NoNodeError
from kafkapy.types import TopicPartition

logger = logging.getLogger("kafka.controller.KafkaController")

NAME: Final = "PartitionModifications"


async def run(controllership: Controllership, topic: str) -> None:
    """Bring added partitions online, or undo them while the topic is being deleted."""
    context = controllership.context
    known = context.assignments.get(topic)
    found = (await controllership.store.topic_assignments([topic])).get(topic)
    if known is None or found is None:
        return
    assignment, stat = found
    added = {number: each for number, each in assignment.partitions.items() if number not in known}
    if not added:
        return
    if context.is_topic_being_deleted(topic):
        logger.warning("Topic %s gets no more partitions: it is being deleted", topic)
        try:
            await controllership.store.set_topic(topic, assignment._replace(partitions=known), stat.version)
        except (BadVersionError, NoNodeError):
            return  # the next change of the node causes the next event
        return
    logger.info("Topic %s has %d more partitions", topic, len(added))
    context.put_topic(topic, context.topic_ids[topic], assignment._replace(partitions={**known, **added}))
    await controllership.partitions_created([TopicPartition(topic, number) for number in sorted(added)])
