"""The base of groups of every type.

Source: org.apache.kafka.coordinator.group.Group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkapy.errors import ErrorCode, KafkaError, error_for

if TYPE_CHECKING:
    from kafkapy.coordinator.group.offsets import CommittedOffset
    from kafkapy.coordinator.records import CoordinatorRecord


class GroupType(Enum):
    """The protocol of a group; the values are Kafka's names."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


MOST_UNUSED_LEASES: Final = 6


class LeaseTerms(NamedTuple):
    """The OffsetCommits that network threads may serve for a group."""

    members: Sequence[tuple[str, str | None, int]] = ()
    """Member id, group.instance.id, and the generation or member epoch."""
    without_member: bool = False
    """Whether consumers may commit that assign their partitions themselves."""
    checks_instance: bool = True
    """Whether a commit's group.instance.id must be its member's."""
    oldest_version: int = 0
    """Of OffsetCommit."""


class Group(ABC):
    """One group: its members and the checks of its offsets.

    Owned by a GroupShard; used on the control loop's thread.
    """

    type: GroupType
    members: Mapping[str, object]
    """By member id."""
    may_expire: bool = True
    """Whether the group goes when it has had no members and no offsets for a while."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self._unused_leases = 0
        """The last leases in a row that have served nobody."""
        self._lease_pause = 0
        """Commits until the group asks for a lease again."""

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The state as ListGroups and DescribeGroups show it."""

    @property
    @abstractmethod
    def protocol_type(self) -> str | None:
        """The protocol type of the members ("consumer", "connect").

        None for a group that only stores offsets.
        """

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the group has no members, so that it may be deleted."""

    @abstractmethod
    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        api_version: int,
        *,
        transactional: bool = False,
    ) -> None:
        """Check a member's commit; raises the error that it gets."""

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Check a member's fetch; raises the error that it gets.

        GROUP_ID_NOT_FOUND makes all offsets unknown.
        """
        del member_id, member_epoch

    @abstractmethod
    def validate_offset_delete(self) -> None:
        """Check a deletion of offsets; raises the error that it gets."""

    def validate_delete(self) -> None:
        """Check the deletion of the group; raises the error that it gets."""
        if not self.is_empty:
            raise error_for(ErrorCode.NON_EMPTY_GROUP)

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read the topic now.

        Its offsets then do not expire, and cannot be deleted.
        """

    @abstractmethod
    def expires_since_ms(self, offset: CommittedOffset) -> int | None:
        """The start of an offset's retention (KIP-211), in ms.

        None while the offset does not expire.
        """

    @abstractmethod
    def tombstones(self) -> list[CoordinatorRecord]:
        """The tombstones of the group itself, without those of its offsets."""

    def unloaded(self, error: KafkaError) -> None:
        """Fail all waiting requests: another broker coordinates the group now."""
        del error

    def wants_lease(self) -> bool:
        """Whether a lease is worth its price now; asked after each commit without one.

        A group whose leases serve nobody asks for them less and less often.
        """
        self._lease_pause -= 1
        return self._lease_pause < 0

    def lease_ended(self, used: bool) -> None:
        """Note the end of a lease, and whether it has served a commit."""
        self._unused_leases = 0 if used else min(self._unused_leases + 1, MOST_UNUSED_LEASES)
        self._lease_pause = (1 << self._unused_leases) - 1

    def lease_terms(self) -> LeaseTerms | None:
        """The OffsetCommits that network threads may serve as things are; None: none."""
        return None

    def committed(self, member_id: str, at_ms: int) -> None:
        """Note a commit by a network thread, at a monotonic time in ms."""
        del member_id, at_ms

    def offset_commit_seen(self, member_id: str) -> bool:
        """Whether a commit of the member counts as a heartbeat."""
        del member_id
        return False
