"""A group with epochs and a target assignment that the coordinator computes.

Source: org.apache.kafka.coordinator.group.modern.ModernGroup.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from kafkapy.coordinator.group.assignors.api import Partitions
from kafkapy.coordinator.group.group import Group
from kafkapy.errors import ErrorCode, error_for

K = TypeVar("K")


class Subscriptions(NamedTuple):
    """The subscriptions of a group's members, now or after a change. Immutable."""

    names: Mapping[str, int]
    """Topic to the number of members that name it."""
    regexes: Mapping[str, int]
    """Expression to the number of members that subscribe with it."""
    topics: frozenset[str]
    """All topics, by name or by expression."""

    def is_homogeneous(self, member_count: int) -> bool:
        """Whether all members evidently subscribe to the same topics."""
        if not self.regexes:
            return all(count == member_count for count in self.names.values())
        return not self.names and len(self.regexes) == 1 and next(iter(self.regexes.values())) == member_count


class Refresh(NamedTuple):
    """The group's last check for changed topics. Immutable."""

    topics: object
    """The mapping of topics in the metadata snapshot; another object is another state."""
    brokers_version: int
    group_epoch: int
    names: frozenset[str]
    """The group's topics then."""
    metadata_hash: int
    """The hash of these topics."""


class ModernMember(Protocol):
    """The part of a member that epochs and assignments need."""

    @property
    def member_id(self) -> str:
        """The member's id."""

    @property
    def member_epoch(self) -> int:
        """The epoch of the target assignment that the member has moved to."""


M = TypeVar("M", bound=ModernMember)


class ModernGroup(Group, Generic[M]):
    """One group of a protocol with server-side assignment.

    Owned by a GroupShard; its replay changes it, on the control loop's thread.
    """

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.epoch = 0
        self.assignment_epoch = 0
        self.metadata_hash = 0
        self.members: dict[str, M] = {}
        self.target: dict[str, Partitions] = {}
        """Target assignment by member id."""
        self.refreshed: Refresh | None = None
        """The last check for changed topics; not in the log."""
        self.assigned_ms: int | None = None
        """Time of the last target assignment on the monotonic clock. Not in the log."""
        self.announced_epoch = 0
        """The last epoch that was announced as settled. Not in the log."""

    @property
    def is_empty(self) -> bool:
        """See Group."""
        return not self.members

    @property
    @abstractmethod
    def is_settled(self) -> bool:
        """Whether all members, if any, have the target assignment of the group's epoch."""

    @abstractmethod
    def subscriptions(self, without: Iterable[M] = (), plus: M | None = None) -> Subscriptions:
        """The subscriptions after some members left, and one joined or changed."""

    def member(self, member_id: str) -> M:
        """The member of that id. UNKNOWN_MEMBER_ID."""
        found = self.members.get(member_id)
        if found is None:
            message = f"Member {member_id} is not a member of group {self.group_id}."
            raise error_for(ErrorCode.UNKNOWN_MEMBER_ID, message)
        return found


G = TypeVar("G", bound=ModernGroup[Any])


def count(counts: dict[K, int], key: K, change: int) -> None:
    """Add to a count; a count of none is left out."""
    total = counts.get(key, 0) + change
    if total > 0:
        counts[key] = total
    else:
        counts.pop(key, None)
