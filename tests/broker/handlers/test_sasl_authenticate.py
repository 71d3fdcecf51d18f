"""SaslAuthenticate as a client sees it: logins, refusals, sessions."""

from __future__ import annotations

import logging
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from broker.sasl_broker import (
    add_scram_user,
    handshake,
    log_in_plain,
    log_in_scram,
    logged_in,
    open_connection,
    sasl_config,
    token,
)
from security.sasl.scram_client import ScramClient
from waiting import wait_until

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.metadata.znodes import CONFIG_USERS
from kafkapy.protocol.header import encode_request
from kafkapy.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkapy.protocol.messages.sasl_handshake import SaslHandshakeRequest

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
KEY = "listener.name.sasl_plaintext."


def works(client: Any) -> bool:
    return bool(client(MetadataRequest(topics=None), 12).cluster_id)


@pytest.mark.parametrize("version", range(3))
def test_a_listener_without_sasl_takes_no_tokens(client: Any, version: int) -> None:
    response = client(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wonder"), version)
    assert (response.error_code, response.auth_bytes) == (ErrorCode.ILLEGAL_SASL_STATE, b"")
    assert "without SASL" in response.error_message
    assert client.topic_id("nothing").int == 0  # the connection goes on


@pytest.mark.parametrize("version", range(3))
def test_every_version_logs_in(sasl_connect: Callable[..., Any], version: int) -> None:
    client = sasl_connect()
    response = log_in_plain(client, version=version)
    assert (response.error_code, response.error_message, response.auth_bytes) == (ErrorCode.NONE, "", b"")
    assert response.session_lifetime_ms == 0
    assert works(client)


@pytest.mark.parametrize("mechanism", SCRAM)
def test_a_scram_user_logs_in_at_once_after_its_creation(
    sasl_connect: Callable[..., Any], sasl_broker: KafkaServer, topic_name: str, mechanism: str
) -> None:
    user = f"{topic_name},=\u00e9".replace("\u00e9", "e")
    add_scram_user(sasl_broker, user, "pencil")
    client = sasl_connect()
    assert log_in_scram(client, mechanism, user, "pencil").error_code == ErrorCode.NONE
    assert works(client)


def test_the_principal_is_the_user(sasl_connect: Callable[..., Any], sasl_broker: KafkaServer) -> None:
    sasl_connect("bob")
    assert "User:bob" in {each["principal"] for each in sasl_broker.socket_server.connections()}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0wonder", "Authentication failed: Invalid username or password"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"x", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
    ],
)
def test_a_refused_token_has_kafkas_text_and_the_connection_closes(
    sasl_connect: Callable[..., Any], data: bytes, text: str
) -> None:
    client = sasl_connect()
    handshake(client, "PLAIN")
    response = token(client, data)
    assert (response.error_code, response.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, text)
    assert response.auth_bytes == b""
    assert client.is_closed()


@pytest.mark.parametrize("mechanism", SCRAM)
def test_an_unknown_scram_user_gets_the_answers_of_a_wrong_password(
    sasl_connect: Callable[..., Any], sasl_broker: KafkaServer, topic_name: str, mechanism: str
) -> None:
    add_scram_user(sasl_broker, topic_name, "right")
    seen = set()
    for user in (topic_name, "x" * len(topic_name)):
        client, exchange = sasl_connect(), ScramClient(mechanism, user, "wrong")
        handshake(client, mechanism)
        challenge = token(client, exchange.first())
        response = token(client, exchange.final(challenge.auth_bytes))
        assert client.is_closed()
        seen.add(
            (
                challenge.error_code,
                len(challenge.auth_bytes),
                exchange.iterations,
                response.error_code,
                response.error_message,
                response.auth_bytes,
            )
        )
    ((*_, error, text, _),) = seen
    assert error == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert text == (
        f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    )


def test_a_deleted_user_cannot_log_in_any_more(
    sasl_connect: Callable[..., Any], sasl_broker: KafkaServer, topic_name: str
) -> None:
    add_scram_user(sasl_broker, topic_name, "x")
    deletions = [AlterUserScramCredentialsRequest.Deletion(name=topic_name, mechanism=1)]
    admin = sasl_connect("admin")
    assert admin(AlterUserScramCredentialsRequest(deletions=deletions, upsertions=[]), 0).results[0].error_code == 0
    refused = log_in_scram(sasl_connect(), "SCRAM-SHA-256", topic_name, "x")
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert log_in_scram(sasl_connect(), "SCRAM-SHA-512", topic_name, "x").error_code == ErrorCode.NONE


def test_a_credential_that_cannot_be_read_is_none_and_is_not_logged(
    sasl_connect: Callable[..., Any], sasl_broker: KafkaServer, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    repository = sasl_broker.context.dynamic_config.repository
    sasl_broker.call(repository.change(CONFIG_USERS, topic_name, lambda config: {"SCRAM-SHA-256": "SECRET"}))
    refused = log_in_scram(sasl_connect(), "SCRAM-SHA-256", topic_name, "x")
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert f"The SCRAM-SHA-256 credential of user {topic_name} cannot be read" in caplog.text
    assert "SECRET" not in caplog.text


def test_a_token_of_another_request_closes_the_connection(sasl_connect: Callable[..., Any]) -> None:
    client = sasl_connect()
    handshake(client, "PLAIN")
    client.send_frame(b"\0\x03\0\0\0\0\0\x09\xff\xff\0\0\0\0")
    assert client.is_closed()


def test_no_log_line_has_a_password(
    sasl_connect: Callable[..., Any], sasl_broker: KafkaServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(5, "kafka"), caplog.at_level(logging.DEBUG, "org.apache.kafka"):
        caplog.set_level(5, "kafka.request.logger")
        log_in_plain(sasl_connect())
        log_in_plain(sasl_connect(), password="guess-of-a-password")
        log_in_plain(sasl_connect(), "nobody", password="another-guess")
        admin = sasl_connect("admin")
        add_scram_user(sasl_broker, "carol", "carols-password")
        works(admin)
    shown = caplog.text + "".join(str(record.__dict__) for record in caplog.records)
    assert "SaslAuthenticate" in shown
    for secret in ("wonder", "guess-of-a-password", "another-guess", "carols-password", "admin-secret"):
        assert secret not in shown


# --- sessions ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def session_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    keys = {
        KEY + "plain.connections.max.reauth.ms": "60000",
        KEY + "scram-sha-256.connections.max.reauth.ms": "1",
    }
    with KafkaServer(sasl_config(tmp_path_factory.mktemp("sessions"), keys)) as server:
        add_scram_user(server, "shorty", "x")
        yield server


@pytest.fixture
def session_client(session_broker: KafkaServer) -> Iterator[Any]:
    client = open_connection(session_broker)
    yield client
    client.close()


def test_the_session_lifetime_is_told_since_version_1(session_broker: KafkaServer, session_client: Any) -> None:
    assert log_in_plain(session_client, version=1).session_lifetime_ms == 60_000
    other = open_connection(session_broker)
    assert log_in_scram(other, "SCRAM-SHA-512", "shorty", "x").session_lifetime_ms == 0
    other.close()


def test_a_session_is_renewed_and_its_requests_go_on(session_client: Any) -> None:
    assert log_in_plain(session_client).error_code == ErrorCode.NONE
    assert works(session_client)
    response = log_in_plain(session_client)
    assert (response.error_code, response.session_lifetime_ms) == (ErrorCode.NONE, 60_000)
    assert works(session_client)


def test_a_second_renewal_within_a_second_is_refused_and_the_session_goes_on(session_client: Any) -> None:
    log_in_plain(session_client)
    log_in_plain(session_client)
    assert handshake(session_client, "PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert works(session_client)


def test_another_user_at_the_renewal_is_refused(session_client: Any) -> None:
    log_in_plain(session_client, "alice")
    response = log_in_plain(session_client, "bob")
    assert (response.error_code, response.error_message) == (
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        "Cannot change principals during re-authentication from User.alice: User.bob",
    )
    assert session_client.is_closed()


def test_another_mechanism_at_the_renewal_is_refused(session_client: Any) -> None:
    log_in_plain(session_client, "alice")
    assert handshake(session_client, "SCRAM-SHA-256").error_code == ErrorCode.NONE
    response = token(session_client, b"n,,n=alice,r=x")
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "not supported for re-authentication of mechanism 'PLAIN'" in response.error_message
    assert session_client.is_closed()


def test_a_wrong_password_at_the_renewal_closes_the_connection(session_client: Any) -> None:
    log_in_plain(session_client)
    assert log_in_plain(session_client, password="wrong").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert session_client.is_closed()


def test_after_the_end_of_the_session_a_request_closes_the_connection(session_client: Any) -> None:
    assert log_in_scram(session_client, "SCRAM-SHA-256", "shorty", "x").session_lifetime_ms == 1
    deadline = time.monotonic() + 30
    with pytest.raises(ConnectionError):
        while time.monotonic() < deadline:
            works(session_client)


def test_after_the_end_of_the_session_it_can_still_be_renewed(session_client: Any) -> None:
    log_in_scram(session_client, "SCRAM-SHA-256", "shorty", "x")
    time.sleep(0.01)
    assert log_in_scram(session_client, "SCRAM-SHA-256", "shorty", "x").error_code == ErrorCode.NONE


# --- changes of the listener's keys -----------------------------------------------------------------------------------


def test_new_users_of_a_changed_listener_log_in(tmp_path: Any) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    with KafkaServer(sasl_config(tmp_path)) as server:
        logged_in(server, "alice").close()

        def change(value: str) -> None:
            config = server.config.with_dynamic({KEY + "plain.sasl.jaas.config": value})
            server.call(server.context.authentication.update_config(config))

        change(f'{module} required user_dora="explorer";')
        client = open_connection(server)
        assert log_in_plain(client, "dora", "explorer").error_code == ErrorCode.NONE
        refused = open_connection(server)
        assert log_in_plain(refused, "alice").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        change("broken SECRET")
        again = open_connection(server)
        assert log_in_plain(again, "dora", "explorer").error_code == ErrorCode.NONE
        for each in (client, refused, again):
            each.close()


def test_nothing_is_kept_for_connections_that_have_closed(sasl_broker: KafkaServer) -> None:
    """Clients hang up in every moment of a login, also with requests on their way."""
    kept = sasl_broker.socket_server.request_channel.connection_data
    before = len(kept)
    for turn in range(200):
        client = open_connection(sasl_broker)
        frames = [
            encode_request(17, 1, 1, "test", SaslHandshakeRequest(mechanism="SCRAM-SHA-256")),
            encode_request(36, 2, 2, "test", SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=abc")),
            encode_request(36, 2, 3, "test", SaslAuthenticateRequest(auth_bytes=b"c=biws,r=abc,p=AAAA")),
        ]
        for frame in frames[: turn % 4]:
            client.send_frame(frame)
        if turn % 3 == 0:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    wait_until(lambda: len(kept) <= before, "the authenticators are let go of")
