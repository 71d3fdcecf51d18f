"""DeleteGroups, API key 42."""

from kafkapy.protocol.schema import Request, Response, Struct, array, int16, int32, string


class DeleteGroupsRequest(Request, key=42, versions="0-3", flexible="2+"):
    """Deletes groups that have no members."""

    groups_names: list[str] = array(string)


class DeleteGroupsResponse(Response, key=42, versions="0-3", flexible="2+"):
    """The outcome for every group."""

    class Result(Struct):
        group_id: str = string()
        error_code: int = int16(default=0)
        error_message: str | None = string("3+", nullable="3+", default=None, ignorable=True)

    throttle_time_ms: int = int32(default=0)
    results: list[Result] = array(Result)
