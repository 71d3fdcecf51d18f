"""DescribeShareGroupOffsets, API key 90."""

from uuid import UUID

from kafkapy.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string, uuid


class DescribeShareGroupOffsetsRequest(Request, key=90, versions="0-1", flexible="0+"):
    """Asks for the start offsets of share groups in topics (null: all) (KIP-932)."""

    class Group(Struct):
        class Topic(Struct):
            topic_name: str = string()
            partitions: list[int] = array(int32)

        group_id: str = string()
        topics: list[Topic] | None = array(Topic, nullable="0+")

    groups: list[Group] = array(Group)


class DescribeShareGroupOffsetsResponse(Response, key=90, versions="0-1", flexible="0+"):
    """The start offset of each share-partition (-1: none), from v1 on its lag (KIP-1226)."""

    class Group(Struct):
        class Topic(Struct):
            class Partition(Struct):
                partition_index: int = int32()
                start_offset: int = int64()
                leader_epoch: int = int32()
                lag: int = int64("1+", default=-1, ignorable=True)
                error_code: int = int16(default=0)
                error_message: str | None = string(nullable="0+", default=None)

            topic_name: str = string()
            topic_id: UUID = uuid()
            partitions: list[Partition] = array(Partition)

        group_id: str = string()
        topics: list[Topic] = array(Topic)
        error_code: int = int16(default=0)
        error_message: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32(default=0)
    groups: list[Group] = array(Group)
