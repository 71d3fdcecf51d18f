"""SyncGroup, API key 14."""

from kafkapy.protocol.schema import Request, Response, Struct, array, bytes_, int16, int32, string


class SyncGroupRequest(Request, key=14, versions="0-5", flexible="4+"):
    """A member asks for its assignment.

    The leader of the generation brings the assignments of all members.
    """

    class Assignment(Struct):
        member_id: str = string()
        assignment: bytes = bytes_()

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignments: list[Assignment] = array(Assignment)


class SyncGroupResponse(Response, key=14, versions="0-5", flexible="4+"):
    """The member's assignment."""

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16(default=0)
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = bytes_()
