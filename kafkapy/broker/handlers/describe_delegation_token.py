"""DescribeDelegationToken, API key 41: versions 0 to 3.

The response has the tokens of some owners, or of all, with their secrets: tokens that the principal owns, has asked
for, or may renew, and further ones with DESCRIBE on the token or DESCRIBE_TOKENS on its owner. Other tokens are left
out.

Versions:
0: the API (KIP-48).
1: the response leaves before the pause of a throttled client (KIP-219).
2: flexible encoding with tagged fields (KIP-482).
3: requester of each token (KIP-373).

Known gaps: none.
"""

from __future__ import annotations

from typing import Final

from kafkapy.broker.context import RequestContext
from kafkapy.broker.token_requests import check_connection
from kafkapy.errors import ErrorCode, error_for
from kafkapy.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kafkapy.security.delegation_tokens import TokenInformation
from kafkapy.security.principal import KafkaPrincipal
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation, ResourceType

REQUEST = DescribeDelegationTokenRequest
RESPONSE = DescribeDelegationTokenResponse
SECRETS = True

Token = DescribeDelegationTokenResponse.Token
FIRST_WITH_REQUESTER: Final = 3


async def handle(context: RequestContext, request: DescribeDelegationTokenRequest) -> DescribeDelegationTokenResponse:
    """The visible tokens. DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, DELEGATION_TOKEN_AUTH_DISABLED."""
    check_connection(context)
    manager = context.broker.logins.tokens
    if not manager.enabled:
        raise error_for(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners: set[KafkaPrincipal] | None = None
    if request.owners is not None:
        owners = {KafkaPrincipal(each.principal_type, each.principal_name) async for each in in_slices(request.owners)}
    tokens: list[Token] = []
    context.leave(owners, tokens)
    async for token in in_slices(manager.cache.tokens()):
        if _asked(owners, token) and _visible(context, token):
            tokens.append(_described(context, token, manager.cache.hmac(token.token_id)))
    return DescribeDelegationTokenResponse(tokens=tokens)


def error_response(
    request: DescribeDelegationTokenRequest, error: ErrorCode, message: str
) -> DescribeDelegationTokenResponse:
    """The error, without tokens."""
    del request, message
    return DescribeDelegationTokenResponse(error_code=error, tokens=[])


def _asked(owners: set[KafkaPrincipal] | None, token: TokenInformation) -> bool:
    """Whether the request asks for the token: as Kafka, also by its requester and its renewers."""
    if owners is None:
        return True
    return not owners.isdisjoint((token.owner, token.requester, *token.renewers))


def _visible(context: RequestContext, token: TokenInformation) -> bool:
    return (
        token.owned_or_renewed_by(context.principal)
        or context.authorize(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or context.authorize(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner))
    )


def _described(context: RequestContext, token: TokenInformation, secret: bytes) -> Token:
    described = Token(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiry_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=secret,
        renewers=[Token.Renewer(principal_type=each.type, principal_name=each.name) for each in token.renewers],
    )
    if context.api_version >= FIRST_WITH_REQUESTER:
        described.token_requester_principal_type = token.requester.type
        described.token_requester_principal_name = token.requester.name
    return described
