"""RemoveRaftVoter, API key 81."""

from uuid import UUID

from kafkapy.protocol.schema import Request, Response, int16, int32, string, uuid


class RemoveRaftVoterRequest(Request, key=81, versions="0", flexible="0+"):
    """Removes a voter from the KRaft quorum (KIP-853)."""

    cluster_id: str | None = string(nullable="0+")
    voter_id: int = int32()
    voter_directory_id: UUID = uuid()


class RemoveRaftVoterResponse(Response, key=81, versions="0", flexible="0+"):
    """Whether the voter was removed."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
