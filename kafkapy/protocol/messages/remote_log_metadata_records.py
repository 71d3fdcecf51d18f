"""Records in __remote_log_metadata, which says what lies in remote storage (KIP-405)."""

from uuid import UUID

from kafkapy.protocol.schema import Record, Struct, array, bytes_, int8, int32, int64, string, struct, uuid


class RemoteLogSegmentMetadataRecord(Record, versions="0", flexible="0+"):
    """A segment that is being copied to remote storage (KIP-405)."""

    class RemoteLogSegmentIdEntry(Struct):
        class TopicIdPartitionEntry(Struct):
            name: str = string()
            id: UUID = uuid()
            partition: int = int32()

        topic_id_partition: TopicIdPartitionEntry = struct(TopicIdPartitionEntry)
        id: UUID = uuid()

    class SegmentLeaderEpoch(Struct):
        leader_epoch: int = int32()
        offset: int = int64()

    remote_log_segment_id: RemoteLogSegmentIdEntry = struct(RemoteLogSegmentIdEntry)
    start_offset: int = int64()
    end_offset: int = int64()
    broker_id: int = int32()
    max_timestamp_ms: int = int64()
    event_timestamp_ms: int = int64()
    segment_leader_epochs: list[SegmentLeaderEpoch] = array(SegmentLeaderEpoch)
    segment_size_in_bytes: int = int32()
    custom_metadata: bytes | None = bytes_(nullable="0+", default=None)
    remote_log_segment_state: int = int8()


class RemoteLogSegmentMetadataUpdateRecord(Record, versions="0", flexible="0+"):
    """A change of state of a remote segment."""

    class RemoteLogSegmentIdEntry(Struct):
        class TopicIdPartitionEntry(Struct):
            name: str = string()
            id: UUID = uuid()
            partition: int = int32()

        topic_id_partition: TopicIdPartitionEntry = struct(TopicIdPartitionEntry)
        id: UUID = uuid()

    remote_log_segment_id: RemoteLogSegmentIdEntry = struct(RemoteLogSegmentIdEntry)
    broker_id: int = int32()
    event_timestamp_ms: int = int64()
    custom_metadata: bytes | None = bytes_(nullable="0+", default=None)
    remote_log_segment_state: int = int8()


class RemotePartitionDeleteMetadataRecord(Record, versions="0", flexible="0+"):
    """A change of state of the deletion of a partition's remote segments."""

    class TopicIdPartitionEntry(Struct):
        name: str = string()
        id: UUID = uuid()
        partition: int = int32()

    topic_id_partition: TopicIdPartitionEntry = struct(TopicIdPartitionEntry)
    broker_id: int = int32()
    event_timestamp_ms: int = int64()
    remote_partition_delete_state: int = int8()


class RemoteLogSegmentMetadataSnapshotRecord(Record, versions="0", flexible="0+"):
    """A remote segment in the snapshot of one partition.

    So it has no topic and no partition.
    """

    class SegmentLeaderEpoch(Struct):
        leader_epoch: int = int32()
        offset: int = int64()

    segment_id: UUID = uuid()
    start_offset: int = int64()
    end_offset: int = int64()
    broker_id: int = int32()
    max_timestamp_ms: int = int64()
    event_timestamp_ms: int = int64()
    segment_leader_epochs: list[SegmentLeaderEpoch] = array(SegmentLeaderEpoch)
    segment_size_in_bytes: int = int32()
    custom_metadata: bytes | None = bytes_(nullable="0+", default=None)
    remote_log_segment_state: int = int8()
