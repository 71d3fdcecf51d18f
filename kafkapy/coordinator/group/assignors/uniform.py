"""The assignor ``uniform``: equal shares for all members, with few moves.

Balance comes before stickiness. When all members subscribe to the same topics, their numbers of partitions differ by
one at most, and no assignment that balanced moves fewer partitions. Otherwise no single move of a partition makes two
subscribers of its topic more alike. Racks have no effect, as in Kafka 4.1.

Source: org.apache.kafka.coordinator.group.assignor.UniformAssignor and its two builders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from kafkapy.coordinator.group.assignors.api import (
    GroupAssignor,
    GroupSpec,
    Partitions,
    SubscribedTopics,
)
from kafkapy.coordinator.group.assignors.balancing import TopicBalancer, partition_count
from kafkapy.plugins import hookimpl


class UniformAssignor:
    """Assigns equal shares; it has no state.

    Member ids alone decide which members get the partitions that do not divide evenly, so that the same group gets the
    same assignment on every broker.
    """

    name = "uniform"

    def assign(self, spec: GroupSpec, topics: SubscribedTopics) -> Mapping[str, Partitions]:
        """The assignment; see GroupAssignor. AssignorError for an unknown topic."""
        if not spec.members:
            return {}
        member_ids = sorted(spec.members)
        # Members with the same subscription mostly share one set.
        subscriptions = {id(member.topic_ids): member.topic_ids for member in spec.members.values()}
        topic_ids: set[UUID] = set().union(*subscriptions.values())
        counts = {topic_id: partition_count(topics, topic_id) for topic_id in sorted(topic_ids)}
        claims = {topic_id: _Claims(count, set()) for topic_id, count in counts.items()}
        kept = _keep(spec, member_ids, claims)
        free = _unowned(claims)
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


@dataclass(slots=True)
class _Claims:
    """The partitions of a topic that members keep."""

    count: int
    """The number of the topic's partitions."""
    kept: set[int]

    def keep(self, numbers: frozenset[int]) -> frozenset[int]:
        """Claim partitions that exist and that no other member keeps.

        Returns them; the same set if all of them are free.
        """
        if max(numbers) >= self.count or min(numbers) < 0:
            numbers = frozenset(number for number in numbers if 0 <= number < self.count)
        if not self.kept.isdisjoint(numbers):
            numbers = numbers - self.kept
        self.kept.update(numbers)
        return numbers


def _keep(spec: GroupSpec, member_ids: list[str], claims: Mapping[UUID, _Claims]) -> dict[str, Partitions]:
    """The partitions that each member keeps of its present ones.

    They exist, their topics are among its subscriptions, and no other member has them too (the ownership that classic
    members report is not checked when their group is upgraded).
    """
    kept: dict[str, Partitions] = {}
    for member_id in member_ids:
        member = spec.members[member_id]
        # Most members keep all their partitions. The hash of a UUID costs as much as all else here, so lookups are few.
        changed: dict[UUID, frozenset[int]] = {}
        for topic_id, numbers in member.assigned.items():
            keeps: frozenset[int] = frozenset()
            topic = claims.get(topic_id)
            if topic is not None and numbers and (spec.homogeneous or topic_id in member.topic_ids):
                keeps = topic.keep(numbers)
            if keeps is not numbers or not keeps:
                changed[topic_id] = keeps
        kept[member_id] = _without_empty({**member.assigned, **changed}) if changed else member.assigned
    return kept


def _without_empty(partitions: Partitions) -> Partitions:
    return {topic_id: numbers for topic_id, numbers in partitions.items() if numbers}


def _unowned(claims: Mapping[UUID, _Claims]) -> list[tuple[UUID, int]]:
    """All partitions that no member keeps, in order."""
    return [
        (topic_id, number)
        for topic_id, topic in claims.items()
        if len(topic.kept) < topic.count
        for number in range(topic.count)
        if number not in topic.kept
    ]


def _level(
    member_ids: list[str], kept: dict[str, Partitions], free: list[tuple[UUID, int]], total: int
) -> dict[str, Partitions]:
    """Give every member its share: larger members give up partitions, smaller ones take.

    One partition above the share goes to members that have it already, as far as the remainder allows, and then to the
    first members that have no more than their share.
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
    """The first partitions of a member; the others become free."""
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
def register_group_assignors() -> Mapping[str, Callable[[], GroupAssignor]]:
    """The factory of this assignor, by its registered name."""
    return {UniformAssignor.name: UniformAssignor}
