"""The interface of assignors of the classic protocol.

The leader of a group runs the assignor to distribute the partitions. Source:
org.apache.kafka.clients.consumer.ConsumerPartitionAssignor; AbstractPartitionAssignor.
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
"""Topic to partitions: index p has the racks of partition p's replicas, empty when unknown."""

Assigned = dict[str, list[TopicPartition]]
"""Member id to partitions."""


class RebalanceProtocol(IntEnum):
    """The order of steps in a rebalance (KIP-429)."""

    EAGER = 0
    """All members give up all partitions before they join."""
    COOPERATIVE = 1
    """Members keep their partitions; a moving partition is first given up, and assigned in a following rebalance."""


class ConsumerPartitionAssignor(Protocol):
    """The assignor of one consumer and strategy, called on the consumer's loop.

    It may keep state between rebalances.
    """

    @property
    def name(self) -> str:
        """The name of the protocol in JoinGroup.

        The members of a group agree on it.
        """

    def supported_protocols(self) -> Sequence[RebalanceProtocol]:
        """The rebalance protocols of its assignments.

        With COOPERATIVE it never reassigns a partition that a member still owns.
        """

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """This member's data for the leader's assignor."""

    def assign(self, cluster: ClusterMetadata, subscriptions: Mapping[str, Subscription]) -> Mapping[str, Assignment]:
        """The assignments of all members: {member id: assignment}.

        `cluster` knows the subscribed topics that exist.
        """

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        """Called for every member with its assignment."""


class PartitionAssignor:
    """Base of assignors that only distribute partitions.

    A subclass has a `name` and `assign_partitions`.
    """

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
        """Assigns every partition of `topics` to one subscriber of its topic.

        The result has an entry for every member.
        """
        raise NotImplementedError

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        """See ConsumerPartitionAssignor."""


def members_in_order(subscriptions: Mapping[str, Subscription]) -> list[str]:
    """Member ids in Kafka's order: static members first, by instance id.

    An instance id survives the member's restart.
    """

    def order(member_id: str) -> tuple[bool, str]:
        instance_id = subscriptions[member_id].group_instance_id
        return instance_id is None, member_id if instance_id is None else instance_id

    return sorted(subscriptions, key=order)


def partitions_of(topics: Topics, names: Iterable[str]) -> list[TopicPartition]:
    """All partitions of the named topics, in their order."""
    return [TopicPartition(topic, number) for topic in names for number in range(len(topics[topic]))]


def topics_of(cluster: ClusterMetadata, names: Iterable[str]) -> Topics:
    """The existing ones of the named topics, with their partitions' racks."""
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
