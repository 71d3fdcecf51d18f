"""The assignor ``cooperative-sticky``: ``sticky`` for cooperative rebalances (KIP-429).

A moving partition is unassigned in the first rebalance, because its owner must give it up; the following rebalance
assigns it. The user data is the generation of the member's last assignment (int32), for leaders with a subscription
before version 2. Source: org.apache.kafka.clients.consumer.CooperativeStickyAssignor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafkapy.clients.consumer.membership.assignors.api import Assigned, PartitionAssignor, RebalanceProtocol, Topics
from kafkapy.clients.consumer.membership.assignors.balancing import MemberData, assign_sticky
from kafkapy.clients.consumer.membership.protocol import (
    NO_GENERATION_ID,
    Assignment,
    ConsumerGroupMetadata,
    Subscription,
)
from kafkapy.types import TopicPartition

__all__ = ["CooperativeStickyAssignor"]

GENERATION_SIZE = 4


class CooperativeStickyAssignor(PartitionAssignor):
    """Remembers the generation of this member's last assignment."""

    name = "cooperative-sticky"

    def __init__(self) -> None:
        self._generation_id = NO_GENERATION_ID

    def supported_protocols(self) -> Sequence[RebalanceProtocol]:
        """See ConsumerPartitionAssignor. Eager serves the migration from eager assignors."""
        return (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """See ConsumerPartitionAssignor."""
        return self._generation_id.to_bytes(GENERATION_SIZE, "big", signed=True)

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        """See ConsumerPartitionAssignor."""
        self._generation_id = metadata.generation_id

    def assign_partitions(self, topics: Topics, subscriptions: Mapping[str, Subscription]) -> Assigned:
        """See PartitionAssignor."""
        members = {member_id: _member_data(subscription) for member_id, subscription in subscriptions.items()}
        assigned, transferred = assign_sticky(topics, subscriptions, members, cooperative=True)
        if transferred is None:
            transferred = _transferred(subscriptions, assigned)
        for partition, member_id in transferred.items():
            assigned[member_id].remove(partition)
        return assigned


def _member_data(subscription: Subscription) -> MemberData:
    generation_id, data = subscription.generation_id, subscription.user_data or b""
    if generation_id == NO_GENERATION_ID and len(data) >= GENERATION_SIZE:
        generation_id = int.from_bytes(data[:GENERATION_SIZE], "big", signed=True)
    return MemberData(subscription.owned_partitions, max(generation_id, NO_GENERATION_ID))


def _transferred(subscriptions: Mapping[str, Subscription], assigned: Assigned) -> dict[TopicPartition, str]:
    """Partitions that a member gets while another member still owns them."""
    given_up: set[TopicPartition] = set()
    added: dict[TopicPartition, str] = {}
    for member_id, partitions in assigned.items():
        owned = frozenset(subscriptions[member_id].owned_partitions)
        given_up |= owned.difference(partitions)
        added.update(dict.fromkeys((each for each in partitions if each not in owned), member_id))
    return {partition: member_id for partition, member_id in added.items() if partition in given_up}
