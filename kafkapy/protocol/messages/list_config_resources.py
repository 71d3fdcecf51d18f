"""ListConfigResources, API key 74."""

from kafkapy.protocol.schema import Request, Response, Struct, array, int8, int16, int32, string


class ListConfigResourcesRequest(Request, key=74, versions="0-1", flexible="0+"):
    """Asks which resources have configuration; client metrics subscriptions only, in version 0 (KIP-1142)."""

    resource_types: list[int] = array(int8, "1+", default=[])


class ListConfigResourcesResponse(Response, key=74, versions="0-1", flexible="0+"):
    """The names of the resources that have configuration."""

    class ConfigResource(Struct):
        resource_name: str = string()
        resource_type: int = int8("1+", default=16, ignorable=True)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    config_resources: list[ConfigResource] = array(ConfigResource)
