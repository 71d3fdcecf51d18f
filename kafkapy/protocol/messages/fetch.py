"""Fetch, API key 1."""

from uuid import UUID

from kafkapy._speedups.protocol.data_plane_versions import FETCH_FLEXIBLE_FROM, FETCH_VERSIONS
from kafkapy.protocol.schema import (
    ZERO_UUID,
    Request,
    Response,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uuid,
)


class FetchRequest(Request, key=1, versions=FETCH_VERSIONS, flexible=FETCH_FLEXIBLE_FROM):
    """Reads record batches, for a consumer or a follower.

    With a session (KIP-227) it lists only changed partitions.
    """

    class ReplicaState(Struct):
        """Which follower asks; replica_id is -1 for a consumer."""

        replica_id: int = int32(default=-1)
        replica_epoch: int = int64(default=-1)

    class Topic(Struct):
        class Partition(Struct):
            partition: int = int32()
            current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
            fetch_offset: int = int64()
            last_fetched_epoch: int = int32("12+", default=-1)
            log_start_offset: int = int64("5+", default=-1, ignorable=True)
            partition_max_bytes: int = int32()
            replica_directory_id: UUID = uuid("17+", default=ZERO_UUID, ignorable=True, tag=0)
            high_watermark: int = int64("18+", default=0x7FFFFFFFFFFFFFFF, ignorable=True, tag=1)

        topic: str = string("0-12", default="", ignorable=True)
        topic_id: UUID = uuid("13+", default=ZERO_UUID, ignorable=True)
        partitions: list[Partition] = array(Partition)

    class ForgottenTopic(Struct):
        """Partitions to drop from the fetch session."""

        topic: str = string("7-12", default="", ignorable=True)
        topic_id: UUID = uuid("13+", default=ZERO_UUID, ignorable=True)
        partitions: list[int] = array(int32)

    cluster_id: str | None = string("12+", nullable="12+", default=None, ignorable=True, tag=0)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState = struct(ReplicaState, "15+", default_factory=ReplicaState, tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32("3+", default=0x7FFFFFFF, ignorable=True)
    isolation_level: int = int8("4+", default=0, ignorable=True)
    session_id: int = int32("7+", default=0, ignorable=True)
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: list[Topic] = array(Topic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+", default=[])
    rack_id: str = string("11+", default="", ignorable=True)


class FetchResponse(Response, key=1, versions=FETCH_VERSIONS, flexible=FETCH_FLEXIBLE_FROM):
    """Batches read from every partition, with its watermarks."""

    class TopicResponse(Struct):
        class Partition(Struct):
            class EpochEndOffset(Struct):
                """The last epoch and offset that a diverging follower shares with the leader (KIP-595)."""

                epoch: int = int32(default=-1)
                end_offset: int = int64(default=-1)

            class LeaderIdAndEpoch(Struct):
                """Where the leader is now, for a client that asked the wrong broker (KIP-951)."""

                leader_id: int = int32(default=-1)
                leader_epoch: int = int32(default=-1)

            class SnapshotId(Struct):
                """The snapshot to load instead, for a follower of the metadata log."""

                end_offset: int = int64(default=-1)
                epoch: int = int32(default=-1)

            class AbortedTransaction(Struct):
                """A transaction whose records from first_offset on a read_committed reader must skip."""

                producer_id: int = int64()
                first_offset: int = int64()

            partition_index: int = int32()
            error_code: int = int16(default=0)
            high_watermark: int = int64()
            last_stable_offset: int = int64("4+", default=-1, ignorable=True)
            log_start_offset: int = int64("5+", default=-1, ignorable=True)
            diverging_epoch: EpochEndOffset = struct(EpochEndOffset, "12+", default_factory=EpochEndOffset, tag=0)
            current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "12+", default_factory=LeaderIdAndEpoch, tag=1)
            snapshot_id: SnapshotId = struct(SnapshotId, "12+", default_factory=SnapshotId, tag=2)
            aborted_transactions: list[AbortedTransaction] | None = array(
                AbortedTransaction, "4+", nullable="4+", default=[], ignorable=True
            )
            preferred_read_replica: int = int32("11+", default=-1)
            records: bytes | memoryview | None = records(default=None)

        topic: str = string("0-12", default="", ignorable=True)
        topic_id: UUID = uuid("13+", default=ZERO_UUID, ignorable=True)
        partitions: list[Partition] = array(Partition)

    class NodeEndpoint(Struct):
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16("7+", default=0, ignorable=True)
    session_id: int = int32("7+", default=0)
    responses: list[TopicResponse] = array(TopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", default=[], tag=0)
