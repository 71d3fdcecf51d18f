"""SaslAuthenticate as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.sasl_authenticate import SaslAuthenticateRequest


@pytest.mark.parametrize("version", range(3))
def test_a_listener_without_sasl_takes_no_tokens(client: Any, version: int) -> None:
    response = client(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wonder"), version)
    assert (response.error_code, response.auth_bytes) == (ErrorCode.ILLEGAL_SASL_STATE, b"")
    assert "without SASL" in response.error_message
    assert client.topic_id("nothing").int == 0  # the connection goes on
