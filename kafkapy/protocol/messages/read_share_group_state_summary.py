"""ReadShareGroupStateSummary, API key 87."""

from uuid import UUID

from kafkapy.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string, uuid


class ReadShareGroupStateSummaryRequest(Request, key=87, versions="0-1", flexible="0+"):
    """Asks the share coordinator for start offsets and counts of share-partitions (KIP-932)."""

    class Topic(Struct):
        class Partition(Struct):
            partition: int = int32()
            leader_epoch: int = int32()

        topic_id: UUID = uuid()
        partitions: list[Partition] = array(Partition)

    group_id: str = string()
    topics: list[Topic] = array(Topic)


class ReadShareGroupStateSummaryResponse(Response, key=87, versions="0-1", flexible="0+"):
    """The state of each share-partition without its batches."""

    class Topic(Struct):
        class Partition(Struct):
            partition: int = int32()
            error_code: int = int16(default=0)
            error_message: str | None = string(nullable="0+", default=None)
            state_epoch: int = int32(default=0)
            leader_epoch: int = int32(default=0)
            start_offset: int = int64(default=0)
            delivery_complete_count: int = int32("1+", default=-1, ignorable=True)

        topic_id: UUID = uuid()
        partitions: list[Partition] = array(Partition)

    results: list[Topic] = array(Topic)
