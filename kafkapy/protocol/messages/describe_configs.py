"""DescribeConfigs, API key 32."""

from kafkapy.protocol.schema import Request, Response, Struct, array, boolean, int8, int16, int32, string


class DescribeConfigsRequest(Request, key=32, versions="0-4", flexible="4+"):
    """Asks for the configuration of topics, brokers and other resources."""

    class Resource(Struct):
        resource_type: int = int8()
        resource_name: str = string()
        configuration_keys: list[str] | None = array(string, nullable="0+")

    resources: list[Resource] = array(Resource)
    include_synonyms: bool = boolean("1+", default=False)
    include_documentation: bool = boolean("3+", default=False)


class DescribeConfigsResponse(Response, key=32, versions="0-4", flexible="4+"):
    """Every key with its value, the value's source and its other possible sources."""

    class Result(Struct):
        class Config(Struct):
            class Synonym(Struct):
                """A place that sets the key too, in the order in which they win."""

                name: str = string()
                value: str | None = string(nullable="0+")
                source: int = int8()

            name: str = string()
            value: str | None = string(nullable="0+")
            read_only: bool = boolean()
            config_source: int = int8("1+", default=-1, ignorable=True)
            is_default: bool = boolean("0", default=False)
            is_sensitive: bool = boolean()
            synonyms: list[Synonym] = array(Synonym, "1+", default=[], ignorable=True)
            config_type: int = int8("3+", default=0, ignorable=True)
            documentation: str | None = string("3+", nullable="3+", default="", ignorable=True)

        error_code: int = int16(default=0)
        error_message: str | None = string(nullable="0+", default=None)
        resource_type: int = int8()
        resource_name: str = string()
        configs: list[Config] = array(Config)

    throttle_time_ms: int = int32(default=0)
    results: list[Result] = array(Result)
