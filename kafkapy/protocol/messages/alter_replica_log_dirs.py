"""AlterReplicaLogDirs, API key 34."""

from kafkapy.protocol.schema import Request, Response, Struct, array, int16, int32, string


class AlterReplicaLogDirsRequest(Request, key=34, versions="0-2", flexible="2+"):
    """Moves replicas between the log directories of one broker."""

    class Dir(Struct):
        class Topic(Struct):
            name: str = string()
            partitions: list[int] = array(int32)

        path: str = string()
        topics: list[Topic] = array(Topic)

    dirs: list[Dir] = array(Dir)


class AlterReplicaLogDirsResponse(Response, key=34, versions="0-2", flexible="2+"):
    """Whether each move was begun."""

    class Result(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            error_code: int = int16(default=0)

        topic_name: str = string()
        partitions: list[Partition] = array(Partition)

    throttle_time_ms: int = int32(default=0)
    results: list[Result] = array(Result)
