"""A policy for new topics: a topic has at most so many partitions."""

from __future__ import annotations

from kafkapy.policies import PolicyViolationError, RequestedTopic

MOST_KEY = "template.most.partitions"


class MostPartitions:
    """Refuses topics with more partitions than template.most.partitions."""

    def __init__(self, most: int) -> None:
        self._most = most

    def validate(self, topic: RequestedTopic) -> None:
        """PolicyViolationError for a topic that is too large."""
        partitions = len(topic.assignments or ()) if topic.partitions is None else topic.partitions
        if partitions > self._most:
            raise PolicyViolationError(f"A topic has at most {self._most} partitions here, not {partitions}.")

    def close(self) -> None:
        """Nothing to close."""
