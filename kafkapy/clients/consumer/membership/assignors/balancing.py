"""What both sticky assignors do: balanced first, and as few partitions as possible change their owner second.

Where all members subscribe to the same topics the balance is exact and found in one pass (`constrained`); else
partitions are moved until no move makes it better (`general`). Source: AbstractStickyAssignor.
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
    """What a member had, and in which generation (-1: it does not say)."""

    partitions: tuple[TopicPartition, ...]
    generation_id: int = NO_GENERATION_ID


class Owned:
    """Who has what, after claims of several members to one partition are settled by their generations."""

    def __init__(self, topics: Topics, members: Mapping[str, MemberData]) -> None:
        self.partitions: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
        """Only partitions of topics that are assigned now."""
        self.disputed: set[TopicPartition] = set()
        """Claimed by several members of one generation: nobody keeps them."""
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
    topics: Topics, subscriptions: Mapping[str, Subscription], members: Mapping[str, MemberData]
) -> tuple[Assigned, dict[TopicPartition, str] | None]:
    """The assignment, and its partitions that come from another member with the member they go to.

    The second is None where only a comparison with what members own can tell.
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
    return GeneralAssignment(topics, racks, subscriptions, owned.partitions, owners).build(), None
