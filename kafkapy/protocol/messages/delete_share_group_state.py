"""DeleteShareGroupState, API key 86."""

from uuid import UUID

from kafkapy.protocol.schema import Request, Response, Struct, array, int16, int32, string, uuid


class DeleteShareGroupStateRequest(Request, key=86, versions="0", flexible="0+"):
    """A group coordinator has the share coordinator remove the state of share-partitions (KIP-932)."""

    class Topic(Struct):
        class Partition(Struct):
            partition: int = int32()

        topic_id: UUID = uuid()
        partitions: list[Partition] = array(Partition)

    group_id: str = string()
    topics: list[Topic] = array(Topic)


class DeleteShareGroupStateResponse(Response, key=86, versions="0", flexible="0+"):
    """The outcome for each share-partition."""

    class Topic(Struct):
        class Partition(Struct):
            partition: int = int32()
            error_code: int = int16(default=0)
            error_message: str | None = string(nullable="0+", default=None)

        topic_id: UUID = uuid()
        partitions: list[Partition] = array(Partition)

    results: list[Topic] = array(Topic)
