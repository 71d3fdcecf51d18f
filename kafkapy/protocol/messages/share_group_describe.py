"""ShareGroupDescribe, API key 77."""

from uuid import UUID

from kafkapy.protocol.schema import Request, Response, Struct, array, boolean, int16, int32, string, struct, uuid


class ShareGroupDescribeRequest(Request, key=77, versions="0-1", flexible="0+"):
    """Asks for the state of share groups (KIP-932)."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


class ShareGroupDescribeResponse(Response, key=77, versions="0-1", flexible="0+"):
    """The state of each share group with its members."""

    class Group(Struct):
        class Member(Struct):
            class Assignment(Struct):
                class TopicPartitions(Struct):
                    topic_id: UUID = uuid()
                    topic_name: str = string()
                    partitions: list[int] = array(int32)

                topic_partitions: list[TopicPartitions] = array(TopicPartitions)

            member_id: str = string()
            rack_id: str | None = string(nullable="0+", default=None)
            member_epoch: int = int32()
            client_id: str = string()
            client_host: str = string()
            subscribed_topic_names: list[str] = array(string)
            assignment: Assignment = struct(Assignment)

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
