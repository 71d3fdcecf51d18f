"""RenewDelegationToken, API key 39: versions 0 to 2.

The request moves a token's expiry to now plus a period, at most to the end of its lifetime. The token's owner and its
renewers may do so. A negative period means delegation.token.expiry.time.ms.

Versions:
0: the API (KIP-48).
1: the response leaves before the pause of a throttled client (KIP-219).
2: flexible encoding with tagged fields (KIP-482).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.broker.delegation_tokens import NO_TIME
from kafkapy.broker.token_requests import check_connection
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

REQUEST = RenewDelegationTokenRequest
RESPONSE = RenewDelegationTokenResponse
SECRETS = True


async def handle(context: RequestContext, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
    """The new time of expiry.

    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_NOT_FOUND,
    DELEGATION_TOKEN_OWNER_MISMATCH, DELEGATION_TOKEN_EXPIRED.
    """
    check_connection(context)
    time_ms = await context.broker.logins.tokens.renew(context.principal, request.hmac, request.renew_period_ms)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=time_ms)


def error_response(
    request: RenewDelegationTokenRequest, error: ErrorCode, message: str
) -> RenewDelegationTokenResponse:
    """The error, without a time."""
    del request, message
    return RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=NO_TIME)
