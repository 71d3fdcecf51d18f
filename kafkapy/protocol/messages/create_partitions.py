"""CreatePartitions, API key 37."""

from kafkapy.protocol.schema import Request, Response, Struct, array, boolean, int16, int32, string


class CreatePartitionsRequest(Request, key=37, versions="0-3", flexible="2+"):
    """Raises the number of partitions of topics."""

    class Topic(Struct):
        class Assignment(Struct):
            broker_ids: list[int] = array(int32)

        name: str = string()
        count: int = int32()
        assignments: list[Assignment] | None = array(Assignment, nullable="0+")

    topics: list[Topic] = array(Topic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsResponse(Response, key=37, versions="0-3", flexible="2+"):
    """The outcome for every topic."""

    class Result(Struct):
        name: str = string()
        error_code: int = int16(default=0)
        error_message: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32(default=0)
    results: list[Result] = array(Result)
