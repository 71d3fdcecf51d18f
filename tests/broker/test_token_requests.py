"""Which connections may ask for delegation tokens."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.broker.token_requests import check_connection
from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.security.principal import ANONYMOUS, KafkaPrincipal
from kafkapy.types import SecurityProtocol

ALICE, BY_TOKEN = KafkaPrincipal("User", "alice"), KafkaPrincipal("User", "alice", token_authenticated=True)
ALLOWED = {
    (SecurityProtocol.SSL, ALICE),
    (SecurityProtocol.SASL_PLAINTEXT, ALICE),
    (SecurityProtocol.SASL_SSL, ALICE),
    (SecurityProtocol.SASL_PLAINTEXT, ANONYMOUS),
    (SecurityProtocol.SASL_SSL, ANONYMOUS),
}
"""As in Kafka: on a SASL listener the name ANONYMOUS is one that has logged in."""


@pytest.mark.parametrize("protocol", SecurityProtocol)
@pytest.mark.parametrize("principal", [ALICE, BY_TOKEN, ANONYMOUS], ids=["alice", "by token", "anonymous"])
def test_a_connection_needs_a_login_without_a_token(protocol: SecurityProtocol, principal: KafkaPrincipal) -> None:
    context: Any = SimpleNamespace(principal=principal, security_protocol=protocol)
    if (protocol, principal) in ALLOWED and not principal.token_authenticated:
        check_connection(context)
    else:
        with pytest.raises(KafkaError) as caught:
            check_connection(context)
        assert caught.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
