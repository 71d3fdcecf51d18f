"""The assignor ``range``: contiguous ranges of each topic's partitions per subscriber.

Members have the same order for all topics, so that topics with as many partitions are co-partitioned. If racks matter,
partitions first go to consumers in their racks, as far as the balance allows, and together for co-partitioned topics
(KIP-881). Source: org.apache.kafka.clients.consumer.RangeAssignor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby

from kafkapy.clients.consumer.membership.assignors.api import Assigned, PartitionAssignor, Topics, members_in_order
from kafkapy.clients.consumer.membership.assignors.racks import racks_matter
from kafkapy.clients.consumer.membership.protocol import Subscription
from kafkapy.types import TopicPartition

__all__ = ["RangeAssignor"]


class RangeAssignor(PartitionAssignor):
    """The range assignor; stateless."""

    name = "range"

    def assign_partitions(self, topics: Topics, subscriptions: Mapping[str, Subscription]) -> Assigned:
        """See PartitionAssignor."""
        subscribers: dict[str, dict[str, str | None]] = {topic: {} for topic in topics}
        for member_id in members_in_order(subscriptions):
            subscription = subscriptions[member_id]
            for topic in subscription.topics:
                if topic in subscribers:
                    subscribers[topic][member_id] = subscription.rack_id
        states = [_TopicState(topic, topics[topic], consumers) for topic, consumers in subscribers.items() if consumers]
        assigned: Assigned = {member_id: [] for member_id in subscriptions}
        with_racks = any(state.racks_matter for state in states)
        if with_racks:
            _assign_near(states, assigned)
        for state in states:
            state.assign_ranges(assigned, lambda _consumer, _number: True)
        if with_racks:
            for partitions in assigned.values():
                partitions.sort()
        return assigned


class _TopicState:
    """A topic during the assignment."""

    def __init__(self, topic: str, racks: Sequence[frozenset[str]], consumers: Mapping[str, str | None]) -> None:
        self.topic = topic
        self.consumers = consumers
        """The consumers in order, with their racks."""
        consumer_racks = {rack for rack in consumers.values() if rack is not None}
        self.racks = racks
        self.racks_matter = racks_matter(consumer_racks, racks)
        self.group = (tuple(consumers.items()), len(racks) if consumer_racks else 0)
        """The key of co-partitioned topics: topics with the same key are assigned together."""
        self._unassigned = dict.fromkeys(range(len(racks)))
        self._counts = dict.fromkeys(consumers, 0)
        self._quota, self._extra = divmod(len(racks), len(consumers))

    def near(self, consumer: str, number: int) -> bool:
        """Whether a partition is in the consumer's rack, as far as known."""
        rack = self.consumers[consumer]
        return rack is None or rack in self.racks[number]

    def room(self, consumer: str) -> int:
        """Number of partitions that the consumer may still get."""
        return max(0, self._quota + (self._extra > 0) - self._counts[consumer])

    def assign(self, consumer: str, numbers: Iterable[int], assigned: Assigned) -> None:
        """Assigns partitions to a consumer."""
        for number in numbers:
            assigned[consumer].append(TopicPartition(self.topic, number))
            del self._unassigned[number]
            self._counts[consumer] += 1
        if self._counts[consumer] > self._quota:
            self._extra -= 1

    def assign_ranges(self, assigned: Assigned, may_assign: Callable[[str, int], bool]) -> None:
        """Gives each consumer in turn the first remaining partitions it may have."""
        for consumer in self.consumers:
            if not self._unassigned:
                return
            numbers = [number for number in self._unassigned if may_assign(consumer, number)][: self.room(consumer)]
            if numbers:
                self.assign(consumer, numbers, assigned)


def _assign_near(states: Iterable[_TopicState], assigned: Assigned) -> None:
    """Assigns partitions to consumers in their racks."""
    ordered = sorted(states, key=lambda state: (str(state.group), state.topic))
    for (_, count), group in groupby(ordered, key=lambda state: state.group):
        together = list(group)
        if len(together) > 1:
            _assign_together(together, count, assigned)
        elif together[0].racks_matter:
            together[0].assign_ranges(assigned, together[0].near)


def _assign_together(states: Sequence[_TopicState], count: int, assigned: Assigned) -> None:
    """Assigns partitions of one number in all topics to a near consumer.

    The consumer is near the partitions of all topics.
    """
    consumers = list(states[0].consumers)
    for number in range(count):
        for consumer in consumers:
            if all(state.near(consumer, number) and state.room(consumer) for state in states):
                for state in states:
                    state.assign(consumer, [number], assigned)
                if not any(state.room(consumer) for state in states):
                    consumers.remove(consumer)
                break
