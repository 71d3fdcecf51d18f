"""DeleteAcls, API key 31."""

from kafkapy.protocol.schema import Request, Response, Struct, array, int8, int16, int32, string


class DeleteAclsRequest(Request, key=31, versions="0-3", flexible="2+"):
    """Deletes the ACL entries that match any of some filters."""

    class Filter(Struct):
        resource_type_filter: int = int8()
        resource_name_filter: str | None = string(nullable="0+")
        pattern_type_filter: int = int8("1+", default=3)
        principal_filter: str | None = string(nullable="0+")
        host_filter: str | None = string(nullable="0+")
        operation: int = int8()
        permission_type: int = int8()

    filters: list[Filter] = array(Filter)


class DeleteAclsResponse(Response, key=31, versions="0-3", flexible="2+"):
    """The entries that each filter deleted."""

    class FilterResult(Struct):
        class MatchingAcl(Struct):
            error_code: int = int16(default=0)
            error_message: str | None = string(nullable="0+", default=None)
            resource_type: int = int8()
            resource_name: str = string()
            pattern_type: int = int8("1+", default=3)
            principal: str = string()
            host: str = string()
            operation: int = int8()
            permission_type: int = int8()

        error_code: int = int16(default=0)
        error_message: str | None = string(nullable="0+", default=None)
        matching_acls: list[MatchingAcl] = array(MatchingAcl)

    throttle_time_ms: int = int32(default=0)
    filter_results: list[FilterResult] = array(FilterResult)
