"""The records of share groups in __consumer_offsets, as Kafka 4.4 writes them (KIP-932).

Source: org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kafkapy.coordinator.group.modern.partitions import listed_as
from kafkapy.coordinator.records import CoordinatorRecord
from kafkapy.protocol.messages.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)

if TYPE_CHECKING:
    from kafkapy.coordinator.group.assignors.api import Partitions
    from kafkapy.coordinator.group.share.member import ShareGroupMember
    from kafkapy.coordinator.group.share.state_partitions import StatePartitions, StateTopics

MEMBER_KEY: Final = 10
EPOCH_KEY: Final = 11
TARGET_EPOCH_KEY: Final = 12
TARGET_MEMBER_KEY: Final = 13
CURRENT_ASSIGNMENT_KEY: Final = 14
STATE_PARTITIONS_KEY: Final = 15

SHARE_GROUP_KEYS: Final = (
    MEMBER_KEY,
    EPOCH_KEY,
    TARGET_EPOCH_KEY,
    TARGET_MEMBER_KEY,
    CURRENT_ASSIGNMENT_KEY,
    STATE_PARTITIONS_KEY,
)

STABLE: Final = 0
"""The only state of a member: it takes its target assignment in one step."""

_StateValue = ShareGroupStatePartitionMetadataValue


def member(group_id: str, each: ShareGroupMember) -> CoordinatorRecord:
    """The record of a member and its subscription."""
    value = ShareGroupMemberMetadataValue(
        rack_id=each.rack_id,
        client_id=each.client_id,
        client_host=each.client_host,
        subscribed_topic_names=sorted(each.topic_names),
    )
    key = ShareGroupMemberMetadataKey(group_id=group_id, member_id=each.member_id)
    return CoordinatorRecord(key, MEMBER_KEY, value)


def epoch(group_id: str, group_epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """The record of a group's epoch, with the hash of its topics."""
    value = ShareGroupMetadataValue(epoch=group_epoch, metadata_hash=metadata_hash)
    return CoordinatorRecord(ShareGroupMetadataKey(group_id=group_id), EPOCH_KEY, value)


def target_epoch(group_id: str, assignment_epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    """The record of the target assignment's epoch, and of its time."""
    value = ShareGroupTargetAssignmentMetadataValue(
        assignment_epoch=assignment_epoch, assignment_timestamp=timestamp_ms
    )
    return CoordinatorRecord(ShareGroupTargetAssignmentMetadataKey(group_id=group_id), TARGET_EPOCH_KEY, value)


def target(group_id: str, member_id: str, partitions: Partitions) -> CoordinatorRecord:
    """The record of a member's target assignment."""
    made = ShareGroupTargetAssignmentMemberValue
    value = made(topic_partitions=listed_as(made.TopicPartitions, partitions))
    return CoordinatorRecord(_target_key(group_id, member_id), TARGET_MEMBER_KEY, value)


def current_assignment(group_id: str, each: ShareGroupMember) -> CoordinatorRecord:
    """The record of a member's partitions."""
    made = ShareGroupCurrentMemberAssignmentValue
    value = made(
        member_epoch=each.member_epoch,
        previous_member_epoch=each.previous_member_epoch,
        state=STABLE,
        assigned_partitions=listed_as(made.TopicPartitions, each.assigned),
    )
    return CoordinatorRecord(_current_key(group_id, each.member_id), CURRENT_ASSIGNMENT_KEY, value)


def state_partitions(group_id: str, state: StatePartitions) -> CoordinatorRecord:
    """The record of the share-partitions of a group."""
    value = _StateValue(
        initializing_topics=_topics(state.initializing),
        initialized_topics=_topics(state.initialized),
        deleting_topics=[
            _StateValue.TopicInfo(topic_id=topic_id, topic_name=name) for topic_id, name in state.deleting.items()
        ],
    )
    return CoordinatorRecord(ShareGroupStatePartitionMetadataKey(group_id=group_id), STATE_PARTITIONS_KEY, value)


def _topics(topics: StateTopics) -> list[_StateValue.TopicPartitionsInfo]:
    return [
        _StateValue.TopicPartitionsInfo(topic_id=topic_id, topic_name=name, partitions=sorted(partitions))
        for topic_id, (name, partitions) in topics.items()
    ]


# --- tombstones -------------------------------------------------------------------------------------------------------


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """The tombstones of a removed member, in Kafka's order."""
    return [
        CoordinatorRecord(_current_key(group_id, member_id), CURRENT_ASSIGNMENT_KEY, None),
        CoordinatorRecord(_target_key(group_id, member_id), TARGET_MEMBER_KEY, None),
        CoordinatorRecord(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), MEMBER_KEY, None),
    ]


def group_tombstones(group_id: str, members: Iterable[str]) -> list[CoordinatorRecord]:
    """The tombstones of a group and its members, in the order of Kafka's replay."""
    ids = list(members)
    keys = [ShareGroupMemberMetadataKey(group_id=group_id, member_id=each) for each in ids]
    return [
        *(CoordinatorRecord(_current_key(group_id, each), CURRENT_ASSIGNMENT_KEY, None) for each in ids),
        *(CoordinatorRecord(_target_key(group_id, each), TARGET_MEMBER_KEY, None) for each in ids),
        CoordinatorRecord(ShareGroupTargetAssignmentMetadataKey(group_id=group_id), TARGET_EPOCH_KEY, None),
        *(CoordinatorRecord(key, MEMBER_KEY, None) for key in keys),
        CoordinatorRecord(ShareGroupStatePartitionMetadataKey(group_id=group_id), STATE_PARTITIONS_KEY, None),
        CoordinatorRecord(ShareGroupMetadataKey(group_id=group_id), EPOCH_KEY, None),
    ]


# --- keys -------------------------------------------------------------------------------------------------------------


def _target_key(group_id: str, member_id: str) -> ShareGroupTargetAssignmentMemberKey:
    return ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)


def _current_key(group_id: str, member_id: str) -> ShareGroupCurrentMemberAssignmentKey:
    return ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
