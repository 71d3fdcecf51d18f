"""The records of consumer groups in __consumer_offsets, as Kafka 4.1 writes them (KIP-848, KIP-1101).

Source: org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kafkapy.coordinator.group.consumer.member import ClassicMetadata
from kafkapy.coordinator.group.modern.partitions import listed_as
from kafkapy.coordinator.records import CoordinatorRecord
from kafkapy.protocol.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartitions,
)

if TYPE_CHECKING:
    from kafkapy.coordinator.group.assignors.api import Partitions
    from kafkapy.coordinator.group.consumer.member import ConsumerGroupMember
    from kafkapy.coordinator.group.consumer.subscriptions import ResolvedRegex

EPOCH_KEY: Final = 3
SUBSCRIPTION_METADATA_KEY: Final = 4
"""The key version of the subscription metadata of Kafka up to 4.0.

The hash in the record of the epoch replaces them.
"""
MEMBER_KEY: Final = 5
TARGET_EPOCH_KEY: Final = 6
TARGET_MEMBER_KEY: Final = 7
CURRENT_ASSIGNMENT_KEY: Final = 8
REGULAR_EXPRESSION_KEY: Final = 16

CONSUMER_GROUP_KEYS: Final = (
    EPOCH_KEY,
    SUBSCRIPTION_METADATA_KEY,
    MEMBER_KEY,
    TARGET_EPOCH_KEY,
    TARGET_MEMBER_KEY,
    CURRENT_ASSIGNMENT_KEY,
    REGULAR_EXPRESSION_KEY,
)

_SupportedProtocol = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata.SupportedProtocol


# --- values -----------------------------------------------------------------------------------------------------------


def epoch(group_id: str, group_epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """The record of a group's epoch, with the hash of its topics."""
    value = ConsumerGroupMetadataValue(epoch=group_epoch, metadata_hash=metadata_hash)
    return CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), EPOCH_KEY, value)


def member(group_id: str, each: ConsumerGroupMember) -> CoordinatorRecord:
    """The record of a member and its subscriptions."""
    value = ConsumerGroupMemberMetadataValue(
        instance_id=each.instance_id,
        rack_id=each.rack_id,
        client_id=each.client_id,
        client_host=each.client_host,
        subscribed_topic_names=sorted(each.topic_names),
        subscribed_topic_regex=each.topic_regex,
        rebalance_timeout_ms=each.rebalance_timeout_ms,
        server_assignor=each.server_assignor,
        classic_member_metadata=_classic(each.classic),
    )
    return CoordinatorRecord(_member_key(group_id, each.member_id), MEMBER_KEY, value)


def _classic(classic: ClassicMetadata | None) -> ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None:
    if classic is None:
        return None
    return ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=[_SupportedProtocol(name=name, metadata=data) for name, data in classic.protocols],
    )


def target_epoch(group_id: str, assignment_epoch: int) -> CoordinatorRecord:
    """The record of the target assignment's epoch."""
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=assignment_epoch)
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), TARGET_EPOCH_KEY, value)


def target(group_id: str, member_id: str, partitions: Partitions) -> CoordinatorRecord:
    """The record of a member's target assignment."""
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=listed_as(ConsumerGroupTargetAssignmentMemberValue.TopicPartitions, partitions)
    )
    return CoordinatorRecord(_target_key(group_id, member_id), TARGET_MEMBER_KEY, value)


def current_assignment(group_id: str, each: ConsumerGroupMember) -> CoordinatorRecord:
    """The record of a member's partitions, kept and to be revoked."""
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=each.member_epoch,
        previous_member_epoch=each.previous_member_epoch,
        state=each.state,
        assigned_partitions=listed_as(TopicPartitions, each.assigned),
        partitions_pending_revocation=listed_as(TopicPartitions, each.pending_revocation),
    )
    return CoordinatorRecord(_current_key(group_id, each.member_id), CURRENT_ASSIGNMENT_KEY, value)


def regular_expression(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    """The record of the topics that an expression matches."""
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return CoordinatorRecord(_regex_key(group_id, regex), REGULAR_EXPRESSION_KEY, value)


# --- tombstones -------------------------------------------------------------------------------------------------------


def regular_expression_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    """The tombstone of an expression without subscribers."""
    return CoordinatorRecord(_regex_key(group_id, regex), REGULAR_EXPRESSION_KEY, None)


def subscription_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """The tombstone of the topic metadata of versions before 4.1."""
    return CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), SUBSCRIPTION_METADATA_KEY, None)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """The tombstones of a removed member, in Kafka's order.

    Kafka's replay insists that a member gives up all its partitions first.
    """
    return [
        CoordinatorRecord(_current_key(group_id, member_id), CURRENT_ASSIGNMENT_KEY, None),
        CoordinatorRecord(_target_key(group_id, member_id), TARGET_MEMBER_KEY, None),
        CoordinatorRecord(_member_key(group_id, member_id), MEMBER_KEY, None),
    ]


def group_tombstones(group_id: str, members: Iterable[str], regexes: Iterable[str]) -> list[CoordinatorRecord]:
    """The tombstones of a group, its members and its expressions.

    `members` are ids. Kafka's replay needs this order.
    """
    ids = list(members)
    return [
        *(CoordinatorRecord(_current_key(group_id, each), CURRENT_ASSIGNMENT_KEY, None) for each in ids),
        *(CoordinatorRecord(_target_key(group_id, each), TARGET_MEMBER_KEY, None) for each in ids),
        CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), TARGET_EPOCH_KEY, None),
        *(CoordinatorRecord(_member_key(group_id, each), MEMBER_KEY, None) for each in ids),
        *(regular_expression_tombstone(group_id, regex) for regex in regexes),
        subscription_metadata_tombstone(group_id),
        CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), EPOCH_KEY, None),
    ]


# --- keys -------------------------------------------------------------------------------------------------------------


def _member_key(group_id: str, member_id: str) -> ConsumerGroupMemberMetadataKey:
    return ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)


def _target_key(group_id: str, member_id: str) -> ConsumerGroupTargetAssignmentMemberKey:
    return ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)


def _current_key(group_id: str, member_id: str) -> ConsumerGroupCurrentMemberAssignmentKey:
    return ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)


def _regex_key(group_id: str, regex: str) -> ConsumerGroupRegularExpressionKey:
    return ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
