"""ListGroups, API key 16."""

from kafkapy.protocol.schema import Request, Response, Struct, array, int16, int32, string


class ListGroupsRequest(Request, key=16, versions="0-5", flexible="3+"):
    """Asks for the groups that this broker coordinates, by state and by type."""

    states_filter: list[str] = array(string, "4+", default=[])
    types_filter: list[str] = array(string, "5+", default=[])


class ListGroupsResponse(Response, key=16, versions="0-5", flexible="3+"):
    """The groups that this broker coordinates."""

    class Group(Struct):
        group_id: str = string()
        protocol_type: str = string()
        group_state: str = string("4+", default="", ignorable=True)
        group_type: str = string("5+", default="", ignorable=True)

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16(default=0)
    groups: list[Group] = array(Group)
