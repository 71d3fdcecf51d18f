"""The assignor ``uniform``: as many partitions for each member, and as few of them moved as that allows.

Balance comes before stickiness. Where all members subscribe to the same topics, their numbers of partitions differ by
one at most, and no assignment that balanced moves fewer partitions. Otherwise no single move of a partition makes two
subscribers of its topic more alike. Racks are not looked at, as in Kafka 4.1.

Source: org.apache.kafka.coordinator.group.assignor.UniformAssignor and its two builders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from kafkapy.coordinator.group.assignors.api import (
    AssignorError,
    GroupAssignor,
    GroupSpec,
    Partitions,
    SubscribedTopics,
)
from kafkapy.coordinator.group.assignors.balancing import TopicBalancer
from kafkapy.plugins import hookimpl
from kafkapy.types import uuid_to_string


class UniformAssignor:
    """Has no state. Which members get the partitions that do not divide evenly depends on member ids only, so that the
    same group gets the same assignment on every broker.
    """

    name = "uniform"

    def assign(self, spec: GroupSpec, topics: SubscribedTopics) -> Mapping[str, Partitions]:
        """See GroupAssignor. AssignorError for a topic that is not known."""
        if not spec.members:
            return {}
        member_ids = sorted(spec.members)
        topic_ids: set[UUID] = set().union(*(member.topic_ids for member in spec.members.values()))
        counts = {topic_id: _partition_count(topics, topic_id) for topic_id in sorted(topic_ids)}
        kept = _keep(spec, member_ids, counts)
        free = _unowned(kept, counts)
        if spec.homogeneous:
            return _level(member_ids, kept, free, sum(counts.values()))
        subscribers: dict[UUID, list[str]] = {topic_id: [] for topic_id in counts}
        for member_id in member_ids:
            for topic_id in spec.members[member_id].topic_ids:
                subscribers[topic_id].append(member_id)
        balancer = TopicBalancer(kept, subscribers, counts)
        balancer.add(free)
        balancer.balance()
        return balancer.assignment()


def _partition_count(topics: SubscribedTopics, topic_id: UUID) -> int:
    count = topics.num_partitions(topic_id)
    if count == -1:
        raise AssignorError(
            f"Members are subscribed to topic {uuid_to_string(topic_id)} which doesn't exist in the topic metadata."
        )
    return count


def _keep(spec: GroupSpec, member_ids: list[str], counts: Mapping[UUID, int]) -> dict[str, Partitions]:
    """What each member may keep of what it has: partitions that exist, of topics that it subscribes to, and that no
    other member has too (what classic members say they own is not checked when their group is upgraded).
    """
    claimed: dict[UUID, set[int]] = {topic_id: set() for topic_id in counts}
    kept: dict[str, Partitions] = {}
    for member_id in member_ids:
        member = spec.members[member_id]
        partitions: dict[UUID, frozenset[int]] = {}
        for topic_id, numbers in member.assigned.items():
            if not numbers or topic_id not in member.topic_ids:
                continue
            if max(numbers) >= counts[topic_id] or min(numbers) < 0:
                numbers = frozenset(number for number in numbers if 0 <= number < counts[topic_id])
            if not claimed[topic_id].isdisjoint(numbers):
                numbers = numbers - claimed[topic_id]
            if numbers:
                claimed[topic_id] |= numbers
                partitions[topic_id] = numbers
        kept[member_id] = partitions
    return kept


def _unowned(kept: Mapping[str, Partitions], counts: Mapping[UUID, int]) -> list[tuple[UUID, int]]:
    """All partitions that nobody keeps, in order."""
    owned: dict[UUID, set[int]] = {topic_id: set() for topic_id in counts}
    for partitions in kept.values():
        for topic_id, numbers in partitions.items():
            owned[topic_id] |= numbers
    return [
        (topic_id, number)
        for topic_id, count in counts.items()
        if len(owned[topic_id]) < count
        for number in range(count)
        if number not in owned[topic_id]
    ]


def _level(
    member_ids: list[str], kept: dict[str, Partitions], free: list[tuple[UUID, int]], total: int
) -> dict[str, Partitions]:
    """Give every member its share of all partitions: those that have more give up the rest, those that have less take.

    One more than the share goes to members that have it already, as far as there is one more, and then to the first
    of those that have no more than their share.
    """
    share, extra = divmod(total, len(member_ids))
    sizes: dict[str, int] = {}
    for member_id in member_ids:
        size = sum(map(len, kept[member_id].values()))
        limit = share
        if size > share and extra:
            limit += 1
            extra -= 1
        if size > limit:
            kept[member_id] = _shortened(kept[member_id], limit, free)
            size = limit
        sizes[member_id] = size
    taken = 0
    for member_id in member_ids:
        missing = share - sizes[member_id]
        if missing >= 0 and extra:
            missing += 1
            extra -= 1
        if missing > 0:
            kept[member_id] = _with_added(kept[member_id], free[taken : taken + missing])
            taken += missing
    return kept


def _shortened(partitions: Partitions, limit: int, free: list[tuple[UUID, int]]) -> Partitions:
    """The first partitions of a member; the others are added to the free ones."""
    result: dict[UUID, frozenset[int]] = {}
    for topic_id, numbers in partitions.items():
        if len(numbers) > limit:
            ordered = sorted(numbers)
            free += [(topic_id, number) for number in ordered[limit:]]
            numbers = frozenset(ordered[:limit])
        limit -= len(numbers)
        if numbers:
            result[topic_id] = numbers
    return result


def _with_added(partitions: Partitions, added: list[tuple[UUID, int]]) -> Partitions:
    result = dict(partitions)
    by_topic: dict[UUID, list[int]] = {}
    for topic_id, number in added:
        by_topic.setdefault(topic_id, []).append(number)
    for topic_id, numbers in by_topic.items():
        result[topic_id] = result.get(topic_id, frozenset()).union(numbers)
    return result


@hookimpl
def register_assignors() -> Mapping[str, Callable[[], GroupAssignor]]:
    """The name this assignor is known by."""
    return {UniformAssignor.name: UniformAssignor}
