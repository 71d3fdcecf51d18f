"""ShareFetch, API key 78."""

from uuid import UUID

from kafkapy.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uuid,
)


class ShareFetchRequest(Request, key=78, versions="0-2", flexible="0+"):
    """Acquires records for a member of a share group, and acknowledges earlier ones (KIP-932).

    Acquire modes of version 2 (KIP-1206): 0 whole batches, 1 at most max_records. A request that renews locks
    (is_renew_ack, KIP-1222) acquires nothing.
    """

    class Topic(Struct):
        class Partition(Struct):
            class AcknowledgementBatch(Struct):
                first_offset: int = int64()
                last_offset: int = int64()
                acknowledge_types: list[int] = array(int8)

            partition_index: int = int32()
            partition_max_bytes: int = int32("0", default=0, ignorable=True)
            acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)

        topic_id: UUID = uuid()
        partitions: list[Partition] = array(Partition)

    class ForgottenTopic(Struct):
        topic_id: UUID = uuid()
        partitions: list[int] = array(int32)

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=0x7FFFFFFF)
    max_records: int = int32("1+", default=0)
    batch_size: int = int32("1+", default=0)
    share_acquire_mode: int = int8("2+", default=0)
    is_renew_ack: bool = boolean("2+", default=False)
    topics: list[Topic] = array(Topic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic)


class ShareFetchResponse(Response, key=78, versions="0-2", flexible="0+"):
    """The records that were acquired, with their delivery counts."""

    class TopicResponse(Struct):
        class Partition(Struct):
            class LeaderIdAndEpoch(Struct):
                leader_id: int = int32()
                leader_epoch: int = int32()

            class AcquiredRecords(Struct):
                first_offset: int = int64()
                last_offset: int = int64()
                delivery_count: int = int16()

            partition_index: int = int32()
            error_code: int = int16(default=0)
            error_message: str | None = string(nullable="0+", default=None)
            acknowledge_error_code: int = int16()
            acknowledge_error_message: str | None = string(nullable="0+", default=None)
            current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)
            records: bytes | memoryview = records(default=b"", nullable=None)
            acquired_records: list[AcquiredRecords] = array(AcquiredRecords)

        topic_id: UUID = uuid()
        partitions: list[Partition] = array(Partition)

    class NodeEndpoint(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("1+", default=0, ignorable=True)
    responses: list[TopicResponse] = array(TopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
