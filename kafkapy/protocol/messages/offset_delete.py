"""OffsetDelete, API key 47."""

from kafkapy.protocol.schema import Request, Response, Struct, array, int16, int32, string


class OffsetDeleteRequest(Request, key=47, versions="0"):
    """Deletes a group's committed offsets of topics that it does not read."""

    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()

        name: str = string()
        partitions: list[Partition] = array(Partition)

    group_id: str = string()
    topics: list[Topic] = array(Topic)


class OffsetDeleteResponse(Response, key=47, versions="0"):
    """The outcome for every partition."""

    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            error_code: int = int16(default=0)

        name: str = string()
        partitions: list[Partition] = array(Partition)

    error_code: int = int16(default=0)
    throttle_time_ms: int = int32(default=0)
    topics: list[Topic] = array(Topic)
