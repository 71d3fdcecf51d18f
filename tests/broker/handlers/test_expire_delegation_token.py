"""ExpireDelegationToken as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest


@pytest.mark.parametrize("version", range(3))
def test_an_anonymous_connection_may_not(client: Any, version: int) -> None:
    response = client(ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1), version)
    assert response.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert response.expiry_timestamp_ms == -1
