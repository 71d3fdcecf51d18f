"""The embedded protocol of classic groups of type "consumer".

Members send subscriptions to the leader, and it sends assignments back. Both start with a version (int16); a newer
version is read as the newest known one, because versions only append fields. Source:
org.apache.kafka.clients.consumer.internals.ConsumerProtocol and ConsumerPartitionAssignor.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kafkapy.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafkapy.protocol.schema import DecodeError
from kafkapy.types import MemberState, TopicPartition

__all__ = [
    "NO_GENERATION_ID",
    "PROTOCOL_TYPE",
    "Assignment",
    "ConsumerGroupMetadata",
    "DecodeError",
    "Subscription",
    "decode_assignment",
    "decode_subscription",
    "encode_assignment",
    "encode_subscription",
    "group_by_topic",
]

PROTOCOL_TYPE = "consumer"
"""The protocol type of JoinGroup for consumers."""
NO_GENERATION_ID = -1


class ConsumerGroupMetadata(NamedTuple):
    """A consumer's group and member.

    A transactional producer sends it with offsets (KIP-447).
    """

    group_id: str
    generation_id: int = NO_GENERATION_ID
    """The generation, or the member epoch of the consumer protocol; -1 outside the group."""
    member_id: str = ""
    group_instance_id: str | None = None
    state: str = MemberState.UNJOINED
    """The member's state at that time, one of MemberState; producers ignore it."""


class Subscription(NamedTuple):
    """A member's subscription, for the leader."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    """The assignor's data."""
    owned_partitions: tuple[TopicPartition, ...] = ()
    """The member's previous partitions, which it wants to keep; eager members give up all partitions first and send
    none."""
    generation_id: int = NO_GENERATION_ID
    """The generation of the owned partitions; -1 from members that do not send it."""
    rack_id: str | None = None
    group_instance_id: str | None = None
    """Not part of the bytes: the coordinator sends it to the leader."""


class Assignment(NamedTuple):
    """A member's assignment from the leader."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


def group_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic, both in the given order."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped


def encode_subscription(subscription: Subscription) -> bytes:
    """The metadata of a JoinGroup protocol, in the newest version."""
    owned = group_by_topic(sorted(subscription.owned_partitions))
    return ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=[
            ConsumerProtocolSubscription.TopicPartitions(topic=topic, partitions=numbers)
            for topic, numbers in owned.items()
        ],
        generation_id=subscription.generation_id,
        rack_id=subscription.rack_id,
    ).encode_versioned(ConsumerProtocolSubscription.VERSIONS.high)


def decode_subscription(metadata: bytes, group_instance_id: str | None = None) -> Subscription:
    """The subscription of a member in JoinGroup's response. DecodeError."""
    _, message = ConsumerProtocolSubscription.decode_versioned(metadata, newer_as_newest=True)
    return Subscription(
        tuple(message.topics),
        message.user_data,
        tuple(TopicPartition(each.topic, number) for each in message.owned_partitions for number in each.partitions),
        max(message.generation_id, NO_GENERATION_ID),
        message.rack_id or None,
        group_instance_id,
    )


def encode_assignment(assignment: Assignment) -> bytes:
    """An assignment for a SyncGroup request, in the newest version."""
    return ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartitions(topic=topic, partitions=numbers)
            for topic, numbers in group_by_topic(assignment.partitions).items()
        ],
        user_data=assignment.user_data,
    ).encode_versioned(ConsumerProtocolAssignment.VERSIONS.high)


def decode_assignment(assignment: bytes) -> Assignment:
    """The assignment in a SyncGroup response. DecodeError."""
    _, message = ConsumerProtocolAssignment.decode_versioned(assignment, newer_as_newest=True)
    return Assignment(
        tuple(TopicPartition(each.topic, number) for each in message.assigned_partitions for number in each.partitions),
        message.user_data,
    )
