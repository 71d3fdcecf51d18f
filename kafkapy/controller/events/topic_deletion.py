"""TopicDeletion: topics were marked for deletion. Source: processTopicDeletion."""

from __future__ import annotations

from typing import Final

from kafkapy.controller.controllership import Controllership
from kafkapy.metadata.znodes import DELETE_TOPICS

NAME: Final = "TopicDeletion"
PATH: Final = DELETE_TOPICS


async def run(controllership: Controllership) -> None:
    """Queue the newly marked topics, or unmark them while deletion is disabled."""
    marked = await controllership.store.topics_to_delete()
    unknown = marked - controllership.context.assignments.keys()
    await controllership.store.unmark_for_deletion(unknown)
    fresh = marked - unknown - controllership.context.topics_to_delete
    if not controllership.config.get_bool("delete.topic.enable"):
        await controllership.store.unmark_for_deletion(fresh)
    elif fresh:
        await controllership.deletion.enqueue(fresh)
