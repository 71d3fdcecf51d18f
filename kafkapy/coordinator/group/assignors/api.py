"""The interface of a server-side assignor: its input and its result (KIP-848).

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
"""Topic id to the numbers of a member's partitions.

A topic without any is left out.
"""


class AssignorError(Exception):
    """An assignor found no assignment. Source: PartitionAssignorException."""


class MemberSubscription(NamedTuple):
    """A member as an assignor sees it. Immutable."""

    instance_id: str | None
    """The group.instance.id of a static member."""
    rack_id: str | None
    topic_ids: frozenset[UUID]
    """The topics that the member subscribes to, by name or by pattern.

    Only topics that exist.
    """
    assigned: Partitions
    """The member's present target assignment.

    It may hold topics that the member no longer subscribes to, or that are deleted.
    """


class GroupSpec(NamedTuple):
    """A group to assign. Immutable."""

    members: Mapping[str, MemberSubscription]
    """Member id to member."""
    homogeneous: bool
    """Whether all members subscribe to the same topics."""
    assignable: Partitions | None = None
    """The partitions that may be assigned; None for all partitions of all topics.

    A share group assigns a partition once its state was initialized.
    """


class SubscribedTopics(Protocol):
    """The topics that members subscribe to, as the group last saw them.

    Source: SubscribedTopicDescriber.
    """

    def num_partitions(self, topic_id: UUID) -> int:
        """The number of partitions of the topic; -1 for an unknown topic."""

    def racks(self, topic_id: UUID, partition: int) -> frozenset[str]:
        """The racks of the partition's replicas; empty when they are not known."""


class GroupAssignor(Protocol):
    """An assignor; each broker makes one.

    The broker calls `assign` on the control loop, and it blocks all groups while it computes.
    """

    @property
    def name(self) -> str:
        """The assignor's name in group.remote.assignor, group.consumer.assignors and group.share.assignors."""

    def assign(self, spec: GroupSpec, topics: SubscribedTopics) -> Mapping[str, Partitions]:
        """Member id to partitions, each at most once, or several times for share groups.

        A member that is left out gets none.

        AssignorError when there is no assignment; the group then keeps the one it has.
        """
