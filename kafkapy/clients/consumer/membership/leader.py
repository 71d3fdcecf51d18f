"""The leader of a classic group assigns partitions and watches their topics.

Source: org.apache.kafka.clients.consumer.internals.ConsumerCoordinator.onLeaderElected, MetadataSnapshot.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kafkapy.clients.consumer.membership.assignors.api import ConsumerPartitionAssignor, RebalanceProtocol, topics_of
from kafkapy.clients.consumer.membership.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafkapy.clients.consumer.membership.protocol import Assignment, Subscription, decode_subscription
from kafkapy.errors import IllegalStateError
from kafkapy.protocol.messages.join_group import JoinGroupResponse

if TYPE_CHECKING:
    from kafkapy.clients.cluster import ClusterMetadata

__all__ = ["TopicsSnapshot", "assign", "subscriptions_of"]

logger = logging.getLogger("kafkapy.clients.consumer.membership")

TopicsSnapshot = Mapping[str, Sequence[frozenset[str]]]
"""The partitions of topics, with racks if the consumer has one: a change makes the leader rebalance."""


def snapshot(cluster: ClusterMetadata, topics: Iterable[str], with_racks: bool) -> TopicsSnapshot:
    """The current state of the topics."""
    found = topics_of(cluster, topics)
    return found if with_racks else {topic: [frozenset()] * len(racks) for topic, racks in found.items()}


def subscriptions_of(members: Iterable[JoinGroupResponse.Member]) -> dict[str, Subscription]:
    """{member id: subscription}. DecodeError."""
    return {member.member_id: decode_subscription(member.metadata, member.group_instance_id) for member in members}


def assign(
    assignor: ConsumerPartitionAssignor,
    protocol: RebalanceProtocol,
    cluster: ClusterMetadata,
    subscriptions: Mapping[str, Subscription],
) -> Mapping[str, Assignment]:
    """The assignment of a group.

    IllegalStateError when it reassigns partitions that members still own, in a cooperative group.
    """
    assignments = assignor.assign(cluster, subscriptions)
    # The built-in assignor knows generations, and which claims do not count.
    if protocol is RebalanceProtocol.COOPERATIVE and assignor.name != CooperativeStickyAssignor.name:
        _check_cooperation(subscriptions, assignments)
    subscribed = {topic for each in subscriptions.values() for topic in each.topics}
    assigned = {partition.topic for each in assignments.values() for partition in each.partitions}
    if subscribed - assigned:
        logger.warning("Topics %s are subscribed, but no member has them assigned", sorted(subscribed - assigned))
    return assignments


def _check_cooperation(subscriptions: Mapping[str, Subscription], assignments: Mapping[str, Assignment]) -> None:
    added, given_up = set(), set()
    for member_id, assignment in assignments.items():
        owned, assigned = {*subscriptions[member_id].owned_partitions}, {*assignment.partitions}
        added |= assigned - owned
        given_up |= owned - assigned
    if added & given_up:
        names = ", ".join(map(str, sorted(added & given_up)))
        raise IllegalStateError(f"The cooperative assignor reassigned partitions that members still own: {names}")
