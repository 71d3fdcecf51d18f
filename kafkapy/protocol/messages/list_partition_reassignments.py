"""ListPartitionReassignments, API key 46."""

from kafkapy.protocol.schema import Request, Response, Struct, array, int16, int32, string


class ListPartitionReassignmentsRequest(Request, key=46, versions="0", flexible="0+"):
    """Asks which partitions are being moved; null for all topics."""

    class Topic(Struct):
        name: str = string()
        partition_indexes: list[int] = array(int32)

    timeout_ms: int = int32(default=60000)
    topics: list[Topic] | None = array(Topic, nullable="0+", default=None)


class ListPartitionReassignmentsResponse(Response, key=46, versions="0", flexible="0+"):
    """The partitions that are being moved, with the replicas that come and go."""

    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            replicas: list[int] = array(int32)
            adding_replicas: list[int] = array(int32)
            removing_replicas: list[int] = array(int32)

        name: str = string()
        partitions: list[Partition] = array(Partition)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
    topics: list[Topic] = array(Topic)
