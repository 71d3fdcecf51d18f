"""One consumer group: epochs, members, subscriptions, target assignment and partition owners (KIP-848).

Its requests are in requests.py; only replay.py changes the state that is in the log. Source:
org.apache.kafka.coordinator.group.modern.ModernGroup and modern.consumer.ConsumerGroup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kafkapy.coordinator.group.assignors.api import Partitions
from kafkapy.coordinator.group.classic.group import CONSUMER_PROTOCOL_TYPE
from kafkapy.coordinator.group.consumer.member import (
    LEAVE_GROUP_STATIC_EPOCH,
    ConsumerGroupMember,
    MemberState,
)
from kafkapy.coordinator.group.consumer.records import group_tombstones
from kafkapy.coordinator.group.consumer.subscriptions import ResolvedRegex
from kafkapy.coordinator.group.group import GroupType, LeaseTerms
from kafkapy.coordinator.group.modern.group import ModernGroup, Subscriptions, count
from kafkapy.coordinator.group.modern.partitions import NO_PARTITIONS
from kafkapy.errors import ErrorCode, error_for

if TYPE_CHECKING:
    from kafkapy.coordinator.group.offsets import CommittedOffset
    from kafkapy.coordinator.records import CoordinatorRecord

FIRST_COMMIT_WITH_EPOCH: Final = 9
"""OffsetCommit version from which members of the consumer protocol may commit."""
NO_GENERATION: Final = -1
NO_OWNERS: Final[dict[int, str]] = {}


class ConsumerGroupState(Enum):
    """The state of a consumer group; the values are Kafka's names."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The target assignment of the group's epoch has not been computed yet."""
    RECONCILING = "Reconciling"
    """Members are moving to the target assignment."""
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup(ModernGroup[ConsumerGroupMember]):
    """One group of the consumer protocol.

    Owned by a GroupShard; changed by ConsumerReplay, on the control loop's thread.
    """

    type = GroupType.CONSUMER

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.has_subscription_metadata = False
        """The log holds the topic metadata of a version before 4.1."""
        self.static_members: dict[str, str] = {}
        """Member id by group.instance.id."""
        self.resolved: dict[str, ResolvedRegex] = {}
        self.classic_count = 0
        """The number of members that use the classic protocol."""
        self.regex_topics: Mapping[str, object] | None = None
        """The topics of the last match of the expressions. Not in the log."""
        self._owners: dict[UUID, dict[int, str]] = {}
        self._names: dict[str, int] = {}
        self._regexes: dict[str, int] = {}
        self._assignors: dict[str, int] = {}
        self._classic_protocols: dict[str, int] = {}
        self._reconciled: dict[int, int] = {}
        """Epoch to the number of members that have all of its target assignment."""

    # --- what it is -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        """The state, from the epochs and the members."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if self._reconciled.get(self.assignment_epoch, 0) < len(self.members):
            return ConsumerGroupState.RECONCILING
        return ConsumerGroupState.STABLE

    @property
    def state_name(self) -> str:
        """See Group."""
        return self.state.value

    @property
    def protocol_type(self) -> str | None:
        """See Group."""
        return CONSUMER_PROTOCOL_TYPE

    @property
    def is_settled(self) -> bool:
        """See ModernGroup."""
        return self.state in (ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY)

    def static_member(self, instance_id: str | None) -> ConsumerGroupMember | None:
        """The member with that group.instance.id."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member: ConsumerGroupMember) -> Partitions:
        """The target assignment of a member.

        A static member takes that of the present owner of its instance id.
        """
        member_id: str | None = member.member_id
        if member.instance_id is not None:
            member_id = self.static_members.get(member.instance_id)
        return NO_PARTITIONS if member_id is None else self.target.get(member_id, NO_PARTITIONS)

    def is_owned(self, topic_id: UUID, partition: int) -> bool:
        """Whether a member has the partition, or is giving it up."""
        return partition in self.owners(topic_id)

    def owners(self, topic_id: UUID) -> Mapping[int, str]:
        """The owners of a topic's partitions by number; not to be changed.

        A member owns a partition until it has given it up.
        """
        return self._owners.get(topic_id, NO_OWNERS)

    def waits_for_others(self, member: ConsumerGroupMember) -> bool:
        """Whether other members still have partitions of the member's target."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            number not in member.assigned.get(topic_id, ()) and self.is_owned(topic_id, number)
            for topic_id, numbers in self.target.get(member.member_id, NO_PARTITIONS).items()
            for number in numbers
        )

    # --- subscriptions ----------------------------------------------------------------------------------------------

    @property
    def subscribed_regexes(self) -> Mapping[str, int]:
        """Expression to its number of subscribers; not to be changed."""
        return self._regexes

    def subscriptions(
        self, without: Iterable[ConsumerGroupMember] = (), plus: ConsumerGroupMember | None = None
    ) -> Subscriptions:
        """The subscriptions after some members left, and one joined or changed."""
        names, regexes = dict(self._names), dict(self._regexes)
        for gone in without:
            _count_subscription(names, regexes, gone, -1)
        if plus is not None:
            _count_subscription(names, regexes, plus, 1)
        topics = set(names)
        for regex in regexes:
            resolved = self.resolved.get(regex)
            if resolved is not None:
                topics |= resolved.topics
        return Subscriptions(names, regexes, frozenset(topics))

    def topics_of(self, member: ConsumerGroupMember) -> frozenset[str]:
        """The topics that a member subscribes to, by name or by expression."""
        resolved = self.resolved.get(member.topic_regex)
        return member.topic_names if resolved is None else member.topic_names | resolved.topics

    def preferred_assignor(
        self, before: ConsumerGroupMember | None = None, after: ConsumerGroupMember | None = None
    ) -> str | None:
        """The assignor that most members ask for after a member's change.

        The member changes from `before` to `after`; None when no member asks for one.
        """
        counts = dict(self._assignors)
        if before is not None and before.server_assignor is not None:
            count(counts, before.server_assignor, -1)
        if after is not None and after.server_assignor is not None:
            count(counts, after.server_assignor, 1)
        return max(counts, key=lambda name: counts[name], default=None)

    def supports_classic_protocols(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a member with these classic protocols may join.

        One of them must be common to all members that use the classic protocol.
        """
        if protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        if self.is_empty:
            return any(True for _ in protocols)
        return any(self._classic_protocols.get(name, 0) == self.classic_count for name in protocols)

    def all_classic_without(self, members: Iterable[ConsumerGroupMember]) -> bool:
        """Whether all other members use the classic protocol."""
        gone = list(members)
        classic_gone = sum(1 for each in gone if each.classic is not None)
        return self.classic_count - classic_gone == len(self.members) - len(gone)

    # --- changes, by ConsumerReplay ---------------------------------------------------------------------------------

    def put(self, member: ConsumerGroupMember) -> None:
        """Add or replace a member."""
        before = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if before is None:
            self._tally(member, 1)
            self._own(member)
        else:
            if not _says_the_same(before, member):
                self._tally(before, -1)
                self._tally(member, 1)
            elif before.member_epoch != member.member_epoch or before.state is not member.state:
                # Most changes are steps to the target assignment.
                self._tally_progress(before, -1)
                self._tally_progress(member, 1)
            if before.assigned != member.assigned or before.pending_revocation != member.pending_revocation:
                self._disown(before)
                self._own(member)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> None:
        """Remove a member."""
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._tally(member, -1)
        self._disown(member)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]

    def _own(self, member: ConsumerGroupMember) -> None:
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, numbers in partitions.items():
                self._owners.setdefault(topic_id, {}).update(dict.fromkeys(numbers, member.member_id))

    def _disown(self, member: ConsumerGroupMember) -> None:
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, numbers in partitions.items():
                owners = self._owners.get(topic_id, {})
                for number in numbers:
                    # In a compacted log a later owner may come first.
                    if owners.get(number) == member.member_id:
                        del owners[number]
                if not owners:
                    self._owners.pop(topic_id, None)

    def _tally(self, member: ConsumerGroupMember, change: int) -> None:
        _count_subscription(self._names, self._regexes, member, change)
        if member.server_assignor is not None:
            count(self._assignors, member.server_assignor, change)
        if member.classic is not None:
            self.classic_count += change
            for name in {name for name, _ in member.classic.protocols}:
                count(self._classic_protocols, name, change)
        self._tally_progress(member, change)

    def _tally_progress(self, member: ConsumerGroupMember, change: int) -> None:
        if member.state is MemberState.STABLE:
            count(self._reconciled, member.member_epoch, change)

    # --- offsets ----------------------------------------------------------------------------------------------------

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        api_version: int,
        *,
        transactional: bool = False,
    ) -> None:
        """Check a member's commit; see Group.

        UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION, UNSUPPORTED_VERSION.
        """
        if generation_id < 0 and not self.members:
            return  # an administrator, or a consumer that assigns its partitions itself
        if transactional and generation_id == NO_GENERATION and not member_id and group_instance_id is None:
            return
        member = self.member(member_id)
        if not transactional and member.classic is None and api_version < FIRST_COMMIT_WITH_EPOCH:
            raise error_for(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the modern group protocol",
            )
        _validate_epoch(member, generation_id)

    def lease_terms(self) -> LeaseTerms | None:
        """See Group. None with members of the classic protocol."""
        if self.classic_count:
            return None
        members = [(each.member_id, None, each.member_epoch) for each in self.members.values()]
        oldest = FIRST_COMMIT_WITH_EPOCH if members else 0
        return LeaseTerms(members, not members, checks_instance=False, oldest_version=oldest)

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """See Group. UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION."""
        if member_id is None and member_epoch < 0:
            return  # an administrator, or a request that does not say
        _validate_epoch(self.member(member_id or ""), member_epoch)

    def validate_offset_delete(self) -> None:
        """See Group."""

    def is_subscribed_to(self, topic: str) -> bool:
        """See Group."""
        return topic in self._names or any(topic in each.topics for each in self.resolved.values())

    def expires_since_ms(self, offset: CommittedOffset) -> int | None:
        """See Group."""
        return offset.commit_timestamp_ms

    def tombstones(self) -> list[CoordinatorRecord]:
        """See Group."""
        return group_tombstones(self.group_id, self.members, self.resolved)


def has_left_for_a_while(member: ConsumerGroupMember) -> bool:
    """Whether a static member left for a while; it keeps its partitions."""
    return member.member_epoch == LEAVE_GROUP_STATIC_EPOCH


def _says_the_same(before: ConsumerGroupMember, after: ConsumerGroupMember) -> bool:
    """Whether a member's subscription, assignor and protocol are unchanged."""
    return (
        before.topic_names == after.topic_names
        and before.topic_regex == after.topic_regex
        and before.server_assignor == after.server_assignor
        and before.classic == after.classic
    )


def _validate_epoch(member: ConsumerGroupMember, received: int) -> None:
    if received == member.member_epoch:
        return
    if member.classic is not None:
        raise error_for(
            ErrorCode.ILLEGAL_GENERATION,
            f"The received generation id {received} does not match the expected member epoch {member.member_epoch}.",
        )
    raise error_for(
        ErrorCode.STALE_MEMBER_EPOCH,
        f"The received member epoch {received} does not match the expected member epoch {member.member_epoch}.",
    )


def _count_subscription(
    names: dict[str, int], regexes: dict[str, int], member: ConsumerGroupMember, change: int
) -> None:
    for name in member.topic_names:
        count(names, name, change)
    if member.topic_regex:
        count(regexes, member.topic_regex, change)
