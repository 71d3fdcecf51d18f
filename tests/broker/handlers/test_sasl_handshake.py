"""SaslHandshake as a client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.sasl_handshake import SaslHandshakeRequest


@pytest.mark.parametrize("version", range(2))
def test_a_listener_without_sasl_has_no_mechanisms(client: Any, version: int) -> None:
    response = client(SaslHandshakeRequest(mechanism="PLAIN"), version)
    assert (response.error_code, response.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    assert client.topic_id("nothing").int == 0  # the connection goes on
