"""ExpireDelegationToken as a client sees it; test_token_expiry.py has the rest."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from broker.handlers.tokens import DAY_MS, describe, expire, log_in_by_token, new_token

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode


def test_a_negative_period_removes_the_token(sasl_connect: Callable[..., Any], sasl_broker: KafkaServer) -> None:
    alice = sasl_connect("alice")
    made = new_token(alice)
    before_ms = int(time.time() * 1000)
    response = expire(alice, made.hmac)
    assert response.error_code == ErrorCode.NONE
    assert before_ms <= response.expiry_timestamp_ms <= before_ms + DAY_MS
    assert made.token_id not in [each.token_id for each in describe(alice).tokens]
    client, refused = log_in_by_token(sasl_broker, made.token_id, made.hmac)
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert expire(alice, made.hmac).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    client.close()


def test_an_expired_token_may_still_be_removed(sasl_connect: Callable[..., Any]) -> None:
    alice = sasl_connect("alice")
    made = new_token(alice, lifetime_ms=1)
    while int(time.time() * 1000) <= made.max_timestamp_ms:
        time.sleep(0.001)
    assert expire(alice, made.hmac).error_code == ErrorCode.NONE
