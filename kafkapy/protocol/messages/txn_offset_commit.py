"""TxnOffsetCommit, API key 28."""

from uuid import UUID

from kafkapy.protocol.schema import ZERO_UUID, Request, Response, Struct, array, int16, int32, int64, string, uuid


class TxnOffsetCommitRequest(Request, key=28, versions="0-6", flexible="3+"):
    """Stores a group's offsets as a part of a transaction."""

    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            committed_offset: int = int64()
            committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
            committed_metadata: str | None = string(nullable="0+")

        name: str = string("0-5", default="", ignorable=True)
        topic_id: UUID = uuid("6+", default=ZERO_UUID, ignorable=True)
        partitions: list[Partition] = array(Partition)

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+", default="")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: list[Topic] = array(Topic)


class TxnOffsetCommitResponse(Response, key=28, versions="0-6", flexible="3+"):
    """The outcome of storing each offset."""

    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            error_code: int = int16(default=0)

        name: str = string("0-5", default="", ignorable=True)
        topic_id: UUID = uuid("6+", default=ZERO_UUID, ignorable=True)
        partitions: list[Partition] = array(Partition)

    throttle_time_ms: int = int32(default=0)
    topics: list[Topic] = array(Topic)
