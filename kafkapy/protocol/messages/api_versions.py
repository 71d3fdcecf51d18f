"""ApiVersions, API key 18."""

from kafkapy.protocol.schema import Request, Response, Struct, array, boolean, int16, int32, int64, string


class ApiVersionsRequest(Request, key=18, versions="0-5", flexible="3+"):
    """Asks for the served APIs and versions; most clients' first request.

    `cluster_id` and `node_id` name the broker that the client means to talk to (KIP-1242); None and -1: any.
    """

    client_software_name: str = string("3+", default="", ignorable=True)
    client_software_version: str = string("3+", default="", ignorable=True)
    cluster_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    node_id: int = int32("5+", default=-1, ignorable=True)


class ApiVersionsResponse(Response, key=18, versions="0-5", flexible="3+"):
    """The APIs with their versions, and the features of the cluster (KIP-584)."""

    class ApiVersion(Struct):
        api_key: int = int16()
        min_version: int = int16()
        max_version: int = int16()

    class SupportedFeature(Struct):
        name: str = string()
        min_version: int = int16()
        max_version: int = int16()

    class FinalizedFeature(Struct):
        name: str = string()
        max_version_level: int = int16()
        min_version_level: int = int16()

    error_code: int = int16(default=0)
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    supported_features: list[SupportedFeature] = array(SupportedFeature, "3+", default=[], ignorable=True, tag=0)
    finalized_features_epoch: int = int64("3+", default=-1, ignorable=True, tag=1)
    finalized_features: list[FinalizedFeature] = array(FinalizedFeature, "3+", default=[], ignorable=True, tag=2)
    zk_migration_ready: bool = boolean("3+", default=False, ignorable=True, tag=3)
