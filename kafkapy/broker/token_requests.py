"""Checks that the APIs of delegation tokens share. Source: kafka.server.KafkaApis.allowTokenRequests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkapy.errors import ErrorCode, error_for
from kafkapy.security.principal import ANONYMOUS
from kafkapy.types import SecurityProtocol

if TYPE_CHECKING:
    from kafkapy.broker.context import RequestContext

__all__ = ["check_connection"]


def check_connection(context: RequestContext) -> None:
    """DELEGATION_TOKEN_REQUEST_NOT_ALLOWED unless the client has authenticated without a token.

    So neither a token nor an anonymous connection gives further tokens.
    """
    principal: Any = context.principal
    protocol = context.security_protocol
    if (
        principal.token_authenticated
        or protocol is SecurityProtocol.PLAINTEXT
        or (protocol is SecurityProtocol.SSL and principal == ANONYMOUS)
    ):
        raise error_for(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
