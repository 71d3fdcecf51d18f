"""DeleteShareGroupOffsets, API key 92."""

from uuid import UUID

from kafkapy.protocol.schema import ZERO_UUID, Request, Response, Struct, array, int16, int32, string, uuid


class DeleteShareGroupOffsetsRequest(Request, key=92, versions="0", flexible="0+"):
    """Forgets the offsets of an empty share group in some topics (KIP-932)."""

    class Topic(Struct):
        topic_name: str = string()

    group_id: str = string()
    topics: list[Topic] = array(Topic)


class DeleteShareGroupOffsetsResponse(Response, key=92, versions="0", flexible="0+"):
    """The outcome for each topic."""

    class Topic(Struct):
        topic_name: str = string()
        topic_id: UUID = uuid(default=ZERO_UUID)
        error_code: int = int16(default=0)
        error_message: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[Topic] = array(Topic)
