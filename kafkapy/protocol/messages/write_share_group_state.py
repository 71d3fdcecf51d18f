"""WriteShareGroupState, API key 85."""

from uuid import UUID

from kafkapy.protocol.schema import Request, Response, Struct, array, int8, int16, int32, int64, string, uuid


class WriteShareGroupStateRequest(Request, key=85, versions="0-1", flexible="0+"):
    """The leader of share-partitions has the share coordinator store what changed in their state (KIP-932)."""

    class Topic(Struct):
        class Partition(Struct):
            class StateBatch(Struct):
                first_offset: int = int64()
                last_offset: int = int64()
                delivery_state: int = int8()
                delivery_count: int = int16()

            partition: int = int32()
            state_epoch: int = int32()
            leader_epoch: int = int32()
            start_offset: int = int64()
            delivery_complete_count: int = int32("1+", default=-1, ignorable=True)
            state_batches: list[StateBatch] = array(StateBatch)

        topic_id: UUID = uuid()
        partitions: list[Partition] = array(Partition)

    group_id: str = string()
    topics: list[Topic] = array(Topic)


class WriteShareGroupStateResponse(Response, key=85, versions="0-1", flexible="0+"):
    """The outcome for each share-partition."""

    class Topic(Struct):
        class Partition(Struct):
            partition: int = int32()
            error_code: int = int16(default=0)
            error_message: str | None = string(nullable="0+", default=None)

        topic_id: UUID = uuid()
        partitions: list[Partition] = array(Partition)

    results: list[Topic] = array(Topic)
