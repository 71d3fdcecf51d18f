"""The assignor ``whole-topics``: every topic goes to one consumer with all its partitions, topics in turn."""

from __future__ import annotations

from collections.abc import Mapping

from kafkapy.clients.consumer.membership.assignors.api import Assigned, PartitionAssignor, Topics, members_in_order
from kafkapy.clients.consumer.membership.protocol import Subscription
from kafkapy.types import TopicPartition


class WholeTopicsAssignor(PartitionAssignor):
    """Has no state. Called on the loop of the consumer that leads its group."""

    name = "whole-topics"

    def assign_partitions(self, topics: Topics, subscriptions: Mapping[str, Subscription]) -> Assigned:
        """Each topic to the subscriber with the fewest topics so far."""
        assigned: Assigned = {member_id: [] for member_id in subscriptions}
        counts = dict.fromkeys(members_in_order(subscriptions), 0)
        for topic, partitions in topics.items():
            member_id = min((each for each in counts if topic in subscriptions[each].topics), key=counts.__getitem__)
            assigned[member_id] += [TopicPartition(topic, number) for number in range(len(partitions))]
            counts[member_id] += 1
        return assigned
