"""DescribeDelegationToken as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest


@pytest.mark.parametrize("version", range(4))
def test_an_anonymous_connection_may_not(client: Any, version: int) -> None:
    response = client(DescribeDelegationTokenRequest(owners=None), version)
    assert response.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert response.tokens == []
