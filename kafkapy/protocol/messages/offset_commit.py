"""OffsetCommit, API key 8."""

from uuid import UUID

from kafkapy.protocol.schema import ZERO_UUID, Request, Response, Struct, array, int16, int32, int64, string, uuid


class OffsetCommitRequest(Request, key=8, versions="0-10", flexible="8+"):
    """Stores a group's offsets."""

    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            committed_offset: int = int64()
            committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
            commit_timestamp: int = int64("1", default=-1)
            committed_metadata: str | None = string(nullable="0+")

        name: str = string("0-9", default="", ignorable=True)
        topic_id: UUID = uuid("10+", default=ZERO_UUID, ignorable=True)
        partitions: list[Partition] = array(Partition)

    group_id: str = string()
    generation_id_or_member_epoch: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("1+", default="", ignorable=True)
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: list[Topic] = array(Topic)


class OffsetCommitResponse(Response, key=8, versions="0-10", flexible="8+"):
    """The outcome of storing each offset."""

    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            error_code: int = int16(default=0)

        name: str = string("0-9", default="", ignorable=True)
        topic_id: UUID = uuid("10+", default=ZERO_UUID, ignorable=True)
        partitions: list[Partition] = array(Partition)

    throttle_time_ms: int = int32("3+", default=0, ignorable=True)
    topics: list[Topic] = array(Topic)
