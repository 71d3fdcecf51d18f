"""DescribeDelegationToken, API key 41."""

from kafkapy.protocol.schema import Request, Response, Struct, array, bytes_, int16, int32, int64, string


class DescribeDelegationTokenRequest(Request, key=41, versions="0-3", flexible="2+"):
    """Asks for the delegation tokens of some owners; null for all."""

    class Owner(Struct):
        principal_type: str = string()
        principal_name: str = string()

    owners: list[Owner] | None = array(Owner, nullable="0+")


class DescribeDelegationTokenResponse(Response, key=41, versions="0-3", flexible="2+"):
    """The tokens that the caller may see."""

    class Token(Struct):
        class Renewer(Struct):
            principal_type: str = string()
            principal_name: str = string()

        principal_type: str = string()
        principal_name: str = string()
        token_requester_principal_type: str = string("3+", default="")
        token_requester_principal_name: str = string("3+", default="")
        issue_timestamp: int = int64()
        expiry_timestamp: int = int64()
        max_timestamp: int = int64()
        token_id: str = string()
        hmac: bytes = bytes_()
        renewers: list[Renewer] = array(Renewer)

    error_code: int = int16(default=0)
    tokens: list[Token] = array(Token)
    throttle_time_ms: int = int32(default=0)
