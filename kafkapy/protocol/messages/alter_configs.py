"""AlterConfigs, API key 33."""

from kafkapy.protocol.schema import Request, Response, Struct, array, boolean, int8, int16, int32, string


class AlterConfigsRequest(Request, key=33, versions="0-2", flexible="2+"):
    """Replaces the whole configuration of resources. Deprecated in favour of IncrementalAlterConfigs."""

    class Resource(Struct):
        class Config(Struct):
            name: str = string()
            value: str | None = string(nullable="0+")

        resource_type: int = int8()
        resource_name: str = string()
        configs: list[Config] = array(Config)

    resources: list[Resource] = array(Resource)
    validate_only: bool = boolean()


class AlterConfigsResponse(Response, key=33, versions="0-2", flexible="2+"):
    """The outcome for every resource."""

    class ResourceResponse(Struct):
        error_code: int = int16(default=0)
        error_message: str | None = string(nullable="0+", default=None)
        resource_type: int = int8()
        resource_name: str = string()

    throttle_time_ms: int = int32(default=0)
    responses: list[ResourceResponse] = array(ResourceResponse)
