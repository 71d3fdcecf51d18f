"""Requests of the classic protocol that take more than a line to make."""

from __future__ import annotations

from collections.abc import Iterable

from kafkapy.clients.consumer.membership.assignors.api import ConsumerPartitionAssignor
from kafkapy.clients.consumer.membership.protocol import ConsumerGroupMetadata, Subscription, encode_subscription
from kafkapy.clients.network_client import RequestOf
from kafkapy.protocol.messages.join_group import JoinGroupRequest
from kafkapy.protocol.messages.leave_group import LeaveGroupRequest
from kafkapy.types import TopicPartition

__all__ = ["LONGEST_REASON", "join_protocols", "leave_request"]

LONGEST_REASON = 255
"""Characters of the reason in JoinGroup and LeaveGroup."""
SEVERAL_LEAVE_SINCE = 3
"""LeaveGroup takes several members since then."""


def join_protocols(
    assignors: Iterable[ConsumerPartitionAssignor],
    topics: frozenset[str],
    member: ConsumerGroupMetadata,
    owned: tuple[TopicPartition, ...],
    rack: str | None,
) -> list[JoinGroupRequest.Protocol]:
    """What the member tells the leader through each of its assignors, the preferred one first."""
    return [
        JoinGroupRequest.Protocol(
            name=assignor.name,
            metadata=encode_subscription(
                Subscription(tuple(topics), assignor.subscription_user_data(topics), owned, member.generation_id, rack)
            ),
        )
        for assignor in assignors
    ]


def leave_request(member: ConsumerGroupMetadata, reason: str) -> RequestOf:
    """The member leaves; in old versions without a reason."""

    def build(version: int) -> LeaveGroupRequest:
        if version < SEVERAL_LEAVE_SINCE:
            return LeaveGroupRequest(group_id=member.group_id, member_id=member.member_id)
        leaving = LeaveGroupRequest.Member(member_id=member.member_id, reason=reason[:LONGEST_REASON])
        return LeaveGroupRequest(group_id=member.group_id, members=[leaving])

    return RequestOf(LeaveGroupRequest, build)
