"""Records of consumer groups (KIP-848) in __consumer_offsets."""

from uuid import UUID

from kafkapy.protocol.schema import Record, Struct, array, bytes_, int8, int32, int64, string, struct, uuid


class ConsumerGroupCurrentMemberAssignmentKey(Record, versions="8"):
    """Key of a member's current assignment."""

    group_id: str = string()
    member_id: str = string()


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: UUID = uuid()
    partitions: list[int] = array(int32)


class ConsumerGroupCurrentMemberAssignmentValue(Record, versions="0", flexible="0+"):
    """The partitions that a member has and those it has yet to give up."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupMemberMetadataKey(Record, versions="5"):
    """Key of a member of a consumer group."""

    group_id: str = string()
    member_id: str = string()


class ConsumerGroupMemberMetadataValue(Record, versions="0", flexible="0+"):
    """A member of a consumer group: address, subscription and assignor."""

    class ClassicMemberMetadata(Struct):
        """A classic-protocol member's protocols and session timeout, kept during an upgrade."""

        class SupportedProtocol(Struct):
            name: str = string()
            metadata: bytes = bytes_()

        session_timeout_ms: int = int32()
        supported_protocols: list[SupportedProtocol] = array(SupportedProtocol)

    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+")
    # The default is an empty struct, so that null has to be written.
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, nullable="0+", default_factory=ClassicMemberMetadata, tag=0
    )


class ConsumerGroupMetadataKey(Record, versions="3"):
    """Key of the epoch of a consumer group in __consumer_offsets."""

    group_id: str = string()


class ConsumerGroupMetadataValue(Record, versions="0", flexible="0+"):
    """The epoch of a consumer group; since 4.1 also a hash over its topics.

    The hash covers the topics that the group subscribes to (KIP-1101).
    """

    epoch: int = int32()
    metadata_hash: int = int64(default=0, tag=0)


class ConsumerGroupPartitionMetadataKey(Record, versions="4"):
    """Key of what a consumer group knows about its topics."""

    group_id: str = string()


class ConsumerGroupPartitionMetadataValue(Record, versions="0", flexible="0+"):
    """The topics of a consumer group, with the number of partitions and their racks."""

    class Topic(Struct):
        class PartitionMetadata(Struct):
            partition: int = int32()
            racks: list[str] = array(string)

        topic_id: UUID = uuid()
        topic_name: str = string()
        num_partitions: int = int32()
        partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)

    topics: list[Topic] = array(Topic)


class ConsumerGroupTargetAssignmentMemberKey(Record, versions="7"):
    """Key of a member's target assignment."""

    group_id: str = string()
    member_id: str = string()


class ConsumerGroupTargetAssignmentMemberValue(Record, versions="0", flexible="0+"):
    """The partitions that a member is to get."""

    class TopicPartitions(Struct):
        topic_id: UUID = uuid()
        partitions: list[int] = array(int32)

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupTargetAssignmentMetadataKey(Record, versions="6"):
    """Key of the epoch of a target assignment."""

    group_id: str = string()


class ConsumerGroupTargetAssignmentMetadataValue(Record, versions="0", flexible="0+"):
    """The epoch of a target assignment."""

    assignment_epoch: int = int32()


class ConsumerGroupRegularExpressionKey(Record, versions="16"):
    """Key of a regular expression that members of a consumer group subscribe with."""

    group_id: str = string()
    regular_expression: str = string()


class ConsumerGroupRegularExpressionValue(Record, versions="0", flexible="0+"):
    """The topics that a regular expression matched.

    With the metadata version and the time in ms of the match.
    """

    topics: list[str] = array(string)
    version: int = int64()
    timestamp: int = int64()
