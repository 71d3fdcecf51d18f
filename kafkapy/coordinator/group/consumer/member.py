"""A consumer group's member, and its steps to its target (KIP-848).

Source: org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroupMember and CurrentAssignmentBuilder, and
org.apache.kafka.coordinator.group.modern.MemberState.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from kafkapy.coordinator.group.assignors.api import Partitions
from kafkapy.coordinator.group.classic.group import Protocols
from kafkapy.coordinator.group.modern.partitions import NO_PARTITIONS
from kafkapy.errors import ErrorCode, error_for

LEAVE_GROUP_STATIC_EPOCH: Final = -2
"""Member epoch with which a static member leaves for a while."""


class MemberState(IntEnum):
    """A member's progress to its target assignment; records hold the values."""

    STABLE = 0
    """The member has all of its target assignment of its epoch."""
    UNREVOKED_PARTITIONS = 1
    """The member has to give up partitions first, and stays in its epoch until then."""
    UNRELEASED_PARTITIONS = 2
    """The member is in the target's epoch, but others still have some of its partitions."""
    UNKNOWN = 127
    """A state of a later version of Kafka."""

    @classmethod
    def of(cls, code: int) -> MemberState:
        """The state for a code of the log."""
        return _STATES.get(code, cls.UNKNOWN)


_STATES: Final[dict[int, MemberState]] = {state.value: state for state in MemberState}


class ClassicMetadata(NamedTuple):
    """The classic protocol's data of a member. Immutable."""

    session_timeout_ms: int
    protocols: Protocols


class ConsumerGroupMember(NamedTuple):
    """A member of a consumer group. Times in ms.

    Immutable: a change makes a new one. A tuple, because each heartbeat may make two and compares them.
    """

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str = ""
    """The expression, or "" for a member without one."""
    server_assignor: str | None = None
    assigned: Partitions = NO_PARTITIONS
    pending_revocation: Partitions = NO_PARTITIONS
    classic: ClassicMetadata | None = None
    """The classic data of a member that uses the classic protocol, else None."""

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether the member has its whole target assignment of that epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def stepped(
        self,
        member_epoch: int,
        previous_member_epoch: int,
        state: MemberState,
        assigned: Partitions,
        pending_revocation: Partitions,
    ) -> ConsumerGroupMember:
        """The member with another progress to its target assignment; cheaper than `_replace`."""
        progress = (member_epoch, previous_member_epoch, state)
        return ConsumerGroupMember._make(
            (self.member_id, *progress, *self[4:12], assigned, pending_revocation, self.classic)
        )

    @property
    def is_static(self) -> bool:
        """Whether the member has a group.instance.id (KIP-345)."""
        return self.instance_id is not None


class OwnedPartitions(Protocol):
    """A request's partitions of one topic that the member owns."""

    topic_id: UUID
    partitions: list[int]


Owned = Iterable[OwnedPartitions] | None
"""The partitions that a member reports as owned; None without a report."""


def is_subset(owned: Owned, assigned: Partitions) -> bool:
    """Whether a member reports its partitions, and all are assigned to it."""
    return owned is not None and all(
        each.topic_id in assigned and assigned[each.topic_id].issuperset(each.partitions) for each in owned
    )


def _has_any_of(owned: Owned, partitions: Partitions) -> bool:
    if owned is None:
        return True  # it does not say, so it may have them still
    return any(not partitions.get(each.topic_id, frozenset()).isdisjoint(each.partitions) for each in owned)


def reconciled(
    member: ConsumerGroupMember,
    target_epoch: int,
    target: Partitions,
    owners: Callable[[UUID], Mapping[int, str]],
    owned: Owned,
) -> ConsumerGroupMember:
    """The member one step closer to its target assignment.

    It is the same object when the member has to wait. `owners` returns the partitions of a topic that members have, or
    have not given up yet. FENCED_MEMBER_EPOCH for a member in an unknown state that has partitions.
    """
    if member.state is MemberState.STABLE:
        if member.member_epoch == target_epoch:
            return member
        epoch = member.member_epoch
    elif member.state is MemberState.UNREVOKED_PARTITIONS:
        if _has_any_of(owned, member.pending_revocation):
            return member
        # It has done what its epoch asked for, so it goes on from the next one.
        epoch = member.member_epoch + 1
    elif member.state is MemberState.UNRELEASED_PARTITIONS:
        epoch = member.member_epoch
    else:
        if owned is None or any(True for _ in owned):
            raise error_for(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. "
                "The member must abandon all its partitions and rejoin.",
            )
        epoch = target_epoch
    return _next_step(member, epoch, target_epoch, target, owners, owned)


def _next_step(
    member: ConsumerGroupMember,
    epoch: int,
    target_epoch: int,
    target: Partitions,
    owners: Callable[[UUID], Mapping[int, str]],
    owned: Owned,
) -> ConsumerGroupMember:
    if target == member.assigned:
        return _moved(member, MemberState.STABLE, target_epoch, member.assigned, NO_PARTITIONS)
    unreleased = False
    kept: dict[UUID, frozenset[int]] = {}
    revoked: dict[UUID, frozenset[int]] = {}
    free: dict[UUID, frozenset[int]] = {}
    nothing: frozenset[int] = frozenset()
    # The hash of a UUID costs as much as all else here, so lookups are few.
    for topic_id, wanted in target.items():
        has = member.assigned.get(topic_id, nothing) if member.assigned else nothing
        keeps = has & wanted
        if keeps:
            kept[topic_id] = keeps
        if keeps != has:
            revoked[topic_id] = has - keeps
        if keeps != wanted:
            missing = wanted - keeps
            available = missing.difference(owners(topic_id))
            unreleased = unreleased or available != missing
            if available:
                free[topic_id] = available
    for topic_id, has in member.assigned.items():
        if has and topic_id not in target:
            revoked[topic_id] = has
    if revoked and _has_any_of(owned, revoked):
        return _moved(member, MemberState.UNREVOKED_PARTITIONS, epoch, kept, revoked)
    for topic_id, partitions in free.items():
        kept[topic_id] = kept.get(topic_id, nothing) | partitions
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    return _moved(member, state, target_epoch, kept, NO_PARTITIONS)


def _moved(
    member: ConsumerGroupMember, state: MemberState, epoch: int, assigned: Partitions, revoked: Partitions
) -> ConsumerGroupMember:
    return member.stepped(epoch, member.member_epoch, state, assigned, revoked)
