"""CreateAcls, API key 30."""

from kafkapy.protocol.schema import Request, Response, Struct, array, int8, int16, int32, string


class CreateAclsRequest(Request, key=30, versions="0-3", flexible="2+"):
    """Adds ACL entries."""

    class Creation(Struct):
        resource_type: int = int8()
        resource_name: str = string()
        resource_pattern_type: int = int8("1+", default=3)
        principal: str = string()
        host: str = string()
        operation: int = int8()
        permission_type: int = int8()

    creations: list[Creation] = array(Creation)


class CreateAclsResponse(Response, key=30, versions="0-3", flexible="2+"):
    """The outcome for every entry, in the order of the request."""

    class Result(Struct):
        error_code: int = int16(default=0)
        error_message: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32(default=0)
    results: list[Result] = array(Result)
