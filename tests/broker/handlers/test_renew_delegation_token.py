"""RenewDelegationToken as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest


@pytest.mark.parametrize("version", range(3))
def test_an_anonymous_connection_may_not(client: Any, version: int) -> None:
    response = client(RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=-1), version)
    assert response.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert response.expiry_timestamp_ms == -1
