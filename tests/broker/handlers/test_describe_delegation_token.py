"""DescribeDelegationToken as a client sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from broker.handlers.tokens import describe, log_in_by_token, new_token
from broker.sasl_broker import logged_in, sasl_config

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from kafkapy.security.authorizer.base import AuthorizationResult
from kafkapy.types import AclOperation, ResourceType


@pytest.mark.parametrize("version", range(4))
def test_an_anonymous_connection_may_not(client: Any, version: int) -> None:
    response = client(DescribeDelegationTokenRequest(owners=None), version)
    assert response.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert response.tokens == []


@pytest.mark.parametrize("version", range(4))
def test_every_version_shows_a_token(sasl_connect: Callable[..., Any], version: int) -> None:
    alice = sasl_connect("alice")
    made = new_token(alice, renewers=["bob", "carol"], owner_principal_type="User", owner_principal_name="dora")
    (shown,) = [each for each in describe(alice, version=version).tokens if each.token_id == made.token_id]
    assert (shown.principal_type, shown.principal_name, shown.hmac) == ("User", "dora", made.hmac)
    assert shown.token_requester_principal_name == ("alice" if version >= 3 else "")
    assert [(each.principal_type, each.principal_name) for each in shown.renewers] == [
        ("User", "bob"),
        ("User", "carol"),
    ]
    assert (shown.issue_timestamp, shown.expiry_timestamp, shown.max_timestamp) == (
        made.issue_timestamp_ms,
        made.expiry_timestamp_ms,
        made.max_timestamp_ms,
    )


class Denying:
    """Denies everything except what is listed."""

    decisions_epoch = 7

    def __init__(self, *allowed: tuple[AclOperation, ResourceType, str]) -> None:
        self.allowed = allowed

    def authorize(self, context: Any, actions: Any) -> list[AuthorizationResult]:
        return [
            AuthorizationResult.ALLOWED
            if (each.operation, each.resource_type, each.resource_name) in self.allowed
            else AuthorizationResult.DENIED
            for each in actions
        ]


def test_one_sees_what_one_owns_asked_for_or_may_renew(
    sasl_connect: Callable[..., Any], sasl_broker: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = sasl_connect("alice"), sasl_connect("bob")
    own = new_token(bob).token_id
    asked_for = new_token(bob, owner_principal_type="User", owner_principal_name="zoe").token_id
    renewable = new_token(alice, renewers=["bob"]).token_id
    foreign = new_token(alice).token_id

    def seen() -> set[str]:
        return {each.token_id for each in describe(bob).tokens} & {own, asked_for, renewable, foreign}

    assert seen() == {own, asked_for, renewable, foreign}
    monkeypatch.setattr(sasl_broker.context, "authorizer", Denying())
    assert seen() == {own, asked_for, renewable}
    by_token = (AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, foreign)
    by_owner = (AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "User:alice")
    for allowed in (by_token, by_owner):
        monkeypatch.setattr(sasl_broker.context, "authorizer", Denying(allowed))
        assert seen() == {own, asked_for, renewable, foreign}


def test_owners_select_tokens(sasl_connect: Callable[..., Any]) -> None:
    alice, bob = sasl_connect("alice"), sasl_connect("bob")
    made = {new_token(alice).token_id: "alice", new_token(bob, renewers=["alice"]).token_id: "bob"}

    def owners(*names: str) -> list[str]:
        return sorted(made[each.token_id] for each in describe(alice, names).tokens if each.token_id in made)

    assert owners("bob") == ["bob"]
    assert owners("alice") == ["alice", "bob"]  # as in Kafka: also what alice may renew
    assert owners("nobody") == owners() == []


def test_a_token_shows_no_tokens(sasl_connect: Callable[..., Any], sasl_broker: KafkaServer) -> None:
    made = new_token(sasl_connect("alice"))
    client, _ = log_in_by_token(sasl_broker, made.token_id, made.hmac)
    assert describe(client).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    client.close()


def test_without_a_secret_key_there_are_no_tokens(tmp_path: Any) -> None:
    with KafkaServer(sasl_config(tmp_path, {"delegation.token.secret.key": ""})) as server:
        client = logged_in(server)
        assert describe(client).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        client.close()
