"""What groups of every type have in common. Source: org.apache.kafka.coordinator.group.Group."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING

from kafkapy.errors import ErrorCode, KafkaError, error_for

if TYPE_CHECKING:
    from kafkapy.coordinator.group.offsets import CommittedOffset
    from kafkapy.coordinator.records import CoordinatorRecord


class GroupType(Enum):
    """The protocol a group speaks; the values are Kafka's names."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


class Group(ABC):
    """One group: its members and what may be done with its offsets. Owned by a GroupShard; used on the control loop's
    thread.
    """

    type: GroupType

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The state as ListGroups and DescribeGroups show it."""

    @property
    @abstractmethod
    def protocol_type(self) -> str | None:
        """What kind of members it has ("consumer", "connect"); None for a group that only stores offsets."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether it has no members, so that it may be deleted."""

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
        """Raises the error that a commit of that member gets."""

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises the error that a fetch of that member gets. GROUP_ID_NOT_FOUND makes all offsets unknown."""
        del member_id, member_epoch

    @abstractmethod
    def validate_offset_delete(self) -> None:
        """Raises the error that a deletion of offsets gets."""

    def validate_delete(self) -> None:
        """Raises the error that the deletion of the group gets."""
        if not self.is_empty:
            raise error_for(ErrorCode.NON_EMPTY_GROUP)

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read the topic now: its offsets neither expire nor can they be deleted."""

    @abstractmethod
    def expires_since_ms(self, offset: CommittedOffset) -> int | None:
        """From when on the retention of an offset is counted (KIP-211); None while it does not expire."""

    @abstractmethod
    def tombstones(self) -> list[CoordinatorRecord]:
        """What has to be written when the group goes away; its offsets have tombstones of their own."""

    def unloaded(self, error: KafkaError) -> None:
        """This broker coordinates the group no more: fail what waits."""
        del error

    def offset_commit_seen(self, member_id: str) -> bool:
        """Whether a commit of the member counts as a heartbeat of it."""
        del member_id
        return False
