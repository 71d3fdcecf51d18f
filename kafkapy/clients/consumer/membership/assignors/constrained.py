"""The sticky assignment for members that all subscribe to the same topics.

All members get the same number of partitions, or one more. Members keep owned partitions up to that number; the others
are distributed in turn, first to members in a rack of the partition if racks matter. Source: AbstractStickyAssignor's
ConstrainedAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from kafkapy.clients.consumer.membership.assignors.api import Assigned, Topics, partitions_of
from kafkapy.clients.consumer.membership.assignors.racks import Racks
from kafkapy.types import TopicPartition

__all__ = ["ConstrainedAssignment"]


class ConstrainedAssignment:
    """The builder of one assignment; used once."""

    def __init__(
        self,
        topics: Topics,
        racks: Racks,
        owned: Mapping[str, Sequence[TopicPartition]],
        disputed: Set[TopicPartition],
    ) -> None:
        self._topics = topics
        self._racks = racks
        self._owned = owned
        self._disputed = disputed
        self._given_up: dict[TopicPartition, str] = {}
        """Partitions that their owners may not keep."""
        total = sum(map(len, topics.values()))
        self._quota, self._most_with_extra = divmod(total, len(owned)) if owned else (0, 0)
        self._max_quota = self._quota + (self._most_with_extra > 0)
        self._with_extra = 0
        """Members above the quota."""
        self._below: list[str] = []
        """Members below the quota, in order."""
        self._at: list[str] = []
        """Members at the quota that may still get one more, in order."""
        self._assigned: Assigned = {member_id: [] for member_id in owned}
        self.transferred: dict[TopicPartition, str] = {}
        """Transferred partitions with their new members."""

    def build(self) -> Assigned:
        """Member id to partitions."""
        self._keep_owned()
        self._below.sort()
        self._at.sort()
        kept = {partition for partitions in self._assigned.values() for partition in partitions}
        rest = [partition for partition in partitions_of(self._topics, sorted(self._topics)) if partition not in kept]
        if self._racks:
            rest = self._deal_near(self._racks.fewest_consumers_first(rest))
        self._deal(rest)
        return self._assigned

    def _keep_owned(self) -> None:
        for member_id, partitions in self._owned.items():
            near: list[TopicPartition] = []
            for partition in sorted(partitions, key=lambda each: (each.partition, each.topic)):
                if self._racks.mismatch(member_id, partition):
                    self._given_up[partition] = member_id
                else:
                    near.append(partition)
            if len(near) < self._quota:
                self._below.append(member_id)
                keep = len(near)
            elif len(near) > self._quota and self._with_extra < self._most_with_extra:
                self._count_extra()
                keep = self._max_quota
            else:
                keep = self._quota
                if self._with_extra < self._most_with_extra:
                    self._at.append(member_id)
            self._assigned[member_id].extend(near[:keep])
            self._given_up.update(dict.fromkeys(near[keep:], member_id))

    def _count_extra(self) -> None:
        self._with_extra += 1
        if self._with_extra == self._most_with_extra:
            self._at.clear()

    def _deal_near(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Distributes partitions to near members; returns those without one."""
        rest = []
        turn = 0
        for partition in partitions:
            index = self._racks.next_near(partition, self._below, turn)
            if index >= 0:
                member_id = self._below[index]
                if len(self._assigned[member_id]) + 1 >= self._quota:
                    del self._below[index]
                    if self._with_extra < self._most_with_extra:
                        self._at.append(member_id)
                else:
                    index += 1
                turn = index % len(self._below) if self._below else 0
            else:
                index = self._racks.next_near(partition, self._at, 0)
                if index < 0:
                    rest.append(partition)
                    continue
                member_id = self._at.pop(index)
                self._count_extra()
            self._give(partition, member_id)
        return rest

    def _deal(self, partitions: Sequence[TopicPartition]) -> None:
        turn = 0
        for partition in partitions:
            if not self._below:
                # As many partitions remain as members may get one more.
                self._give(partition, self._at.pop(0))
                continue
            turn %= len(self._below)
            member_id = self._below[turn]
            self._give(partition, member_id)
            if len(self._assigned[member_id]) == self._quota:
                del self._below[turn]
                self._at.append(member_id)
            else:
                turn += 1

    def _give(self, partition: TopicPartition, member_id: str) -> None:
        self._assigned[member_id].append(partition)
        if self._given_up.get(partition, member_id) != member_id or partition in self._disputed:
            self.transferred[partition] = member_id
