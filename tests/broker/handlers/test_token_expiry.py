"""The two requests that move a token's expiry, RenewDelegationToken and ExpireDelegationToken: where they are alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from broker.handlers.tokens import DAY_MS, describe, expire, log_in_by_token, new_token, renew

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode

Move = Callable[..., Any]


@pytest.fixture(params=[expire, renew], ids=lambda each: each.__name__)
def move(request: pytest.FixtureRequest) -> Move:
    """Sends one of the requests."""
    sends: Move = request.param
    return sends


@pytest.mark.parametrize("version", range(3))
def test_an_anonymous_connection_may_not(client: Any, move: Move, version: int) -> None:
    response = move(client, b"x", -1, version)
    assert response.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert response.expiry_timestamp_ms == -1


@pytest.mark.parametrize("version", range(3))
def test_owner_and_renewers_move_the_expiry(sasl_connect: Callable[..., Any], move: Move, version: int) -> None:
    alice, bob = sasl_connect("alice"), sasl_connect("bob")
    made = new_token(alice, renewers=["bob"])
    for client, period_ms in ((alice, 1000_000), (bob, 5000_000)):
        now_ms = int(time.time() * 1000)
        response = move(client, made.hmac, period_ms, version)
        assert response.error_code == ErrorCode.NONE
        assert now_ms + period_ms <= response.expiry_timestamp_ms <= now_ms + period_ms + DAY_MS
        (shown,) = [each for each in describe(alice).tokens if each.token_id == made.token_id]
        assert shown.expiry_timestamp == response.expiry_timestamp_ms


def test_the_end_of_the_lifetime_is_the_limit(sasl_connect: Callable[..., Any], move: Move) -> None:
    alice = sasl_connect("alice")
    made = new_token(alice, lifetime_ms=1000_000)
    for period_ms in (1000_001 + DAY_MS, 2**63 - 1):
        assert move(alice, made.hmac, period_ms).expiry_timestamp_ms == made.max_timestamp_ms


def test_other_principals_may_not(sasl_connect: Callable[..., Any], move: Move) -> None:
    """Also not the requester of another owner's token."""
    alice, bob = sasl_connect("alice"), sasl_connect("bob")
    made = new_token(alice)
    other = new_token(bob, owner_principal_type="User", owner_principal_name="alice")
    for token in (made, other):
        response = move(bob, token.hmac, 1000)
        assert response.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert response.expiry_timestamp_ms == -1


def test_an_unknown_secret(sasl_connect: Callable[..., Any], move: Move) -> None:
    alice = sasl_connect("alice")
    made = new_token(alice)
    for secret in (b"", b"x", made.hmac[:-1], made.hmac + b"x"):
        assert move(alice, secret).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_an_expired_token_stays_expired(sasl_connect: Callable[..., Any], move: Move, sasl_broker: KafkaServer) -> None:
    alice = sasl_connect("alice")
    made = new_token(alice, lifetime_ms=1)
    while int(time.time() * 1000) <= made.max_timestamp_ms:
        time.sleep(0.001)
    assert move(alice, made.hmac, 1000).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    client, response = log_in_by_token(sasl_broker, made.token_id, made.hmac)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    client.close()
