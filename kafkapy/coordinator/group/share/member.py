"""A share group's member. Source: org.apache.kafka.coordinator.group.modern.share.ShareGroupMember."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field, replace
from uuid import UUID

from kafkapy.coordinator.group.assignors.api import Partitions
from kafkapy.coordinator.group.modern.requests import JOIN_EPOCH
from kafkapy.errors import ErrorCode, error_for


@dataclass(frozen=True, slots=True)
class ShareGroupMember:
    """A member of a share group. Immutable: a change makes a new one."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    assigned: Partitions = field(default_factory=dict)

    def check_epoch(self, received: int) -> None:
        """Check the epoch of a heartbeat: FENCED_MEMBER_EPOCH.

        The previous epoch is valid: the member most likely has not got the answer with its new epoch. So is 0: the
        member joins again.
        """
        if received == JOIN_EPOCH:
            return
        known, previous = self.member_epoch, self.previous_member_epoch
        if received > known:
            than = f"greater member epoch ({received}) than the one known by the group coordinator ({known})."
        elif received < known and received != previous:
            than = (
                f"smaller member epoch ({received}) than the one known by the group coordinator ({known}), and it does "
                f"not match the previous member epoch ({previous})."
            )
        else:
            return
        raise error_for(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a {than} The member must abandon all its partitions and rejoin.",
        )

    def moved_to(self, target_epoch: int, target: Partitions, topic_ids: Container[UUID]) -> ShareGroupMember:
        """The member with its target assignment of an epoch, in one step.

        Others may have the same partitions.

        `topic_ids` are the topics that the member subscribes to; it gets no others. The same object when nothing
        changes. Source: ShareGroupAssignmentBuilder.
        """
        assigned = {topic_id: numbers for topic_id, numbers in target.items() if topic_id in topic_ids}
        if target_epoch != self.member_epoch:
            previous = self.member_epoch
            return replace(self, member_epoch=target_epoch, previous_member_epoch=previous, assigned=assigned)
        return self if assigned == self.assigned else replace(self, assigned=assigned)
