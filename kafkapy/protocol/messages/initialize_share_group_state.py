"""InitializeShareGroupState, API key 83."""

from uuid import UUID

from kafkapy.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string, uuid


class InitializeShareGroupStateRequest(Request, key=83, versions="0", flexible="0+"):
    """A group coordinator begins share-partitions at the share coordinator (KIP-932)."""

    class Topic(Struct):
        class Partition(Struct):
            partition: int = int32()
            state_epoch: int = int32()
            start_offset: int = int64()

        topic_id: UUID = uuid()
        partitions: list[Partition] = array(Partition)

    group_id: str = string()
    topics: list[Topic] = array(Topic)


class InitializeShareGroupStateResponse(Response, key=83, versions="0", flexible="0+"):
    """The outcome for each share-partition."""

    class Topic(Struct):
        class Partition(Struct):
            partition: int = int32()
            error_code: int = int16(default=0)
            error_message: str | None = string(nullable="0+", default=None)

        topic_id: UUID = uuid()
        partitions: list[Partition] = array(Partition)

    results: list[Topic] = array(Topic)
