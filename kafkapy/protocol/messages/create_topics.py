"""CreateTopics, API key 19."""

from uuid import UUID

from kafkapy.protocol.schema import (
    ZERO_UUID,
    Request,
    Response,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
    uuid,
)


class CreateTopicsRequest(Request, key=19, versions="0-7", flexible="5+"):
    """Creates topics, or only says whether they could be created."""

    class Topic(Struct):
        class Assignment(Struct):
            """The brokers of one partition's replicas; the first is the preferred leader."""

            partition_index: int = int32()
            broker_ids: list[int] = array(int32)

        class Config(Struct):
            name: str = string()
            value: str | None = string(nullable="0+")

        name: str = string()
        num_partitions: int = int32()
        replication_factor: int = int16()
        assignments: list[Assignment] = array(Assignment)
        configs: list[Config] = array(Config)

    topics: list[Topic] = array(Topic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean("1+", default=False)


class CreateTopicsResponse(Response, key=19, versions="0-7", flexible="5+"):
    """The outcome for every topic, with its id and configuration in newer versions."""

    class Topic(Struct):
        class Config(Struct):
            name: str = string()
            value: str | None = string(nullable="0+")
            read_only: bool = boolean()
            config_source: int = int8(default=-1)
            is_sensitive: bool = boolean()

        name: str = string()
        topic_id: UUID = uuid("7+", default=ZERO_UUID, ignorable=True)
        error_code: int = int16(default=0)
        error_message: str | None = string("1+", nullable="1+", default=None, ignorable=True)
        topic_config_error_code: int = int16("5+", default=0, ignorable=True, tag=0)
        num_partitions: int = int32("5+", default=-1, ignorable=True)
        replication_factor: int = int16("5+", default=-1, ignorable=True)
        configs: list[Config] | None = array(Config, "5+", nullable="5+", default=[], ignorable=True)

    throttle_time_ms: int = int32("2+", default=0, ignorable=True)
    topics: list[Topic] = array(Topic)
