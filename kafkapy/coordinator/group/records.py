"""The records of groups in __consumer_offsets, in the versions that Kafka 4.4 writes.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers and the schemas of its records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkapy.coordinator.records import CoordinatorRecord, RecordTypes
from kafkapy.protocol.messages import consumer_group_records as consumer
from kafkapy.protocol.messages import share_group_records as share
from kafkapy.protocol.messages.group_metadata_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

if TYPE_CHECKING:
    from kafkapy.coordinator.group.offsets import CommittedOffset

OFFSET_COMMIT_KEY: Final = 1
OFFSET_COMMIT_VALUE: Final = 3
OFFSET_COMMIT_VALUE_WITH_EXPIRY: Final = 1
"""The only version with a retention that the client chose (requests up to version 4)."""
GROUP_METADATA_KEY: Final = 2
GROUP_METADATA_VALUE: Final = 3

GROUP_RECORDS: Final = RecordTypes(
    {
        0: (OffsetCommitKey, OffsetCommitValue),
        OFFSET_COMMIT_KEY: (OffsetCommitKey, OffsetCommitValue),
        GROUP_METADATA_KEY: (GroupMetadataKey, GroupMetadataValue),
        3: (consumer.ConsumerGroupMetadataKey, consumer.ConsumerGroupMetadataValue),
        4: (consumer.ConsumerGroupPartitionMetadataKey, consumer.ConsumerGroupPartitionMetadataValue),
        5: (consumer.ConsumerGroupMemberMetadataKey, consumer.ConsumerGroupMemberMetadataValue),
        6: (consumer.ConsumerGroupTargetAssignmentMetadataKey, consumer.ConsumerGroupTargetAssignmentMetadataValue),
        7: (consumer.ConsumerGroupTargetAssignmentMemberKey, consumer.ConsumerGroupTargetAssignmentMemberValue),
        8: (consumer.ConsumerGroupCurrentMemberAssignmentKey, consumer.ConsumerGroupCurrentMemberAssignmentValue),
        10: (share.ShareGroupMemberMetadataKey, share.ShareGroupMemberMetadataValue),
        11: (share.ShareGroupMetadataKey, share.ShareGroupMetadataValue),
        12: (share.ShareGroupTargetAssignmentMetadataKey, share.ShareGroupTargetAssignmentMetadataValue),
        13: (share.ShareGroupTargetAssignmentMemberKey, share.ShareGroupTargetAssignmentMemberValue),
        14: (share.ShareGroupCurrentMemberAssignmentKey, share.ShareGroupCurrentMemberAssignmentValue),
        15: (share.ShareGroupStatePartitionMetadataKey, share.ShareGroupStatePartitionMetadataValue),
        16: (consumer.ConsumerGroupRegularExpressionKey, consumer.ConsumerGroupRegularExpressionValue),
    }
)


def offset_commit(group_id: str, topic: str, partition: int, offset: CommittedOffset) -> CoordinatorRecord:
    """The record of a committed offset."""
    value = OffsetCommitValue(
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp=offset.commit_timestamp_ms,
    )
    version = OFFSET_COMMIT_VALUE
    if offset.expire_timestamp_ms is not None:
        value.expire_timestamp = offset.expire_timestamp_ms
        version = OFFSET_COMMIT_VALUE_WITH_EXPIRY
    return CoordinatorRecord(_offset_key(group_id, topic, partition), OFFSET_COMMIT_KEY, value, version)


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    """The tombstone of a committed offset."""
    return CoordinatorRecord(_offset_key(group_id, topic, partition), OFFSET_COMMIT_KEY, None)


def _offset_key(group_id: str, topic: str, partition: int) -> OffsetCommitKey:
    return OffsetCommitKey(group=group_id, topic=topic, partition=partition)


def group_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """The tombstone of a classic group."""
    return CoordinatorRecord(GroupMetadataKey(group=group_id), GROUP_METADATA_KEY, None)
