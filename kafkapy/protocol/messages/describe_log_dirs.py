"""DescribeLogDirs, API key 35."""

from kafkapy.protocol.schema import Request, Response, Struct, array, boolean, int16, int32, int64, string


class DescribeLogDirsRequest(Request, key=35, versions="0-5", flexible="2+"):
    """Asks what lies in the log directories of one broker; null for all topics."""

    class Topic(Struct):
        topic: str = string()
        partitions: list[int] = array(int32)

    topics: list[Topic] | None = array(Topic, nullable="0+")


class DescribeLogDirsResponse(Response, key=35, versions="0-5", flexible="2+"):
    """The replicas and sizes in bytes of each log directory."""

    class Result(Struct):
        class Topic(Struct):
            class Partition(Struct):
                partition_index: int = int32()
                partition_size: int = int64()
                offset_lag: int = int64()
                is_future_key: bool = boolean()

            name: str = string()
            partitions: list[Partition] = array(Partition)

        error_code: int = int16(default=0)
        log_dir: str = string()
        topics: list[Topic] = array(Topic)
        total_bytes: int = int64("4+", default=-1, ignorable=True)
        usable_bytes: int = int64("4+", default=-1, ignorable=True)
        is_cordoned: bool = boolean("5+", default=False, ignorable=True)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16("3+", default=0, ignorable=True)
    results: list[Result] = array(Result)
