"""SaslAuthenticate, API key 36."""

from kafkapy.protocol.schema import Request, Response, bytes_, int16, int64, string


class SaslAuthenticateRequest(Request, key=36, versions="0-2", flexible="2+"):
    """A step of the SASL exchange, from the client."""

    auth_bytes: bytes = bytes_()


class SaslAuthenticateResponse(Response, key=36, versions="0-2", flexible="2+"):
    """A step of the SASL exchange, from the broker."""

    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
    auth_bytes: bytes = bytes_()
    session_lifetime_ms: int = int64("1+", default=0, ignorable=True)
