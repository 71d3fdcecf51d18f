"""ExpireDelegationToken, API key 40: versions 0 to 2.

The request moves a token's expiry to now plus a period, at most to the end of its lifetime. The token's owner and its
renewers may do so. A negative period removes the token at once.

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
from kafkapy.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

REQUEST = ExpireDelegationTokenRequest
RESPONSE = ExpireDelegationTokenResponse
SECRETS = True


async def handle(context: RequestContext, request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse:
    """The new time of expiry.

    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_NOT_FOUND,
    DELEGATION_TOKEN_OWNER_MISMATCH, DELEGATION_TOKEN_EXPIRED.
    """
    check_connection(context)
    time_ms = await context.broker.logins.tokens.expire(context.principal, request.hmac, request.expiry_time_period_ms)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=time_ms)


def error_response(
    request: ExpireDelegationTokenRequest, error: ErrorCode, message: str
) -> ExpireDelegationTokenResponse:
    """The error, without a time."""
    del request, message
    return ExpireDelegationTokenResponse(error_code=error, expiry_timestamp_ms=NO_TIME)
