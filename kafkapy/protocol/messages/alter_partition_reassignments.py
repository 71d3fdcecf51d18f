"""AlterPartitionReassignments, API key 45."""

from kafkapy.protocol.schema import Request, Response, Struct, array, boolean, int16, int32, string


class AlterPartitionReassignmentsRequest(Request, key=45, versions="0-1", flexible="0+"):
    """Moves partitions to other brokers, or cancels a move where replicas is null (KIP-455)."""

    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            replicas: list[int] | None = array(int32, nullable="0+", default=None)

        name: str = string()
        partitions: list[Partition] = array(Partition)

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[Topic] = array(Topic)


class AlterPartitionReassignmentsResponse(Response, key=45, versions="0-1", flexible="0+"):
    """Whether each move was begun."""

    class TopicResponse(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            error_code: int = int16(default=0)
            error_message: str | None = string(nullable="0+", default=None)

        name: str = string()
        partitions: list[Partition] = array(Partition)

    throttle_time_ms: int = int32(default=0)
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[TopicResponse] = array(TopicResponse)
