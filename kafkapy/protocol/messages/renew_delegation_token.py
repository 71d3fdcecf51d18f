"""RenewDelegationToken, API key 39."""

from kafkapy.protocol.schema import Request, Response, bytes_, int16, int32, int64


class RenewDelegationTokenRequest(Request, key=39, versions="0-2", flexible="2+"):
    """Puts off the expiry of a delegation token."""

    hmac: bytes = bytes_()
    renew_period_ms: int = int64()


class RenewDelegationTokenResponse(Response, key=39, versions="0-2", flexible="2+"):
    """When the token expires now."""

    error_code: int = int16(default=0)
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32(default=0)
