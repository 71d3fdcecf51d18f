"""ListOffsets, API key 2."""

from kafkapy.protocol.schema import Request, Response, Struct, array, int8, int16, int32, int64, string


class ListOffsetsRequest(Request, key=2, versions="0-11", flexible="6+"):
    """Asks for the offsets of timestamps in ms.

    Special timestamps: -1 latest, -2 earliest, -3 the largest timestamp.
    """

    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
            timestamp: int = int64()
            max_num_offsets: int = int32("0", default=1)

        name: str = string()
        partitions: list[Partition] = array(Partition)

    replica_id: int = int32()
    isolation_level: int = int8("2+", default=0)
    topics: list[Topic] = array(Topic)
    timeout_ms: int = int32("10+", default=0, ignorable=True)


class ListOffsetsResponse(Response, key=2, versions="0-11", flexible="6+"):
    """The first offset at or after each timestamp that was asked for."""

    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            error_code: int = int16(default=0)
            old_style_offsets: list[int] = array(int64, "0", default=[])
            timestamp: int = int64("1+", default=-1)
            offset: int = int64("1+", default=-1)
            leader_epoch: int = int32("4+", default=-1)

        name: str = string()
        partitions: list[Partition] = array(Partition)

    throttle_time_ms: int = int32("2+", default=0, ignorable=True)
    topics: list[Topic] = array(Topic)
