"""LeaveGroup, API key 13."""

from kafkapy.protocol.schema import Request, Response, Struct, array, int16, int32, string


class LeaveGroupRequest(Request, key=13, versions="0-5", flexible="4+"):
    """One or, since version 3, several members leave a classic group."""

    class Member(Struct):
        member_id: str = string()
        group_instance_id: str | None = string(nullable="0+", default=None)
        reason: str | None = string("5+", nullable="5+", default=None, ignorable=True)

    group_id: str = string()
    member_id: str = string("0-2", default="")
    members: list[Member] = array(Member, "3+", default=[])


class LeaveGroupResponse(Response, key=13, versions="0-5", flexible="4+"):
    """The outcome for every member that was to leave."""

    class Member(Struct):
        member_id: str = string()
        group_instance_id: str | None = string(nullable="0+")
        error_code: int = int16(default=0)

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16(default=0)
    members: list[Member] = array(Member, "3+", default=[])
