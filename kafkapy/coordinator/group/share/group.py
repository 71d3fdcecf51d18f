"""One share group (KIP-932): epochs, members, target assignment, share-partitions with a state.

Its requests are in requests.py and offsets.py; only replay.py changes the state that is in the log. Source:
org.apache.kafka.coordinator.group.modern.share.ShareGroup.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kafkapy.coordinator.group.assignors.api import Partitions
from kafkapy.coordinator.group.group import GroupType
from kafkapy.coordinator.group.modern.group import ModernGroup, Subscriptions, count
from kafkapy.coordinator.group.share.member import ShareGroupMember
from kafkapy.coordinator.group.share.records import group_tombstones
from kafkapy.coordinator.group.share.state_partitions import StatePartitions, StateTopics
from kafkapy.errors import ErrorCode, KafkaError, error_for

if TYPE_CHECKING:
    from kafkapy.coordinator.group.offsets import CommittedOffset
    from kafkapy.coordinator.records import CoordinatorRecord

PROTOCOL_TYPE: Final = "share"


class ShareGroupState(Enum):
    """The state of a share group; the values are Kafka's names."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareGroup(ModernGroup[ShareGroupMember]):
    """One share group.

    Owned by a GroupShard; changed by ShareReplay, on the control loop's thread.
    """

    type = GroupType.SHARE
    may_expire = False

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        # As in Apache Kafka 4.4: a member that changes nothing has an epoch, too.
        self.epoch = self.assignment_epoch = 1
        self.state_partitions = StatePartitions()
        self.assigned_from: StateTopics | None = None
        """The initialized partitions that the last target assignment was made from. Not in the log."""
        self._names: dict[str, int] = {}
        self._targeted: dict[UUID, dict[int, int]] = {}
        """Topic id to partition to the number of members that are to get it."""

    @property
    def state(self) -> ShareGroupState:
        """The state. Members take their assignment in one step: no group reconciles."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def state_name(self) -> str:
        """See Group."""
        return self.state.value

    @property
    def protocol_type(self) -> str | None:
        """See Group."""
        return PROTOCOL_TYPE

    @property
    def is_settled(self) -> bool:
        """See ModernGroup."""
        return not self.members or self.epoch <= self.assignment_epoch

    @property
    def waits_for_assignment(self) -> bool:
        """Whether initialized partitions of subscribed topics are not those that members are to get.

        They become assignable when their state has been initialized, which no change of the group's topics tells. An
        assignment that is still to come will have them.
        """
        initialized = self.state_partitions.initialized
        if initialized is self.assigned_from or not self.members or self.epoch > self.assignment_epoch:
            return False
        return any(
            self._targeted.get(topic_id, {}).keys() != topic.partitions
            for topic_id, topic in initialized.items()
            if topic.name in self._names
        )

    # --- subscriptions ----------------------------------------------------------------------------------------------

    def subscriptions(
        self, without: Iterable[ShareGroupMember] = (), plus: ShareGroupMember | None = None
    ) -> Subscriptions:
        """See ModernGroup."""
        names = dict(self._names)
        for gone in without:
            _count_names(names, gone, -1)
        if plus is not None:
            _count_names(names, plus, 1)
        return Subscriptions(names, {}, frozenset(names))

    # --- changes, by ShareReplay ------------------------------------------------------------------------------------

    def put(self, member: ShareGroupMember) -> None:
        """Add or replace a member."""
        before = self.members.get(member.member_id)
        if before is not None:
            _count_names(self._names, before, -1)
        self.members[member.member_id] = member
        _count_names(self._names, member, 1)

    def remove(self, member_id: str) -> None:
        """Remove a member."""
        member = self.members.pop(member_id, None)
        if member is not None:
            _count_names(self._names, member, -1)

    def set_target(self, member_id: str, partitions: Partitions | None) -> None:
        """Replace a member's target assignment; None removes it."""
        before = self.target.pop(member_id, None)
        if before is not None:
            self._count_target(before, -1)
        if partitions is not None:
            self.target[member_id] = partitions
            self._count_target(partitions, 1)

    def _count_target(self, partitions: Partitions, change: int) -> None:
        for topic_id, numbers in partitions.items():
            counts = self._targeted.setdefault(topic_id, {})
            for number in numbers:
                count(counts, number, change)
            if not counts:
                del self._targeted[topic_id]

    # --- offsets and deletion ---------------------------------------------------------------------------------------

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        api_version: int,
        *,
        transactional: bool = False,
    ) -> None:
        """Refuse every commit: GROUP_ID_NOT_FOUND. A share group has no committed offsets."""
        raise self._no_consumer_group()

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """See Group. GROUP_ID_NOT_FOUND."""
        raise self._no_consumer_group()

    def validate_offset_delete(self) -> None:
        """See Group. GROUP_ID_NOT_FOUND."""
        raise self._no_consumer_group()

    def _no_consumer_group(self) -> KafkaError:
        return error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group.")

    def is_subscribed_to(self, topic: str) -> bool:
        """See Group."""
        return topic in self._names

    def expires_since_ms(self, offset: CommittedOffset) -> int | None:
        """See Group. A share group expires never: only an administrator deletes it."""
        return None

    def tombstones(self) -> list[CoordinatorRecord]:
        """See Group."""
        return group_tombstones(self.group_id, self.members)


def _count_names(names: dict[str, int], member: ShareGroupMember, change: int) -> None:
    for name in member.topic_names:
        count(names, name, change)
