"""DescribeTopicPartitions, API key 75."""

from uuid import UUID

from kafkapy.protocol.schema import Request, Response, Struct, array, boolean, int16, int32, string, struct, uuid


class DescribeTopicPartitionsRequest(Request, key=75, versions="0", flexible="0+"):
    """Asks about topics page by page (KIP-966)."""

    class Topic(Struct):
        name: str = string()

    class Cursor(Struct):
        """The first topic and partition of the page; null for the first page."""

        topic_name: str = string()
        partition_index: int = int32()

    topics: list[Topic] = array(Topic)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = struct(Cursor, nullable="0+", default=None)


class DescribeTopicPartitionsResponse(Response, key=75, versions="0", flexible="0+"):
    """A page of partitions with their replicas and where the next page starts."""

    class Topic(Struct):
        class Partition(Struct):
            error_code: int = int16(default=0)
            partition_index: int = int32()
            leader_id: int = int32()
            leader_epoch: int = int32(default=-1)
            replica_nodes: list[int] = array(int32)
            isr_nodes: list[int] = array(int32)
            eligible_leader_replicas: list[int] | None = array(int32, nullable="0+", default=None)
            last_known_elr: list[int] | None = array(int32, nullable="0+", default=None)
            offline_replicas: list[int] = array(int32)

        error_code: int = int16(default=0)
        name: str | None = string(nullable="0+")
        topic_id: UUID = uuid()
        is_internal: bool = boolean(default=False)
        partitions: list[Partition] = array(Partition)
        topic_authorized_operations: int = int32(default=-0x80000000)

    class Cursor(Struct):
        """Where the next page starts; null when this was the last one."""

        topic_name: str = string()
        partition_index: int = int32()

    throttle_time_ms: int = int32(default=0)
    topics: list[Topic] = array(Topic)
    next_cursor: Cursor | None = struct(Cursor, nullable="0+", default=None)
