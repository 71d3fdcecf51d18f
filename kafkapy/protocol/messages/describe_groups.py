"""DescribeGroups, API key 15."""

from kafkapy.protocol.schema import Request, Response, Struct, array, boolean, bytes_, int16, int32, string


class DescribeGroupsRequest(Request, key=15, versions="0-6", flexible="5+"):
    """Asks for the state of classic groups."""

    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean("3+", default=False)


class DescribeGroupsResponse(Response, key=15, versions="0-6", flexible="5+"):
    """The state of each classic group with its members."""

    class Group(Struct):
        class Member(Struct):
            member_id: str = string()
            group_instance_id: str | None = string("4+", nullable="4+", default=None, ignorable=True)
            client_id: str = string()
            client_host: str = string()
            member_metadata: bytes = bytes_()
            member_assignment: bytes = bytes_()

        error_code: int = int16(default=0)
        error_message: str | None = string("6+", nullable="6+", default=None)
        group_id: str = string()
        group_state: str = string()
        protocol_type: str = string()
        protocol_data: str = string()
        members: list[Member] = array(Member)
        authorized_operations: int = int32("3+", default=-0x80000000)

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    groups: list[Group] = array(Group)
