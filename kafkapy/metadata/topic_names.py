"""What a topic may be called, and which topics are Kafka's own. Source: org.apache.kafka.common.internals.Topic."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from kafkapy import errors
from kafkapy.types import MAX_TOPIC_NAME_LENGTH

GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def is_internal(topic: str) -> bool:
    """Whether the topic belongs to the broker itself."""
    return topic in INTERNAL_TOPICS


def invalid_reason(topic: str) -> str | None:
    """Why the name is not allowed, in words; None when it is."""
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
    """INVALID_TOPIC_EXCEPTION unless the name is allowed."""
    reason = invalid_reason(topic)
    if reason is not None:
        raise errors.InvalidTopicError(f"Topic name is invalid: {reason}")


def colliding_topics(topic: str, others: Iterable[str]) -> list[str]:
    """Those of the other topics whose metric names would be the same, because there '.' and '_' are one character."""
    if "." not in topic and "_" not in topic:
        return []
    folded = topic.replace(".", "_")
    return sorted(other for other in others if other != topic and other.replace(".", "_") == folded)
