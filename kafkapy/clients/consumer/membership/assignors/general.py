"""The sticky assignment for members with different subscriptions.

Members keep owned partitions that are still subscribed; each other partition goes to the subscriber with the fewest
partitions. Then partitions move from larger to smaller members until no move improves the balance. If the balance did
not improve in the end, no partition moves. Source: AbstractStickyAssignor's GeneralAssignmentBuilder.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence

from kafkapy.clients.consumer.membership.assignors.api import Assigned, Topics, partitions_of
from kafkapy.clients.consumer.membership.assignors.racks import NO_RACKS, Racks
from kafkapy.clients.consumer.membership.protocol import Subscription
from kafkapy.types import TopicPartition

__all__ = ["GeneralAssignment"]


class GeneralAssignment:
    """The builder of one assignment; used once."""

    def __init__(
        self,
        topics: Topics,
        racks: Racks,
        subscriptions: Mapping[str, Subscription],
        owned: Mapping[str, Sequence[TopicPartition]],
        previous: Mapping[TopicPartition, str],
        *,
        keeps_racks: bool,
    ) -> None:
        """`previous` has the owners of older generations.

        `keeps_racks`: whether a member keeps a partition of another rack. Its place may be there for balance, and the
        next rebalance would take it away again.
        """
        self._topics = topics
        self._racks = racks
        self._keeps_racks = keeps_racks
        self._previous = previous
        self._subscribed = {
            member_id: frozenset(topic for topic in subscription.topics if topic in topics)
            for member_id, subscription in subscriptions.items()
        }
        self._subscribers: dict[str, set[str]] = {topic: set() for topic in topics}
        for member_id, names in self._subscribed.items():
            for topic in names:
                self._subscribers[topic].add(member_id)
        self._most = {
            member_id: sum(len(topics[topic]) for topic in names) for member_id, names in self._subscribed.items()
        }
        """The largest possible number of partitions per member."""
        self._revoked = False
        """Whether a member must give up a partition in any case."""
        self._assigned: Assigned = {}
        self._owner: dict[TopicPartition, str] = {}
        for member_id, partitions in owned.items():
            kept = [each for each in partitions if self._may_keep(member_id, each)]
            self._revoked |= len(kept) < len(partitions)
            self._assigned[member_id] = kept
            self._owner.update(dict.fromkeys(kept, member_id))
        self._movements = _Movements()
        self._by_size: list[tuple[int, str]] = []
        """The participating members, those with the fewest partitions first."""

    def build(self) -> Assigned:
        """Member id to partitions."""
        names = sorted(self._topics, key=lambda topic: (len(self._subscribers[topic]), topic))
        everything = partitions_of(self._topics, names)
        unassigned = [partition for partition in everything if partition not in self._owner]
        self._by_size = sorted((len(partitions), member_id) for member_id, partitions in self._assigned.items())
        initializing = not self._owner
        self._assign(unassigned)
        self._balance(everything, unassigned, initializing)
        return self._assigned

    def _may_keep(self, member_id: str, partition: TopicPartition) -> bool:
        if partition.topic not in self._subscribed[member_id]:
            return False
        return self._keeps_racks or not self._racks.mismatch(member_id, partition)

    def _assign(self, partitions: Sequence[TopicPartition]) -> None:
        left = partitions
        if self._racks:
            left = [partition for partition in partitions if not self._assign_one(partition, self._racks)]
        for partition in left:
            self._assign_one(partition, NO_RACKS)

    def _assign_one(self, partition: TopicPartition, racks: Racks) -> bool:
        for _, member_id in self._by_size:
            if partition.topic in self._subscribed[member_id] and not racks.mismatch(member_id, partition):
                self._forget_size(member_id)
                self._assigned[member_id].append(partition)
                self._remember_size(member_id)
                self._owner[partition] = member_id
                return True
        return False

    def _forget_size(self, member_id: str) -> None:
        self._by_size.remove((len(self._assigned[member_id]), member_id))

    def _remember_size(self, member_id: str) -> None:
        insort(self._by_size, (len(self._assigned[member_id]), member_id))

    # --- balance --------------------------------------------------------------------------------------------------

    def _balance(
        self, everything: Sequence[TopicPartition], unassigned: Sequence[TopicPartition], initializing: bool
    ) -> None:
        movable = [partition for partition in everything if len(self._subscribers[partition.topic]) > 1]
        fixed: Assigned = {}
        for member_id in list(self._assigned):
            if not self._takes_part(member_id):
                self._forget_size(member_id)
                fixed[member_id] = self._assigned.pop(member_id)
        before = {member_id: list(partitions) for member_id, partitions in self._assigned.items()}
        if not self._revoked:
            # A partition without a previous owner may move without a loss for a member.
            self._move([partition for partition in unassigned if len(self._subscribers[partition.topic]) > 1])
        moved = self._move(movable)
        if not initializing and moved and _imbalance(self._assigned) >= _imbalance(before):
            self._assigned = before
        self._assigned.update(fixed)

    def _takes_part(self, member_id: str) -> bool:
        """Whether the member can get partitions, or give some to others."""
        partitions = self._assigned[member_id]
        return len(partitions) < self._most[member_id] or any(
            len(self._subscribers[partition.topic]) > 1 for partition in partitions
        )

    def _balanced(self) -> bool:
        if not self._by_size or self._by_size[0][0] >= self._by_size[-1][0] - 1:
            return True
        topics = {member_id: {each.topic for each in partitions} for member_id, partitions in self._assigned.items()}
        for size, member_id in self._by_size:
            if size == self._most[member_id]:
                continue
            for other_size, other in reversed(self._by_size):
                if other_size <= size + 1:
                    break
                if not self._subscribed[member_id].isdisjoint(topics[other]):
                    return False
        return True

    def _move(self, partitions: Sequence[TopicPartition]) -> bool:
        """Moves partitions to smaller members; whether any moved."""
        ever = False
        modified = True
        while modified:
            modified = False
            for partition in partitions:
                if self._balanced():
                    break
                modified |= self._move_one(partition)
            ever |= modified
        return ever

    def _move_one(self, partition: TopicPartition) -> bool:
        size = len(self._assigned[self._owner[partition]])
        subscribers = self._subscribers[partition.topic]
        before = self._previous.get(partition, "")
        if before in subscribers and size > len(self._assigned[before]) + 1:
            self._move_to(partition, before)
            return True
        if any(size > len(self._assigned[other]) + 1 for other in subscribers):
            self._move_to(partition, next(each for _, each in self._by_size if each in subscribers))
            return True
        return False

    def _move_to(self, partition: TopicPartition, new: str) -> None:
        partition = self._movements.better(partition, self._owner[partition], new)
        old = self._owner[partition]
        self._movements.add(partition, old, new)
        self._forget_size(old)
        self._forget_size(new)
        self._assigned[old].remove(partition)
        self._assigned[new].append(partition)
        self._owner[partition] = new
        self._remember_size(old)
        self._remember_size(new)


def _imbalance(assigned: Assigned) -> int:
    """The sum of size differences between all pairs of members.

    0 is perfect balance.
    """
    total = running = 0
    for index, size in enumerate(sorted(map(len, assigned.values()))):
        total += size * index - running
        running += size
    return total


class _Movements:
    """The moves of partitions between members.

    They prevent two members from swapping partitions of one topic.
    """

    def __init__(self) -> None:
        self._moved: dict[TopicPartition, tuple[str, str]] = {}
        """Partition to its first and its current member."""
        self._by_topic: dict[tuple[str, str, str], dict[TopicPartition, None]] = {}
        """(topic, from, to) to partitions."""

    def add(self, partition: TopicPartition, old: str, new: str) -> None:
        """Records a move of the partition."""
        if partition in self._moved:
            source, _ = pair = self._moved.pop(partition)
            moved = self._by_topic[(partition.topic, *pair)]
            del moved[partition]
            if not moved:
                del self._by_topic[(partition.topic, *pair)]
            if source == new:
                return
            old = source
        self._moved[partition] = old, new
        self._by_topic.setdefault((partition.topic, old, new), {})[partition] = None

    def better(self, partition: TopicPartition, old: str, new: str) -> TopicPartition:
        """The partition to move instead of this one.

        One of the same topic that moved the opposite way, if there is one, goes back; otherwise the partition itself
        moves.
        """
        if partition in self._moved:
            old = self._moved[partition][0]
        return next(iter(self._by_topic.get((partition.topic, new, old), ())), partition)
