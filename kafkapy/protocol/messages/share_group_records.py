"""Records of share groups (KIP-932) in __consumer_offsets."""

from uuid import UUID

from kafkapy.protocol.schema import Record, Struct, array, int32, string, uuid


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
    """The epoch of a share group."""

    epoch: int = int32()


class ShareGroupPartitionMetadataKey(Record, versions="9"):
    """Key of what a share group knows about its topics."""

    group_id: str = string()


class ShareGroupPartitionMetadataValue(Record, versions="0", flexible="0+"):
    """The topics of a share group."""

    class InitializedTopic(Struct):
        topic_id: UUID = uuid()
        topic_name: str = string()
        partitions: list[int] = array(int32)

    class DeletingTopic(Struct):
        topic_id: UUID = uuid()
        topic_name: str = string()

    initialized_topics: list[InitializedTopic] = array(InitializedTopic)
    deleting_topics: list[DeletingTopic] = array(DeletingTopic)
