"""ConsumerGroupHeartbeat, API key 68."""

from uuid import UUID

from kafkapy.protocol.schema import Request, Response, Struct, array, int16, int32, string, struct, uuid


class ConsumerGroupHeartbeatRequest(Request, key=68, versions="0-1", flexible="0+"):
    """A member of a consumer group joins, lives, changes or leaves (KIP-848).

    Its epoch is 0 to join, above 0 in the group, -1 to leave, -2 to leave as a static member that returns.
    """

    class TopicPartitions(Struct):
        topic_id: UUID = uuid()
        partitions: list[int] = array(int32)

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+", default=None)


class ConsumerGroupHeartbeatResponse(Response, key=68, versions="0-1", flexible="0+"):
    """The member's epoch and, where it changed, its assignment."""

    class Assignment(Struct):
        class TopicPartitions(Struct):
            topic_id: UUID = uuid()
            partitions: list[int] = array(int32)

        topic_partitions: list[TopicPartitions] = array(TopicPartitions)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable="0+", default=None)
