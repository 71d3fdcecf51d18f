"""CreateDelegationToken as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.create_delegation_token import CreateDelegationTokenRequest


@pytest.mark.parametrize("version", range(4))
def test_an_anonymous_connection_may_not(client: Any, version: int) -> None:
    response = client(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), version)
    assert response.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert (response.token_id, response.hmac, response.expiry_timestamp_ms) == ("", b"", -1)
