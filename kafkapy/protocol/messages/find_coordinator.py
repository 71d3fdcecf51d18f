"""FindCoordinator, API key 10."""

from kafkapy.protocol.schema import Request, Response, Struct, array, int8, int16, int32, string


class FindCoordinatorRequest(Request, key=10, versions="0-6", flexible="3+"):
    """Asks which broker coordinates a group, transactional id or share partition.

    key_type: 0 group, 1 transactional id, 2 share partition.
    """

    key: str = string("0-3", default="")
    key_type: int = int8("1+", default=0)
    coordinator_keys: list[str] = array(string, "4+", default=[])


class FindCoordinatorResponse(Response, key=10, versions="0-6", flexible="3+"):
    """The coordinator, or since version 4 one for every key."""

    class Coordinator(Struct):
        key: str = string()
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        error_code: int = int16(default=0)
        error_message: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16("0-3", default=0)
    error_message: str | None = string("1-3", nullable="1-3", default=None, ignorable=True)
    node_id: int = int32("0-3", default=0)
    host: str = string("0-3", default="")
    port: int = int32("0-3", default=0)
    coordinators: list[Coordinator] = array(Coordinator, "4+", default=[])
