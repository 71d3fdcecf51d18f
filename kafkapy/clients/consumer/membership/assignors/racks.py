"""Racks of consumers and partitions in assignments (KIP-881).

Source: AbstractPartitionAssignor.useRackAwareAssignment; AbstractStickyAssignor.RackInfo.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from kafkapy.clients.consumer.membership.assignors.api import Topics
from kafkapy.clients.consumer.membership.protocol import Subscription
from kafkapy.types import TopicPartition

__all__ = ["NO_RACKS", "Racks", "racks_matter"]


def racks_matter(consumer_racks: Iterable[str], racks_of_partitions: Iterable[frozenset[str]]) -> bool:
    """Whether racks affect an assignment.

    Some consumers are in racks of partitions, and not all partitions are in all racks.
    """
    partitions = list(racks_of_partitions)
    everywhere = frozenset(chain.from_iterable(partitions))
    return not everywhere.isdisjoint(consumer_racks) and any(racks != everywhere for racks in partitions)


class Racks:
    """The racks of consumers and partitions; empty when racks do not matter.

    Immutable.
    """

    def __init__(self, topics: Topics, subscriptions: Mapping[str, Subscription]) -> None:
        of_consumers = {
            member_id: subscription.rack_id
            for member_id, subscription in subscriptions.items()
            if subscription.rack_id is not None
        }
        self._of_consumers: Mapping[str, str] = {}
        self._topics: Topics = {}
        self._consumers_near: dict[str, int] = {}
        if racks_matter(of_consumers.values(), chain.from_iterable(topics.values())):
            self._of_consumers = of_consumers
            self._topics = topics
        for rack in of_consumers.values():
            self._consumers_near[rack] = self._consumers_near.get(rack, 0) + 1

    def __bool__(self) -> bool:
        return bool(self._of_consumers)

    def of_partition(self, partition: TopicPartition) -> frozenset[str]:
        """The racks of the partition's replicas."""
        racks = self._topics.get(partition.topic)
        return racks[partition.partition] if racks is not None and partition.partition < len(racks) else frozenset()

    def mismatch(self, member_id: str, partition: TopicPartition) -> bool:
        """Whether the partition has no replica in the consumer's rack."""
        rack = self._of_consumers.get(member_id)
        return rack is not None and rack not in self.of_partition(partition)

    def fewest_consumers_first(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """The partitions, those with the fewest near consumers first.

        Partitions with as many near consumers keep their order.
        """
        if not self:
            return list(partitions)
        near = self._consumers_near
        return sorted(partitions, key=lambda each: sum(near.get(rack, 0) for rack in self.of_partition(each)))

    def next_near(self, partition: TopicPartition, consumers: Sequence[str], first: int) -> int:
        """The index of the next consumer in a rack of the partition.

        The search starts at `first` and wraps around. -1: no consumer.
        """
        racks = self.of_partition(partition)
        for index in chain(range(first, len(consumers)), range(min(first, len(consumers)))):
            if self._of_consumers.get(consumers[index]) in racks:
                return index
        return -1


NO_RACKS = Racks({}, {})
