"""OffsetForLeaderEpoch, API key 23."""

from kafkapy.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string


class OffsetForLeaderEpochRequest(Request, key=23, versions="0-4", flexible="4+"):
    """Asks where a leader epoch ends, to find where logs diverged (KIP-101, KIP-320)."""

    class Topic(Struct):
        class Partition(Struct):
            partition: int = int32()
            current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
            leader_epoch: int = int32()

        topic: str = string()
        partitions: list[Partition] = array(Partition)

    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: list[Topic] = array(Topic)


class OffsetForLeaderEpochResponse(Response, key=23, versions="0-4", flexible="4+"):
    """Each partition's largest epoch up to the requested one, and its end offset."""

    class Topic(Struct):
        class Partition(Struct):
            error_code: int = int16(default=0)
            partition: int = int32()
            leader_epoch: int = int32("1+", default=-1, ignorable=True)
            end_offset: int = int64(default=-1)

        topic: str = string()
        partitions: list[Partition] = array(Partition)

    throttle_time_ms: int = int32("2+", default=0, ignorable=True)
    topics: list[Topic] = array(Topic)
