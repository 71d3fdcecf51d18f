"""SaslAuthenticate, API key 36: versions 0 to 2.

The request has a token of the client for the mechanism of the last SaslHandshake, and the response the mechanism's
answer. When the exchange is complete, the connection has a principal. A failure is SASL_AUTHENTICATION_FAILED, and the
connection closes after connection.failed.authentication.delay.ms.

Versions:
0: the API (KIP-152).
1: session lifetime (KIP-368).
2: flexible encoding with tagged fields (KIP-482).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

REQUEST = SaslAuthenticateRequest
RESPONSE = SaslAuthenticateResponse
SECRETS = True


async def handle(context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """The mechanism's answer to the token."""
    if not context.security_protocol.sasl:
        text = "SaslAuthenticate request received on a listener without SASL"
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=text, auth_bytes=b"")
    authentication = context.broker.authentication
    answer = await authentication.authenticator(context.request).token(bytes(request.auth_bytes), context.api_version)
    context.send = authentication.sender(context.request, answer)
    return SaslAuthenticateResponse(
        error_code=answer.error,
        error_message=answer.message or "",
        auth_bytes=answer.auth_bytes,
        session_lifetime_ms=answer.session_lifetime_ms,
    )
