"""AlterShareGroupOffsets, API key 91."""

from uuid import UUID

from kafkapy.protocol.schema import ZERO_UUID, Request, Response, Struct, array, int16, int32, int64, string, uuid


class AlterShareGroupOffsetsRequest(Request, key=91, versions="0", flexible="0+"):
    """Sets the start offsets of an empty share group (KIP-932)."""

    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            start_offset: int = int64()

        topic_name: str = string()
        partitions: list[Partition] = array(Partition)

    group_id: str = string()
    topics: list[Topic] = array(Topic)


class AlterShareGroupOffsetsResponse(Response, key=91, versions="0", flexible="0+"):
    """The outcome for each partition."""

    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            error_code: int = int16(default=0)
            error_message: str | None = string(nullable="0+", default=None)

        topic_name: str = string()
        topic_id: UUID = uuid(default=ZERO_UUID)
        partitions: list[Partition] = array(Partition)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[Topic] = array(Topic)
