"""The rules of topic names, and the names of Kafka's own topics.

Source: org.apache.kafka.common.internals.Topic.
"""

from __future__ import annotations

import re
from typing import Final

from kafkapy import errors
from kafkapy.types import MAX_TOPIC_NAME_LENGTH

GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
"""KRaft's own log; this broker has no such topic."""
SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def is_internal(topic: str) -> bool:
    """Whether the topic is one of the broker's own."""
    return topic in INTERNAL_TOPICS


def invalid_reason(topic: str) -> str | None:
    """The reason why a topic name is not allowed, or None."""
    if not topic:
        return "the empty string is not allowed"
    if topic in (".", ".."):
        return f"'{topic}' is not allowed"
    if len(topic) > MAX_TOPIC_NAME_LENGTH:
        return f"the length of '{topic}' is longer than the max allowed length {MAX_TOPIC_NAME_LENGTH}"
    if _LEGAL.fullmatch(topic) is None:
        return f"'{topic}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def validate_topic_name(topic: str) -> None:
    """Check a topic name; INVALID_TOPIC_EXCEPTION when it is not allowed."""
    reason = invalid_reason(topic)
    if reason is not None:
        raise errors.InvalidTopicError(f"Topic name is invalid: {reason}")


class TopicNames:
    """Topic names by the name of their metrics.

    '.' and '_' are one character in a metric name.
    """

    def __init__(self) -> None:
        self._by_metric_name: dict[str, set[str]] = {}

    def add(self, topic: str) -> None:
        """Add a name; nothing happens when it is there."""
        self._by_metric_name.setdefault(_metric_name(topic), set()).add(topic)

    def discard(self, topic: str) -> None:
        """Remove a name; nothing happens when it is not there."""
        metric_name = _metric_name(topic)
        names = self._by_metric_name.get(metric_name)
        if names is not None:
            names.discard(topic)
            if not names:
                del self._by_metric_name[metric_name]

    def colliding_with(self, topic: str) -> list[str]:
        """The other topics whose metrics would have the same name, sorted."""
        return sorted(self._by_metric_name.get(_metric_name(topic), set()) - {topic})


def _metric_name(topic: str) -> str:
    return topic.replace(".", "_")
