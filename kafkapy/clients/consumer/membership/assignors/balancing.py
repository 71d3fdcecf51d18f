"""The common part of both sticky assignors.

Balance comes first, few changes of owner second. If all members subscribe to the same topics, one pass finds the exact
balance (`constrained`); otherwise partitions move until no move improves the balance (`general`). Source:
AbstractStickyAssignor.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from kafkapy.clients.consumer.membership.assignors.api import Assigned, Topics
from kafkapy.clients.consumer.membership.assignors.constrained import ConstrainedAssignment
from kafkapy.clients.consumer.membership.assignors.general import GeneralAssignment
from kafkapy.clients.consumer.membership.assignors.racks import Racks
from kafkapy.clients.consumer.membership.protocol import NO_GENERATION_ID, Subscription
from kafkapy.types import TopicPartition

__all__ = ["MemberData", "Owned", "assign_sticky"]

logger = logging.getLogger("kafkapy.clients.consumer.membership")


class MemberData(NamedTuple):
    """A member's previous partitions and their generation (-1: unknown)."""

    partitions: tuple[TopicPartition, ...]
    generation_id: int = NO_GENERATION_ID


class Owned:
    """The owners of partitions; the newest generation wins between several claims."""

    def __init__(self, topics: Topics, members: Mapping[str, MemberData]) -> None:
        self.partitions: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
        """Only partitions of currently assigned topics."""
        self.disputed: set[TopicPartition] = set()
        """Partitions that several members of one generation claim: no member keeps them."""
        owners: dict[TopicPartition, str] = {}
        for member_id, member in members.items():
            for partition in member.partitions:
                if partition.topic not in topics or partition.partition >= len(topics[partition.topic]):
                    continue
                other = owners.get(partition)
                if other is None:
                    owners[partition] = member_id
                    self.partitions[member_id].append(partition)
                    continue
                theirs = members[other].generation_id
                logger.warning(
                    "%s is claimed by member %s of generation %d and member %s of generation %d",
                    partition, member_id, member.generation_id, other, theirs,
                )  # fmt: skip
                if member.generation_id == theirs:
                    self.disputed.add(partition)
                elif member.generation_id > theirs:
                    self.partitions[other].remove(partition)
                    owners[partition] = member_id
                    self.partitions[member_id].append(partition)
                    self.disputed.discard(partition)
        for partition in self.disputed:
            self.partitions[owners[partition]].remove(partition)


def assign_sticky(
    topics: Topics,
    subscriptions: Mapping[str, Subscription],
    members: Mapping[str, MemberData],
    *,
    cooperative: bool = False,
) -> tuple[Assigned, dict[TopicPartition, str] | None]:
    """The assignment, and its transferred partitions with their new members.

    The second is None if only a comparison with the members' owned partitions can find them.
    """
    racks = Racks(topics, subscriptions)
    owned = Owned(topics, members)
    if len({frozenset(subscription.topics) for subscription in subscriptions.values()}) <= 1:
        constrained = ConstrainedAssignment(topics, racks, owned.partitions, owned.disputed)
        return constrained.build(), constrained.transferred
    newest = max((member.generation_id for member in members.values()), default=NO_GENERATION_ID)
    previous: dict[TopicPartition, tuple[int, str]] = {}
    for member_id, member in members.items():
        if member.generation_id < newest:
            for partition in member.partitions:
                if partition not in previous or previous[partition][0] < member.generation_id:
                    previous[partition] = member.generation_id, member_id
    owners = {partition: member_id for partition, (_, member_id) in previous.items()}
    general = GeneralAssignment(topics, racks, subscriptions, owned.partitions, owners, keeps_racks=cooperative)
    return general.build(), None
