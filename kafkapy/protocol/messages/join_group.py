"""JoinGroup, API key 11."""

from kafkapy.protocol.schema import Request, Response, Struct, array, boolean, bytes_, int16, int32, string


class JoinGroupRequest(Request, key=11, versions="0-9", flexible="6+"):
    """A member asks to take part in the next generation of a classic group."""

    class Protocol(Struct):
        """An assignor that the member supports, with what it tells the leader through it."""

        name: str = string()
        metadata: bytes = bytes_()

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string()
    protocols: list[Protocol] = array(Protocol)
    reason: str | None = string("8+", nullable="8+", default=None, ignorable=True)


class JoinGroupResponse(Response, key=11, versions="0-9", flexible="6+"):
    """The generation that was formed; its leader gets all members to assign partitions to."""

    class Member(Struct):
        member_id: str = string()
        group_instance_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
        metadata: bytes = bytes_()

    throttle_time_ms: int = int32("2+", default=0, ignorable=True)
    error_code: int = int16(default=0)
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+", default=False)
    member_id: str = string()
    members: list[Member] = array(Member)
