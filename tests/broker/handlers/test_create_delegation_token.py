"""CreateDelegationToken as a client sees it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from broker.handlers.tokens import DAY_MS, create, log_in_by_token, new_token
from broker.sasl_broker import logged_in, sasl_config

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.metadata.delegation_tokens import decode_token, token_path
from kafkapy.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.security.authorizer.base import AuthorizationResult
from kafkapy.security.delegation_tokens import token_hmac
from kafkapy.types import AclOperation, ResourceType


@pytest.mark.parametrize("version", range(4))
def test_an_anonymous_connection_may_not(client: Any, version: int) -> None:
    response = client(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), version)
    assert response.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert (response.token_id, response.hmac, response.expiry_timestamp_ms) == ("", b"", -1)


@pytest.mark.parametrize("version", range(4))
def test_every_version_gives_a_token_of_the_principal(
    sasl_connect: Callable[..., Any], sasl_broker: KafkaServer, version: int
) -> None:
    before_ms = int(time.time() * 1000)
    response = create(sasl_connect("alice"), version)
    assert response.error_code == ErrorCode.NONE
    assert (response.principal_type, response.principal_name) == ("User", "alice")
    requester = (response.token_requester_principal_type, response.token_requester_principal_name)
    assert requester == (("User", "alice") if version >= 3 else ("", ""))
    assert len(response.token_id) == 22
    assert response.hmac == token_hmac("token secret of the tests", response.token_id)
    assert response.issue_timestamp_ms >= before_ms
    assert response.expiry_timestamp_ms - response.issue_timestamp_ms == DAY_MS
    assert response.max_timestamp_ms - response.issue_timestamp_ms == 7 * DAY_MS


@pytest.mark.parametrize(
    ("asked_ms", "expiry_ms", "max_ms"),
    [
        (0, DAY_MS, 7 * DAY_MS),
        (-5, DAY_MS, 7 * DAY_MS),
        (1000, 1000, 1000),
        (2 * DAY_MS, DAY_MS, 2 * DAY_MS),
        (2**63 - 1, DAY_MS, 7 * DAY_MS),
    ],
)
def test_the_lifetime_is_bounded(sasl_connect: Callable[..., Any], asked_ms: int, expiry_ms: int, max_ms: int) -> None:
    made = new_token(sasl_connect("alice"), lifetime_ms=asked_ms)
    issued = made.issue_timestamp_ms
    assert (made.expiry_timestamp_ms - issued, made.max_timestamp_ms - issued) == (expiry_ms, max_ms)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_token_logs_its_owner_in_until_it_expires(
    sasl_connect: Callable[..., Any], sasl_broker: KafkaServer, mechanism: str
) -> None:
    made = new_token(sasl_connect("alice"))
    client, response = log_in_by_token(sasl_broker, made.token_id, made.hmac, mechanism)
    assert response.error_code == ErrorCode.NONE
    assert 0 < response.session_lifetime_ms <= DAY_MS
    assert client(MetadataRequest(topics=None), 12).cluster_id
    found = {each["principal"] for each in sasl_broker.socket_server.connections()}
    assert found == {"User:alice"}
    client.close()


def test_a_token_gives_no_further_tokens(sasl_connect: Callable[..., Any], sasl_broker: KafkaServer) -> None:
    made = new_token(sasl_connect("alice"))
    client, _ = log_in_by_token(sasl_broker, made.token_id, made.hmac)
    assert create(client).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    client.close()


def test_the_store_has_everything_except_the_secret(sasl_connect: Callable[..., Any], sasl_broker: KafkaServer) -> None:
    made = new_token(sasl_connect("alice"), renewers=["bob"])
    data, _ = sasl_broker.call(sasl_broker.context.store.get(token_path(made.token_id)))
    token = decode_token(data)
    assert (str(token.owner), str(token.requester)) == ("User:alice", "User:alice")
    assert [str(each) for each in token.renewers] == ["User:bob"]
    assert made.hmac not in data
    assert b'"version":1' in data
    assert b'"owner":"User%3Aalice"' in data


def test_a_renewer_must_be_a_user(sasl_connect: Callable[..., Any]) -> None:
    response = create(sasl_connect("alice"), renewers=["bob"], renewer_type="Group")
    assert response.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert (response.token_id, response.hmac) == ("", b"")


@pytest.mark.parametrize("owner_type", ["Group", "", "user", "User:x"])
def test_an_owner_must_be_a_user(sasl_connect: Callable[..., Any], owner_type: str) -> None:
    # A login by the token would be of User:admin, which the authorizer was not asked about.
    response = create(sasl_connect("alice"), owner_principal_type=owner_type, owner_principal_name="admin")
    assert response.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert (response.token_id, response.hmac) == ("", b"")


def test_another_owner(sasl_connect: Callable[..., Any]) -> None:
    made = new_token(sasl_connect("alice"), owner_principal_type="User", owner_principal_name="bob")
    assert (made.principal_name, made.token_requester_principal_name) == ("bob", "alice")


def test_another_owner_needs_create_tokens(
    sasl_connect: Callable[..., Any], sasl_broker: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    class Denying:
        decisions_epoch = 7

        def authorize(self, context: Any, actions: Any) -> list[AuthorizationResult]:
            asked.extend((each.operation, each.resource_type, each.resource_name) for each in actions)
            return [AuthorizationResult.DENIED] * len(actions)

    monkeypatch.setattr(sasl_broker.context, "authorizer", Denying())
    client = sasl_connect("alice")
    response = create(client, owner_principal_type="User", owner_principal_name="bob")
    assert response.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert asked == [(AclOperation.CREATE_TOKENS, ResourceType.USER, "User:bob")]
    assert create(client, owner_principal_type="User", owner_principal_name="alice").error_code == ErrorCode.NONE


def test_without_a_secret_key_there_are_no_tokens(tmp_path: Any) -> None:
    with KafkaServer(sasl_config(tmp_path, {"delegation.token.secret.key": ""})) as server:
        client = logged_in(server)
        assert create(client).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        client.close()


def test_tokens_survive_a_restart(tmp_path: Any) -> None:
    with KafkaServer(sasl_config(tmp_path)) as server:
        client = logged_in(server)
        made = new_token(client)
        client.close()
    old_name = {"delegation.token.secret.key": "", "delegation.token.master.key": "token secret of the tests"}
    with KafkaServer(sasl_config(tmp_path, old_name)) as server:
        client, response = log_in_by_token(server, made.token_id, made.hmac)
        assert response.error_code == ErrorCode.NONE
        client.close()
    with KafkaServer(sasl_config(tmp_path, {"delegation.token.secret.key": "another"})) as server:
        client, response = log_in_by_token(server, made.token_id, made.hmac)
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        client.close()
