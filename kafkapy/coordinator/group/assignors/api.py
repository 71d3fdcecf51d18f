"""What a server-side assignor is given and gives (KIP-848).

Source: the package org.apache.kafka.coordinator.group.api.assignor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol
from uuid import UUID

__all__ = [
    "AssignorError",
    "GroupAssignor",
    "GroupSpec",
    "MemberSubscription",
    "Partitions",
    "SubscribedTopics",
]

Partitions = Mapping[UUID, frozenset[int]]
"""Topic id to the numbers of a member's partitions. A topic without any is left out."""


class AssignorError(Exception):
    """An assignor found no assignment. Source: PartitionAssignorException."""


class MemberSubscription(NamedTuple):
    """What an assignor knows of a member. Immutable."""

    instance_id: str | None
    """Its group.instance.id, if it is a static member."""
    rack_id: str | None
    topic_ids: frozenset[UUID]
    """The topics it subscribes to, by name or by pattern. Only topics that exist."""
    assigned: Partitions
    """Its target assignment so far. May hold topics that it does not subscribe to any more, or that are gone."""


class GroupSpec(NamedTuple):
    """The group that is to be assigned. Immutable."""

    members: Mapping[str, MemberSubscription]
    """Member id to member."""
    homogeneous: bool
    """Whether all members subscribe to the same topics."""


class SubscribedTopics(Protocol):
    """The topics that members subscribe to, as the group last saw them. Source: SubscribedTopicDescriber."""

    def num_partitions(self, topic_id: UUID) -> int:
        """How many partitions the topic has; -1 when it is not known."""

    def racks(self, topic_id: UUID, partition: int) -> frozenset[str]:
        """The racks of the partition's replicas; empty when they are not known."""


class GroupAssignor(Protocol):
    """Made once for each broker, called on the control loop: `assign` blocks all groups while it computes."""

    @property
    def name(self) -> str:
        """What members ask for by group.remote.assignor, and the broker lists in group.consumer.assignors."""

    def assign(self, spec: GroupSpec, topics: SubscribedTopics) -> Mapping[str, Partitions]:
        """Member id to partitions, each partition at most once; a member that is left out gets none.

        AssignorError when there is no assignment; the group then keeps the one it has.
        """
