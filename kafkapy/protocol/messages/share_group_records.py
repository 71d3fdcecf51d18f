"""Records of share groups (KIP-932) in __consumer_offsets."""

from uuid import UUID

from kafkapy.protocol.schema import Record, Struct, array, int8, int32, int64, string, uuid


class ShareGroupMemberMetadataKey(Record, versions="10"):
    """Key of a member of a share group."""

    group_id: str = string()
    member_id: str = string()


class ShareGroupMemberMetadataValue(Record, versions="0", flexible="0+"):
    """A member of a share group."""

    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)


class ShareGroupMetadataKey(Record, versions="11"):
    """Key of the epoch of a share group in __consumer_offsets."""

    group_id: str = string()


class ShareGroupMetadataValue(Record, versions="0", flexible="0+"):
    """The epoch of a share group, with a hash over its topics (KIP-1101)."""

    epoch: int = int32()
    metadata_hash: int = int64()


class ShareGroupTargetAssignmentMetadataKey(Record, versions="12"):
    """Key of the epoch of a share group's target assignment."""

    group_id: str = string()


class ShareGroupTargetAssignmentMetadataValue(Record, versions="0", flexible="0+"):
    """The epoch of a target assignment, since 4.4 also its Unix time in ms."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(default=0, tag=0)


class ShareGroupTargetAssignmentMemberKey(Record, versions="13"):
    """Key of a member's target assignment."""

    group_id: str = string()
    member_id: str = string()


class ShareGroupTargetAssignmentMemberValue(Record, versions="0", flexible="0+"):
    """The partitions that a member is to get."""

    class TopicPartitions(Struct):
        topic_id: UUID = uuid()
        partitions: list[int] = array(int32)

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ShareGroupCurrentMemberAssignmentKey(Record, versions="14"):
    """Key of a member's current assignment."""

    group_id: str = string()
    member_id: str = string()


class ShareGroupCurrentMemberAssignmentValue(Record, versions="0", flexible="0+"):
    """The partitions that a member has."""

    class TopicPartitions(Struct):
        topic_id: UUID = uuid()
        partitions: list[int] = array(int32)

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)


class ShareGroupStatePartitionMetadataKey(Record, versions="15"):
    """Key of the share-partitions whose state a share group has."""

    group_id: str = string()


class ShareGroupStatePartitionMetadataValue(Record, versions="0", flexible="0+"):
    """The share-partitions of a group that get or have a state; topics losing it."""

    class TopicPartitionsInfo(Struct):
        topic_id: UUID = uuid()
        topic_name: str = string()
        partitions: list[int] = array(int32)

    class TopicInfo(Struct):
        topic_id: UUID = uuid()
        topic_name: str = string()

    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = array(TopicInfo)
