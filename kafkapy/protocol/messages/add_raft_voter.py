"""AddRaftVoter, API key 80."""

from uuid import UUID

from kafkapy.protocol.schema import Request, Response, Struct, array, int16, int32, string, uint16, uuid


class AddRaftVoterRequest(Request, key=80, versions="0", flexible="0+"):
    """Adds a voter to the KRaft quorum (KIP-853)."""

    class Listener(Struct):
        name: str = string()
        host: str = string()
        port: int = uint16()

    cluster_id: str | None = string(nullable="0+")
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: UUID = uuid()
    listeners: list[Listener] = array(Listener)


class AddRaftVoterResponse(Response, key=80, versions="0", flexible="0+"):
    """Whether the voter was added."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
