"""Requests for delegation tokens, as the tests of their handlers send them."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from broker.sasl_broker import log_in_scram, open_connection

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from kafkapy.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from kafkapy.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kafkapy.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest

DAY_MS = 86_400_000


def create(
    client: Any,
    version: int = 3,
    renewers: Iterable[str] = (),
    lifetime_ms: int = -1,
    renewer_type: str = "User",
    **owner: str,
) -> Any:
    Renewer = CreateDelegationTokenRequest.Renewer
    named = [Renewer(principal_type=renewer_type, principal_name=each) for each in renewers]
    return client(CreateDelegationTokenRequest(renewers=named, max_lifetime_ms=lifetime_ms, **owner), version)


def renew(client: Any, secret: bytes, period_ms: int = -1, version: int = 2) -> Any:
    return client(RenewDelegationTokenRequest(hmac=secret, renew_period_ms=period_ms), version)


def expire(client: Any, secret: bytes, period_ms: int = -1, version: int = 2) -> Any:
    return client(ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=period_ms), version)


def describe(client: Any, owners: Iterable[str] | None = None, version: int = 3) -> Any:
    Owner = DescribeDelegationTokenRequest.Owner
    named = None if owners is None else [Owner(principal_type="User", principal_name=each) for each in owners]
    return client(DescribeDelegationTokenRequest(owners=named), version)


def log_in_by_token(server: KafkaServer, token_id: str, secret: bytes, mechanism: str = "SCRAM-SHA-256") -> Any:
    """A connection of the token's owner, and the response of its login."""
    client = open_connection(server)
    password = base64.b64encode(secret).decode()
    return client, log_in_scram(client, mechanism, token_id, password, ",tokenauth=true")


def new_token(client: Any, **fields: Any) -> Any:
    response = create(client, **fields)
    assert response.error_code == ErrorCode.NONE, ErrorCode(response.error_code).name
    return response
