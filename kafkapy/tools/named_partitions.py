"""Topics and partitions that a command line names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kafkapy.errors import KafkaError
from kafkapy.tools.missing_names import topics_by_name
from kafkapy.tools.options import parse_partitions
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.clients.admin.kafka_admin_client import KafkaAdminClient

__all__ = ["known_topics", "no_partition", "partitions_of"]


def partitions_of(admin: KafkaAdminClient, places: Iterable[str]) -> list[TopicPartition]:
    """The partitions of TOPIC and TOPIC:0,3-5, in order. KafkaError."""
    wanted: list[tuple[str, list[int] | None]] = [parse_partitions(place) for place in places]
    found = {topic["name"]: topic for topic in known_topics(admin, dict.fromkeys(name for name, _ in wanted))}
    partitions: dict[TopicPartition, None] = {}
    for name, numbers in wanted:
        known = sorted(each["partition_index"] for each in found[name]["partitions"])
        for number in known if numbers is None else numbers:
            if number not in known:
                raise KafkaError(no_partition(name, number, len(known)))
            partitions[TopicPartition(name, number)] = None
    return list(partitions)


def no_partition(topic: str, number: int, count: int) -> str:
    """A sentence about a missing partition."""
    there = "only partition 0" if count == 1 else f"partitions 0 to {count - 1}"
    return f"Topic {topic} has no partition {number}: it has {there}."


def known_topics(admin: KafkaAdminClient, names: Iterable[str]) -> list[Mapping[str, Any]]:
    """The named topics in order, by default all that are not internal.

    KafkaError for an unknown topic.
    """
    wanted = list(names)
    if wanted:
        found = topics_by_name(admin, wanted)
        return [found[name] for name in wanted]
    every = sorted(admin.describe_topics(), key=lambda topic: str(topic["name"]))
    return [topic for topic in every if not topic["is_internal"]]
