"""DeleteRecords, API key 21."""

from kafkapy.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string


class DeleteRecordsRequest(Request, key=21, versions="0-2", flexible="2+"):
    """Deletes the records of partitions before an offset; -1 is the high watermark."""

    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            offset: int = int64()

        name: str = string()
        partitions: list[Partition] = array(Partition)

    topics: list[Topic] = array(Topic)
    timeout_ms: int = int32()


class DeleteRecordsResponse(Response, key=21, versions="0-2", flexible="2+"):
    """The first offset that is left of every partition."""

    class Topic(Struct):
        class Partition(Struct):
            partition_index: int = int32()
            low_watermark: int = int64()
            error_code: int = int16(default=0)

        name: str = string()
        partitions: list[Partition] = array(Partition)

    throttle_time_ms: int = int32(default=0)
    topics: list[Topic] = array(Topic)
