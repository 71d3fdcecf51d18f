"""DescribeCluster, API key 60."""

from kafkapy.protocol.schema import Request, Response, Struct, array, boolean, int8, int16, int32, string


class DescribeClusterRequest(Request, key=60, versions="0-2", flexible="0+"):
    """Asks for the cluster id, the controller and the brokers (KIP-700)."""

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+", default=False)


class DescribeClusterResponse(Response, key=60, versions="0-2", flexible="0+"):
    """The cluster id, the controller and the brokers."""

    class Broker(Struct):
        broker_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(nullable="0+", default=None)
        is_fenced: bool = boolean("2+", default=False)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[Broker] = array(Broker)
    cluster_authorized_operations: int = int32(default=-0x80000000)
