"""TopicChange: another tool has written topics to the store.

Source: processTopicChange.
"""

from __future__ import annotations

import logging
from typing import Final

from kafkapy.controller.controllership import Controllership
from kafkapy.metadata.znodes import TOPICS

logger = logging.getLogger("kafka.controller.KafkaController")

NAME: Final = "TopicChange"
PATH: Final = TOPICS


async def run(controllership: Controllership) -> None:
    """Compare the topics in the store with the known ones."""
    now = set(await controllership.store.topics())
    for topic in controllership.context.assignments.keys() - now:
        logger.info("Topic %s is gone from the metadata store; brokers keep its logs", topic)
        await controllership.deletion.vanished(topic)
    new = now - controllership.context.assignments.keys()
    if new:
        await controllership.adopt_topics(sorted(new))
        await controllership.topics_created(
            [each for each in sorted(new) if each in controllership.context.assignments]
        )
