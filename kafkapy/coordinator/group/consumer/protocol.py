"""The classic protocol's subscriptions and assignments, for groups of both protocols.

Source: org.apache.kafka.clients.consumer.internals.ConsumerProtocol; Utils of the group coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from kafkapy.coordinator.group.assignors.api import Partitions
from kafkapy.coordinator.group.classic.group import Protocols
from kafkapy.metadata.cache import MetadataSnapshot
from kafkapy.protocol.messages.consumer_group_records import TopicPartitions
from kafkapy.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafkapy.protocol.schema import DecodeError

__all__ = [
    "DecodeError",
    "decode_assignment",
    "decode_subscription",
    "encode_assignment",
    "owned_partitions",
    "partitions_by_id",
    "version_of",
]


def decode_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """A consumer's subscription, as its leader gets it. DecodeError."""
    return ConsumerProtocolSubscription.decode_versioned(metadata, newer_as_newest=True)[1]


def decode_assignment(assignment: bytes) -> ConsumerProtocolAssignment:
    """A leader's assignment for a member. DecodeError."""
    return ConsumerProtocolAssignment.decode_versioned(assignment, newer_as_newest=True)[1]


def version_of(protocols: Protocols) -> int:
    """The version of the consumer protocol in a member's preferred protocol."""
    metadata = protocols[0][1] if protocols else b""
    if len(metadata) < 2:
        raise DecodeError(f"{len(metadata)} bytes cannot hold a version")
    return int.from_bytes(metadata[:2], "big", signed=True)


def encode_assignment(partitions: Partitions, snapshot: MetadataSnapshot, version: int) -> bytes:
    """Partitions as an assignment of the classic protocol.

    Deleted topics are left out.
    """
    assigned = [
        ConsumerProtocolAssignment.TopicPartitions(topic=snapshot.topic_names[topic_id], partitions=sorted(numbers))
        for topic_id, numbers in partitions.items()
        if topic_id in snapshot.topic_names
    ]
    versions = ConsumerProtocolAssignment.VERSIONS
    return ConsumerProtocolAssignment(assigned_partitions=assigned).encode_versioned(
        max(versions.low, min(version, versions.high))
    )


def partitions_by_id(
    listed: Iterable[ConsumerProtocolAssignment.TopicPartitions | ConsumerProtocolSubscription.TopicPartitions],
    snapshot: MetadataSnapshot,
) -> dict[UUID, frozenset[int]]:
    """Partitions with topic ids in place of names; deleted topics are left out."""
    found: dict[UUID, frozenset[int]] = {}
    for each in listed:
        topic = snapshot.topic(each.topic)
        if topic is not None and each.partitions:
            found[topic.topic_id] = found.get(topic.topic_id, frozenset()) | frozenset(each.partitions)
    return found


def owned_partitions(subscription: ConsumerProtocolSubscription, snapshot: MetadataSnapshot) -> list[TopicPartitions]:
    """A classic member's owned partitions, in the form of the consumer protocol."""
    by_id = partitions_by_id(subscription.owned_partitions, snapshot)
    return [TopicPartitions(topic_id=topic_id, partitions=sorted(numbers)) for topic_id, numbers in by_id.items()]
