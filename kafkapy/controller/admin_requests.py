"""Requests of clients to the controller about topics, and their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

NO_VALUE = -1
"""As a partition count or a replication factor: the broker's default."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create: either numbers, or the replicas of each partition."""

    name: str
    num_partitions: int = NO_VALUE
    replication_factor: int = NO_VALUE
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Partition to replicas, the preferred leader first. Empty: the controller places them."""
    configs: Mapping[str, str | None] = field(default_factory=dict)


class CreatedTopic(NamedTuple):
    """A topic that was created.

    With `validate_only` it would have been created, and its id is ZERO_UUID.
    """

    name: str
    topic_id: UUID
    num_partitions: int
    replication_factor: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """A topic that grows to `count` partitions in all.

    `assignments` are the replicas of the added ones.
    """

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None
