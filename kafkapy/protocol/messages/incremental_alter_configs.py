"""IncrementalAlterConfigs, API key 44."""

from kafkapy.protocol.schema import Request, Response, Struct, array, boolean, int8, int16, int32, string


class IncrementalAlterConfigsRequest(Request, key=44, versions="0-1", flexible="1+"):
    """Sets, deletes, appends to or subtracts from single configuration keys (KIP-339)."""

    class Resource(Struct):
        class Config(Struct):
            name: str = string()
            config_operation: int = int8()
            value: str | None = string(nullable="0+")

        resource_type: int = int8()
        resource_name: str = string()
        configs: list[Config] = array(Config)

    resources: list[Resource] = array(Resource)
    validate_only: bool = boolean()


class IncrementalAlterConfigsResponse(Response, key=44, versions="0-1", flexible="1+"):
    """The outcome for every resource."""

    class ResourceResponse(Struct):
        error_code: int = int16(default=0)
        error_message: str | None = string(nullable="0+", default=None)
        resource_type: int = int8()
        resource_name: str = string()

    throttle_time_ms: int = int32(default=0)
    responses: list[ResourceResponse] = array(ResourceResponse)
