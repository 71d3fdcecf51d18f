"""The longer requests of the classic protocol."""

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
"""Largest number of characters of the reason in JoinGroup and LeaveGroup."""
SEVERAL_LEAVE_SINCE = 3
"""The first LeaveGroup version with several members."""


def join_protocols(
    assignors: Iterable[ConsumerPartitionAssignor],
    topics: frozenset[str],
    member: ConsumerGroupMetadata,
    owned: tuple[TopicPartition, ...],
    rack: str | None,
) -> list[JoinGroupRequest.Protocol]:
    """The member's metadata for the leader per assignor, the preferred one first."""
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
    """A LeaveGroup request for one member; old versions have no reason."""

    def build(version: int) -> LeaveGroupRequest:
        if version < SEVERAL_LEAVE_SINCE:
            return LeaveGroupRequest(group_id=member.group_id, member_id=member.member_id)
        leaving = LeaveGroupRequest.Member(member_id=member.member_id, reason=reason[:LONGEST_REASON])
        return LeaveGroupRequest(group_id=member.group_id, members=[leaving])

    return RequestOf(LeaveGroupRequest, build)
