"""OffsetFetch, API key 9."""

from uuid import UUID

from kafkapy.protocol.schema import (
    ZERO_UUID,
    Request,
    Response,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
    uuid,
)


class OffsetFetchRequest(Request, key=9, versions="0-10", flexible="6+"):
    """Asks for committed offsets of some or all (null) partitions.

    Since version 8 of several groups.
    """

    class Topic(Struct):
        name: str = string()
        partition_indexes: list[int] = array(int32)

    class Group(Struct):
        class Topic(Struct):
            name: str = string("8-9", default="", ignorable=True)
            topic_id: UUID = uuid("10+", default=ZERO_UUID, ignorable=True)
            partition_indexes: list[int] = array(int32)

        group_id: str = string()
        member_id: str | None = string("9+", nullable="9+", default=None, ignorable=True)
        member_epoch: int = int32("9+", default=-1, ignorable=True)
        topics: list[Topic] | None = array(Topic, nullable="0+")

    group_id: str = string("0-7", default="")
    topics: list[Topic] | None = array(Topic, "0-7", nullable="2-7", default=[])
    groups: list[Group] = array(Group, "8+", default=[])
    require_stable: bool = boolean("7+", default=False)


class OffsetFetchResponse(Response, key=9, versions="0-10", flexible="6+"):
    """Committed offsets; -1 where a partition has none."""

    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            committed_offset: int = int64()
            committed_leader_epoch: int = int32("5-7", default=-1, ignorable=True)
            metadata: str | None = string(nullable="0+")
            error_code: int = int16(default=0)

        name: str = string()
        partitions: list[Partition] = array(Partition)

    class Group(Struct):
        class Topic(Struct):
            class Partition(Struct):
                partition_index: int = int32()
                committed_offset: int = int64()
                committed_leader_epoch: int = int32(default=-1)
                metadata: str | None = string(nullable="0+")
                error_code: int = int16(default=0)

            name: str = string("8-9", default="", ignorable=True)
            topic_id: UUID = uuid("10+", default=ZERO_UUID, ignorable=True)
            partitions: list[Partition] = array(Partition)

        group_id: str = string()
        topics: list[Topic] = array(Topic)
        error_code: int = int16(default=0)

    throttle_time_ms: int = int32("3+", default=0, ignorable=True)
    topics: list[Topic] = array(Topic, "0-7", default=[])
    error_code: int = int16("2-7", default=0, ignorable=True)
    groups: list[Group] = array(Group, "8+", default=[])
