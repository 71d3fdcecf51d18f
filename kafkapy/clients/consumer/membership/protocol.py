"""What members of a classic group of type "consumer" tell each other: subscriptions to the leader, assignments from it.

Both start with a version (int16), and a newer one is read as the newest that is known: fields are only ever appended.
Source: org.apache.kafka.clients.consumer.internals.ConsumerProtocol and ConsumerPartitionAssignor.
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
    """Which member of which group a consumer is; what a transactional producer sends with its offsets (KIP-447)."""

    group_id: str
    generation_id: int = NO_GENERATION_ID
    """The generation, or the member epoch of the consumer protocol; -1 outside the group."""
    member_id: str = ""
    group_instance_id: str | None = None
    state: str = MemberState.UNJOINED
    """Where the member was when it was asked, one of MemberState; of no interest to a producer."""


class Subscription(NamedTuple):
    """What a member tells the leader."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    """The assignor's own."""
    owned_partitions: tuple[TopicPartition, ...] = ()
    """What it has had and would like to keep; an eager member gives up everything before it joins and says nothing."""
    generation_id: int = NO_GENERATION_ID
    """The generation those partitions are from; -1 from members that do not say it."""
    rack_id: str | None = None
    group_instance_id: str | None = None
    """Not part of the bytes: the coordinator tells the leader."""


class Assignment(NamedTuple):
    """What the leader gives to a member."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


def group_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Topics in the order they come, each with its partitions in the order they come."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped


def encode_subscription(subscription: Subscription) -> bytes:
    """The metadata of a protocol of JoinGroup, in the newest version."""
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
    """A member of JoinGroup's response. DecodeError."""
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
    """An assignment of SyncGroup's request, in the newest version."""
    return ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartitions(topic=topic, partitions=numbers)
            for topic, numbers in group_by_topic(assignment.partitions).items()
        ],
        user_data=assignment.user_data,
    ).encode_versioned(ConsumerProtocolAssignment.VERSIONS.high)


def decode_assignment(assignment: bytes) -> Assignment:
    """The assignment of SyncGroup's response. DecodeError."""
    _, message = ConsumerProtocolAssignment.decode_versioned(assignment, newer_as_newest=True)
    return Assignment(
        tuple(TopicPartition(each.topic, number) for each in message.assigned_partitions for number in each.partitions),
        message.user_data,
    )
