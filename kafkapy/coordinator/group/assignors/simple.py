"""The assignor ``simple`` for share groups: partitions have members, and members have partitions.

With more members than partitions, several members share one. All partitions have the same number of members, and the
members' numbers of partitions differ by one at most; after that, as few assignments move as possible. Members with
different subscriptions share each topic by itself. Racks have no effect, as in Kafka 4.4.

Source: org.apache.kafka.coordinator.group.assignor.SimpleAssignor and its two builders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from uuid import UUID

from kafkapy.coordinator.group.assignors.api import GroupAssignor, GroupSpec, Partitions, SubscribedTopics
from kafkapy.coordinator.group.assignors.balancing import partition_count
from kafkapy.plugins import hookimpl

_Slot = tuple[UUID, int]
"""A partition that members are to get."""


class SimpleAssignor:
    """Assigns partitions to several members; it has no state.

    Member ids alone decide between equal members, so that the same group gets the same assignment on every broker.
    """

    name = "simple"
    shares = True

    def assign(self, spec: GroupSpec, topics: SubscribedTopics) -> Mapping[str, Partitions]:
        """The assignment; see GroupAssignor. AssignorError for an unknown topic."""
        subscribers: dict[UUID, list[str]] = {}
        for member_id in sorted(spec.members):
            for topic_id in spec.members[member_id].topic_ids:
                subscribers.setdefault(topic_id, []).append(member_id)
        slots = {topic_id: _slots(spec, topics, topic_id) for topic_id in sorted(subscribers)}
        if spec.homogeneous:
            every = [slot for of_topic in slots.values() for slot in of_topic]
            return _by_topic(_shared(every, sorted(spec.members), spec))
        assignment: dict[str, set[_Slot]] = {member_id: set() for member_id in spec.members}
        for topic_id, of_topic in slots.items():
            for member_id, share in _shared(of_topic, subscribers[topic_id], spec).items():
                assignment[member_id] |= share
        return _by_topic(assignment)


def _slots(spec: GroupSpec, topics: SubscribedTopics, topic_id: UUID) -> list[_Slot]:
    count = partition_count(topics, topic_id)
    if spec.assignable is None:
        return [(topic_id, number) for number in range(count)]
    numbers = spec.assignable.get(topic_id, frozenset())
    return [(topic_id, number) for number in sorted(numbers) if number < count]


def _by_topic(shares: Mapping[str, set[_Slot]]) -> dict[str, Partitions]:
    assignment: dict[str, Partitions] = {}
    for member_id, share in shares.items():
        numbers: dict[UUID, set[int]] = {}
        for topic_id, number in share:
            numbers.setdefault(topic_id, set()).add(number)
        assignment[member_id] = {topic_id: frozenset(each) for topic_id, each in numbers.items()}
    return assignment


def _shared(slots: Sequence[_Slot], member_ids: Sequence[str], spec: GroupSpec) -> dict[str, set[_Slot]]:
    """Share the slots among members, each with its quota."""
    if not slots:
        return {member_id: set() for member_id in member_ids}
    takers = -(-len(member_ids) // len(slots))
    sharing = _Sharing(slots, takers)
    base, extra = divmod(takers * len(slots), len(member_ids))
    present = {member_id: sharing.valid(spec.members[member_id].assigned) for member_id in member_ids}
    # Smaller members keep theirs first: what is shared too often is taken from larger ones.
    for member_id in sorted(member_ids, key=lambda each: (len(present[each]), each)):
        larger = extra > 0 and len(present[member_id]) > base
        extra -= larger
        sharing.keep(member_id, present[member_id], base + larger)
    sharing.fill(member_ids, base, extra)
    return sharing.held


class _Sharing:
    """Owns the shares of one assignment while it is computed."""

    def __init__(self, slots: Sequence[_Slot], takers: int) -> None:
        self._slots = slots
        self._takers = takers
        """Members that each slot is to have."""
        self._taken = dict.fromkeys(slots, 0)
        self._quotas: dict[str, int] = {}
        self.held: dict[str, set[_Slot]] = {}

    def valid(self, assigned: Partitions) -> list[_Slot]:
        """A member's present partitions that it may keep."""
        every = ((topic_id, number) for topic_id, numbers in assigned.items() for number in numbers)
        return [slot for slot in every if slot in self._taken]

    def keep(self, member_id: str, present: Iterable[_Slot], quota: int) -> None:
        """Let a member keep partitions up to its quota, the rarest first."""
        ordered = sorted(present, key=lambda slot: (self._taken[slot], slot))
        kept = [slot for slot in ordered if self._taken[slot] < self._takers][:quota]
        for slot in kept:
            self._taken[slot] += 1
        self._quotas[member_id] = quota
        self.held[member_id] = set(kept)

    def fill(self, member_ids: Sequence[str], base: int, extra: int) -> None:
        """Give the missing places in slots to members below their quota.

    `extra` members get one more than `base`."""
        for member_id in member_ids:
            if extra > 0 and self._quotas[member_id] == base:
                self._quotas[member_id] += 1
                extra -= 1
        rooms = [(len(self.held[each]) - self._quotas[each], each) for each in member_ids]
        heap = [(room, each) for room, each in rooms if room < 0]
        heapify(heap)
        for slot in self._slots:
            while self._taken[slot] < self._takers:
                self._give(slot, heap)

    def _give(self, slot: _Slot, heap: list[tuple[int, str]]) -> None:
        """Give a slot to the member with the most room that has not got it."""
        passed = []
        while heap and slot in self.held[heap[0][1]]:
            passed.append(heappop(heap))
        if heap:
            room, member_id = heappop(heap)
            self.held[member_id].add(slot)
        else:
            # All members with room have this slot. Another one gets it, and gives one of its own for it; there is such
            # a member, because those without room have at least as many.
            room, member_id = passed.pop()
            self._swap(slot, member_id)
        self._taken[slot] += 1
        if room < -1:
            passed.append((room + 1, member_id))
        for each in passed:
            heappush(heap, each)

    def _swap(self, slot: _Slot, member_id: str) -> None:
        mine = self.held[member_id]
        for theirs in self.held.values():
            if slot in theirs:
                continue
            other = min(theirs - mine, default=None)
            if other is not None:
                theirs.remove(other)
                theirs.add(slot)
                mine.add(other)
                return


@hookimpl
def register_group_assignors() -> Mapping[str, Callable[[], GroupAssignor]]:
    """The factory of this assignor, by its registered name."""
    return {SimpleAssignor.name: SimpleAssignor}
