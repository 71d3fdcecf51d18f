"""The assignor ``range``: a contiguous range of each topic's partitions per subscriber.

Members are taken in one order for all topics, so that with as many partitions in each topic a member gets the same
numbers of every topic (co-partitioning). Source: org.apache.kafka.coordinator.group.assignor.RangeAssignor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from kafkapy.coordinator.group.assignors.api import (
    AssignorError,
    GroupAssignor,
    GroupSpec,
    MemberSubscription,
    Partitions,
    SubscribedTopics,
)
from kafkapy.plugins import hookimpl


class RangeAssignor:
    """Assigns ranges; it has no state.

    Static members come first and in the order of their instance ids, so that a new member id, which a static member has
    after each start, moves no partitions.
    """

    name = "range"

    def assign(self, spec: GroupSpec, topics: SubscribedTopics) -> Mapping[str, Partitions]:
        """The assignment; see GroupAssignor. AssignorError for an unknown topic."""
        ordered = sorted(spec.members.items(), key=_order)
        subscribers: dict[UUID, list[str]] = {}
        for member_id, member in ordered:
            for topic_id in member.topic_ids:
                subscribers.setdefault(topic_id, []).append(member_id)
        assignment: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in spec.members}
        for topic_id, member_ids in subscribers.items():
            count = topics.num_partitions(topic_id)
            if count == -1:
                raise AssignorError("Member is subscribed to a non-existent topic")
            quota, extra = divmod(count, len(member_ids))
            start = 0
            for index, member_id in enumerate(member_ids):
                end = start + quota + (index < extra)
                if start == end:
                    break
                assignment[member_id][topic_id] = frozenset(range(start, end))
                start = end
        return assignment


def _order(item: tuple[str, MemberSubscription]) -> tuple[bool, str]:
    member_id, member = item
    return member.instance_id is None, member_id if member.instance_id is None else member.instance_id


@hookimpl
def register_group_assignors() -> Mapping[str, Callable[[], GroupAssignor]]:
    """The factory of this assignor, by its registered name."""
    return {RangeAssignor.name: RangeAssignor}
