"""DeleteTopics, API key 20."""

from uuid import UUID

from kafkapy.protocol.schema import ZERO_UUID, Request, Response, Struct, array, int16, int32, string, uuid


class DeleteTopicsRequest(Request, key=20, versions="0-6", flexible="4+"):
    """Deletes topics by name or, since version 6, by id."""

    class Topic(Struct):
        name: str | None = string(nullable="0+", default=None)
        topic_id: UUID = uuid()

    topics: list[Topic] = array(Topic, "6+", default=[])
    topic_names: list[str] = array(string, "0-5", default=[], ignorable=True)
    timeout_ms: int = int32()


class DeleteTopicsResponse(Response, key=20, versions="0-6", flexible="4+"):
    """The outcome for every topic that was to be deleted."""

    class TopicResponse(Struct):
        name: str | None = string(nullable="6+")
        topic_id: UUID = uuid("6+", default=ZERO_UUID, ignorable=True)
        error_code: int = int16(default=0)
        error_message: str | None = string("5+", nullable="5+", default=None, ignorable=True)

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    responses: list[TopicResponse] = array(TopicResponse)
