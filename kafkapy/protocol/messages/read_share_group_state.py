"""ReadShareGroupState, API key 84."""

from uuid import UUID

from kafkapy.protocol.schema import Request, Response, Struct, array, int8, int16, int32, int64, string, uuid


class ReadShareGroupStateRequest(Request, key=84, versions="0", flexible="0+"):
    """A new leader of share-partitions asks the share coordinator for their state (KIP-932)."""

    class Topic(Struct):
        class Partition(Struct):
            partition: int = int32()
            leader_epoch: int = int32()

        topic_id: UUID = uuid()
        partitions: list[Partition] = array(Partition)

    group_id: str = string()
    topics: list[Topic] = array(Topic)


class ReadShareGroupStateResponse(Response, key=84, versions="0", flexible="0+"):
    """The state of each share-partition."""

    class Topic(Struct):
        class Partition(Struct):
            class StateBatch(Struct):
                first_offset: int = int64()
                last_offset: int = int64()
                delivery_state: int = int8()
                delivery_count: int = int16()

            partition: int = int32()
            error_code: int = int16(default=0)
            error_message: str | None = string(nullable="0+", default=None)
            state_epoch: int = int32(default=0)
            start_offset: int = int64(default=0)
            state_batches: list[StateBatch] = array(StateBatch)

        topic_id: UUID = uuid()
        partitions: list[Partition] = array(Partition)

    results: list[Topic] = array(Topic)
