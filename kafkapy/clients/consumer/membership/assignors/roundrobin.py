"""The assignor ``roundrobin``: all partitions of all topics, distributed in turn.

Source: org.apache.kafka.clients.consumer.RoundRobinAssignor.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

from kafkapy.clients.consumer.membership.assignors.api import (
    Assigned,
    PartitionAssignor,
    Topics,
    members_in_order,
    partitions_of,
)
from kafkapy.clients.consumer.membership.protocol import Subscription

__all__ = ["RoundRobinAssignor"]


class RoundRobinAssignor(PartitionAssignor):
    """The round-robin assignor; stateless."""

    name = "roundrobin"

    def assign_partitions(self, topics: Topics, subscriptions: Mapping[str, Subscription]) -> Assigned:
        """See PartitionAssignor."""
        assigned: Assigned = {member_id: [] for member_id in subscriptions}
        subscribed = {member_id: frozenset(each.topics) for member_id, each in subscriptions.items()}
        members = cycle(members_in_order(subscriptions))
        for partition in partitions_of(topics, sorted(topics)):
            # `topics` contains only subscribed topics.
            member_id = next(each for each in members if partition.topic in subscribed[each])
            assigned[member_id].append(partition)
        return assigned
