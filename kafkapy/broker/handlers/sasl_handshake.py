"""SaslHandshake, API key 17: versions 0 to 1.

The request names the SASL mechanism, and the response lists those of the listener. A mechanism that the listener does
not enable is UNSUPPORTED_SASL_MECHANISM, and the connection closes. On an authenticated connection the request begins a
re-authentication (KIP-368); it is ILLEGAL_SASL_STATE where the session has no end, or less than 1 s after the last one.

Versions:
0: the API (KIP-43); tokens follow without request headers.
1: tokens follow in SaslAuthenticate requests (KIP-152).

Known gaps: none.
"""

from __future__ import annotations

from kafkapy.broker.context import RequestContext
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

REQUEST = SaslHandshakeRequest
RESPONSE = SaslHandshakeResponse


async def handle(context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """The mechanisms, and whether the one asked for is among them."""
    if not context.security_protocol.sasl:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    authentication = context.broker.authentication
    authenticator = authentication.authenticator(context.request)
    answer = authenticator.handshake(request.mechanism, context.api_version)
    context.send = authentication.sender(context.request, answer)
    listed = answer.error in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_SASL_MECHANISM)
    return SaslHandshakeResponse(error_code=answer.error, mechanisms=authenticator.mechanism_names if listed else [])
