"""CreateDelegationToken, API key 38."""

from kafkapy.protocol.schema import Request, Response, Struct, array, bytes_, int16, int32, int64, string


class CreateDelegationTokenRequest(Request, key=38, versions="0-3", flexible="2+"):
    """Asks for a delegation token for oneself or, since version 3, for another principal."""

    class Renewer(Struct):
        principal_type: str = string()
        principal_name: str = string()

    owner_principal_type: str | None = string("3+", nullable="3+", default="")
    owner_principal_name: str | None = string("3+", nullable="3+", default="")
    renewers: list[Renewer] = array(Renewer)
    max_lifetime_ms: int = int64()


class CreateDelegationTokenResponse(Response, key=38, versions="0-3", flexible="2+"):
    """The token and the key to authenticate with it."""

    error_code: int = int16(default=0)
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+", default="")
    token_requester_principal_name: str = string("3+", default="")
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = bytes_()
    throttle_time_ms: int = int32(default=0)
