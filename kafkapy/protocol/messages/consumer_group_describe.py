"""ConsumerGroupDescribe, API key 69."""

from uuid import UUID

from kafkapy.protocol.schema import Request, Response, Struct, array, boolean, int8, int16, int32, string, struct, uuid


class ConsumerGroupDescribeRequest(Request, key=69, versions="0-1", flexible="0+"):
    """Asks for the state of consumer groups (KIP-848)."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


class Assignment(Struct):
    """A member's partitions."""

    class TopicPartitions(Struct):
        topic_id: UUID = uuid()
        topic_name: str = string()
        partitions: list[int] = array(int32)

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupDescribeResponse(Response, key=69, versions="0-1", flexible="0+"):
    """The state of each consumer group with its members, their current and target assignments."""

    class Group(Struct):
        class Member(Struct):
            member_id: str = string()
            instance_id: str | None = string(nullable="0+", default=None)
            rack_id: str | None = string(nullable="0+", default=None)
            member_epoch: int = int32()
            client_id: str = string()
            client_host: str = string()
            subscribed_topic_names: list[str] = array(string)
            subscribed_topic_regex: str | None = string(nullable="0+", default=None)
            assignment: Assignment = struct(Assignment)
            target_assignment: Assignment = struct(Assignment)
            member_type: int = int8("1+", default=-1, ignorable=True)

        error_code: int = int16(default=0)
        error_message: str | None = string(nullable="0+", default=None)
        group_id: str = string()
        group_state: str = string()
        group_epoch: int = int32()
        assignment_epoch: int = int32()
        assignor_name: str = string()
        members: list[Member] = array(Member)
        authorized_operations: int = int32(default=-0x80000000)

    throttle_time_ms: int = int32(default=0)
    groups: list[Group] = array(Group)
