"""What an assignor of the classic protocol is: the leader of a group runs it to share the partitions out.

Source: org.apache.kafka.clients.consumer.ConsumerPartitionAssignor; AbstractPartitionAssignor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, Protocol

from kafkapy.clients.consumer.membership.protocol import Assignment, ConsumerGroupMetadata, Subscription
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.clients.cluster import ClusterMetadata

__all__ = [
    "Assigned",
    "ConsumerPartitionAssignor",
    "PartitionAssignor",
    "RebalanceProtocol",
    "Topics",
    "members_in_order",
    "partitions_of",
    "topics_of",
]

Topics = Mapping[str, Sequence[frozenset[str]]]
"""Topic to its partitions: at index p the racks of partition p's replicas, empty when they are not known."""

Assigned = dict[str, list[TopicPartition]]
"""Member id to partitions."""


class RebalanceProtocol(IntEnum):
    """How members go through a rebalance (KIP-429)."""

    EAGER = 0
    """Everybody gives up everything before joining."""
    COOPERATIVE = 1
    """Members keep what they have; what moves is given up first, and handed out in a rebalance that follows."""


class ConsumerPartitionAssignor(Protocol):
    """One for each consumer and strategy; called on the consumer's loop. May keep state between rebalances."""

    @property
    def name(self) -> str:
        """What the members of a group agree on; the name of the protocol in JoinGroup."""

    def supported_protocols(self) -> Sequence[RebalanceProtocol]:
        """What its assignments are good for. COOPERATIVE: it never gives away what a member still owns."""

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """What this member's assignor has to tell the leader's."""

    def assign(self, cluster: ClusterMetadata, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        """Member id to assignment, for all members. `cluster` knows the subscribed topics that exist."""

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        """Told to every member's assignor once its assignment is there."""


class PartitionAssignor:
    """Base of assignors that only share out partitions: a subclass has a `name` and `assign_partitions`."""

    name: ClassVar[str]

    def supported_protocols(self) -> Sequence[RebalanceProtocol]:
        """See ConsumerPartitionAssignor."""
        return (RebalanceProtocol.EAGER,)

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """See ConsumerPartitionAssignor."""
        return None

    def assign(self, cluster: ClusterMetadata, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        """See ConsumerPartitionAssignor."""
        subscribed = {topic for subscription in subscriptions.values() for topic in subscription.topics}
        assigned = self.assign_partitions(topics_of(cluster, subscribed), subscriptions)
        return {member_id: Assignment(tuple(partitions)) for member_id, partitions in assigned.items()}

    def assign_partitions(self, topics: Topics, subscriptions: Mapping[str, Subscription]) -> Assigned:
        """Every partition of `topics` to one subscriber of its topic; every member has an entry."""
        raise NotImplementedError

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        """See ConsumerPartitionAssignor."""


def members_in_order(subscriptions: Mapping[str, Subscription]) -> list[str]:
    """Member ids as Kafka orders them: static members first and by instance id, which survives a restart of theirs."""

    def order(member_id: str) -> tuple[bool, str]:
        instance_id = subscriptions[member_id].group_instance_id
        return instance_id is None, member_id if instance_id is None else instance_id

    return sorted(subscriptions, key=order)


def partitions_of(topics: Topics, names: Iterable[str]) -> list[TopicPartition]:
    """All partitions of the named topics, in that order."""
    return [TopicPartition(topic, number) for topic in names for number in range(len(topics[topic]))]


def topics_of(cluster: ClusterMetadata, names: Iterable[str]) -> Topics:
    """Those of the named topics that exist, with the racks of their partitions; by name."""
    brokers = cluster.brokers()
    found: dict[str, Sequence[frozenset[str]]] = {}
    for name in sorted(names):
        topic = cluster.topics.get(name)
        if topic is not None and topic.partitions:
            found[name] = [
                frozenset(
                    broker.rack
                    for broker in map(brokers.get, topic.partitions[number].replicas)
                    if broker is not None and broker.rack
                )
                for number in sorted(topic.partitions)
            ]
    return found
