"""Produce, API key 0."""

from uuid import UUID

from kafkapy._speedups.protocol.data_plane_versions import PRODUCE_FLEXIBLE_FROM, PRODUCE_VERSIONS
from kafkapy.protocol.schema import (
    ZERO_UUID,
    Request,
    Response,
    Struct,
    array,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uuid,
)


class ProduceRequest(Request, key=0, versions=PRODUCE_VERSIONS, flexible=PRODUCE_FLEXIBLE_FROM):
    """Appends record batches.

    acks: 0 no answer, 1 when the leader has them, -1 when all in-sync replicas have them.
    """

    class Topic(Struct):
        class Partition(Struct):
            index: int = int32()
            records: bytes | memoryview | None = records(default=None)

        name: str = string("0-12", default="", ignorable=True)
        topic_id: UUID = uuid("13+", default=ZERO_UUID, ignorable=True)
        partition_data: list[Partition] = array(Partition)

    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[Topic] = array(Topic)


class ProduceResponse(Response, key=0, versions=PRODUCE_VERSIONS, flexible=PRODUCE_FLEXIBLE_FROM):
    """Where the batches of every partition were appended, or why they were not."""

    class TopicResponse(Struct):
        class PartitionResponse(Struct):
            class RecordError(Struct):
                """One record that made its batch fail (KIP-467)."""

                batch_index: int = int32()
                batch_index_error_message: str | None = string(nullable="0+", default=None)

            class LeaderIdAndEpoch(Struct):
                """Where the leader is now, for a client that asked the wrong broker (KIP-951)."""

                leader_id: int = int32(default=-1)
                leader_epoch: int = int32(default=-1)

            index: int = int32()
            error_code: int = int16(default=0)
            base_offset: int = int64()
            log_append_time_ms: int = int64("2+", default=-1, ignorable=True)
            log_start_offset: int = int64("5+", default=-1, ignorable=True)
            record_errors: list[RecordError] = array(RecordError, "8+", default=[], ignorable=True)
            error_message: str | None = string("8+", nullable="8+", default=None, ignorable=True)
            current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "10+", default_factory=LeaderIdAndEpoch, tag=0)

        name: str = string("0-12", default="", ignorable=True)
        topic_id: UUID = uuid("13+", default=ZERO_UUID, ignorable=True)
        partition_responses: list[PartitionResponse] = array(PartitionResponse)

    class NodeEndpoint(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(nullable="0+", default=None)

    responses: list[TopicResponse] = array(TopicResponse)
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", default=[], tag=0)
