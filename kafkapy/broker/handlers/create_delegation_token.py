"""CreateDelegationToken, API key 38: versions 0 to 3.

The response has a new token of the connection's principal, with its secret. Version 3 may name another owner, which
needs CREATE_TOKENS on the user. Owner and renewers are users (Kafka takes any type for an owner).

Versions:
0: the API (KIP-48).
1: the response leaves before the pause of a throttled client (KIP-219).
2: flexible encoding with tagged fields (KIP-482).
3: owner of the token (KIP-373).

Known gaps: none.
"""

from __future__ import annotations

from typing import Final

from kafkapy.broker.context import RequestContext
from kafkapy.broker.delegation_tokens import NO_TIME
from kafkapy.broker.token_requests import check_connection
from kafkapy.errors import ErrorCode, KafkaError, code_of, error_for
from kafkapy.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kafkapy.security.principal import USER_TYPE, KafkaPrincipal
from kafkapy.slices import in_slices
from kafkapy.types import AclOperation, ResourceType

REQUEST = CreateDelegationTokenRequest
RESPONSE = CreateDelegationTokenResponse
SECRETS = True

FIRST_WITH_OWNER: Final = 3


async def handle(context: RequestContext, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
    """The token.

    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, DELEGATION_TOKEN_AUTHORIZATION_FAILED for another owner,
    INVALID_PRINCIPAL_TYPE for an owner or renewer that is no user, DELEGATION_TOKEN_AUTH_DISABLED.
    """
    requester = context.principal
    owner = requester
    if request.owner_principal_name:
        owner = KafkaPrincipal(request.owner_principal_type or "", request.owner_principal_name)
    try:
        check_connection(context)
        if owner.type != USER_TYPE:
            # A login by token is always of a user: for another type, the question below would be for another principal.
            raise error_for(ErrorCode.INVALID_PRINCIPAL_TYPE)
        if owner != requester and not context.authorize(AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)):
            raise error_for(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        renewers = []
        async for each in in_slices(request.renewers):
            if each.principal_type != USER_TYPE:
                raise error_for(ErrorCode.INVALID_PRINCIPAL_TYPE)
            renewers.append(KafkaPrincipal(each.principal_type, each.principal_name))
        manager = context.broker.logins.tokens
        token = await manager.create(owner, requester, renewers, request.max_lifetime_ms)
    except KafkaError as error:
        return _response(context, owner, requester, error_code=code_of(error))
    return _response(
        context,
        owner,
        requester,
        issue_timestamp_ms=token.issue_timestamp,
        expiry_timestamp_ms=token.expiry_timestamp,
        max_timestamp_ms=token.max_timestamp,
        token_id=token.token_id,
        hmac=manager.cache.hmac(token.token_id),
    )


def _response(
    context: RequestContext,
    owner: KafkaPrincipal,
    requester: KafkaPrincipal,
    *,
    error_code: int = 0,
    issue_timestamp_ms: int = NO_TIME,
    expiry_timestamp_ms: int = NO_TIME,
    max_timestamp_ms: int = NO_TIME,
    token_id: str = "",
    hmac: bytes = b"",
) -> CreateDelegationTokenResponse:
    response = CreateDelegationTokenResponse(
        error_code=error_code,
        principal_type=owner.type,
        principal_name=owner.name,
        issue_timestamp_ms=issue_timestamp_ms,
        expiry_timestamp_ms=expiry_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        token_id=token_id,
        hmac=hmac,
    )
    if context.api_version >= FIRST_WITH_OWNER:
        response.token_requester_principal_type = requester.type
        response.token_requester_principal_name = requester.name
    return response
