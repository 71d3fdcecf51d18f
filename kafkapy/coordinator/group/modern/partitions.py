"""Partitions by topic id, and their lists in messages and records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeVar
from uuid import UUID

from kafkapy.coordinator.group.assignors.api import Partitions
from kafkapy.metadata.cache import MetadataSnapshot

NO_PARTITIONS: Final[Partitions] = {}

E = TypeVar("E")


class _TopicPartitions(Protocol):
    topic_id: UUID
    partitions: list[int]


def partitions_of(listed: Iterable[_TopicPartitions]) -> dict[UUID, frozenset[int]]:
    """Partitions by topic id, from the lists of a message."""
    return {each.topic_id: frozenset(each.partitions) for each in listed} if listed else {}


def listed_as(entry: Callable[..., E], partitions: Partitions) -> list[E]:
    """The partitions as a message's list of entries with `topic_id` and `partitions`."""
    if not partitions:
        return []
    return [entry(topic_id=topic_id, partitions=sorted(numbers)) for topic_id, numbers in partitions.items()]


def described_as(entry: Callable[..., E], partitions: Partitions, snapshot: MetadataSnapshot) -> list[E]:
    """The partitions as a description's list of entries with `topic_id`, `topic_name` and `partitions`.

    Deleted topics are left out.
    """
    return [
        entry(topic_id=topic_id, topic_name=snapshot.topic_names[topic_id], partitions=sorted(numbers))
        for topic_id, numbers in partitions.items()
        if topic_id in snapshot.topic_names
    ]
