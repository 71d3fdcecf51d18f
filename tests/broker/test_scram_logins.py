"""Logins by SCRAM: network threads serve the usual one, and answer as Python does."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from broker.conftest import Client
from broker.sasl_broker import add_scram_user, handshake, log_in_scram, logged_in, open_connection, sasl_config, token
from security.sasl.scram_client import ScramClient
from waiting import wait_until

from kafkapy.broker.authentication import Authentication
from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
from kafkapy.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkapy.protocol.messages.metadata import MetadataRequest
from kafkapy.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkapy.protocol.messages.sasl_handshake import SaslHandshakeRequest

LISTENER, KEY = "SASL_PLAINTEXT", "listener.name.sasl_plaintext."
SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
MECHANISMS = ["PLAIN", SHA_256, SHA_512]
VERSIONS, HANDSHAKE, AUTHENTICATE = 18, 17, 36
USERS = {"alice": "wonder", "a,b=c": "x", "weak": "weak"}


@contextmanager
def with_users(factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with KafkaServer(sasl_config(factory.mktemp("broker"))) as server:
        for user, password in USERS.items():
            add_scram_user(server, user, password)
        # As an older cluster may have them.
        weak = (b"salt", b"k" * 32, b"k" * 32, 4095)
        table = server.context.authentication._services.credentials.tables[SHA_256]
        table.set_user("weak", weak, "User:weak", hash("User:weak"))
        yield server


@pytest.fixture(scope="module")
def threads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A broker whose network threads serve logins."""
    with with_users(tmp_path_factory) as server:
        yield server


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A broker that has the same users, and leaves every login to Python."""
    with with_users(tmp_path_factory) as server:
        server.socket_server.serve_scram(LISTENER, (), MECHANISMS)
        yield server


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The API keys of the requests that Python was asked about."""
    seen: list[int] = []
    original = Authentication.authenticator

    def authenticator(self: Authentication, request: Any) -> Any:
        seen.append(request.api_key)
        return original(self, request)

    monkeypatch.setattr(Authentication, "authenticator", authenticator)
    return seen


class Conversation:
    """What a client says and hears, the same for every broker but for nonces."""

    def __init__(self, server: KafkaServer, user: str, password: str, version: int, **first: Any) -> None:
        self.client = open_connection(server)
        self.exchange = ScramClient(SHA_256, user, password, **first)
        self.version = version
        self.challenge = b""
        self.heard: list[Any] = []

    def __call__(self, step: str) -> None:
        name, _, argument = step.partition(" ")
        try:
            self.heard.append((name, *getattr(self, name)(argument)))
        except (ConnectionError, EOFError):
            self.heard.append((name, "closed"))

    def versions(self, argument: str) -> tuple[Any, ...]:
        response = self.client(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
        return (response.error_code, len(response.api_keys))

    def handshake(self, mechanism: str) -> tuple[Any, ...]:
        response = self.client(SaslHandshakeRequest(mechanism=mechanism), 1)
        return (response.error_code, response.mechanisms)

    def _token(self, data: bytes) -> Any:
        return self.client(SaslAuthenticateRequest(auth_bytes=data), self.version)

    def first(self, message: str) -> tuple[Any, ...]:
        response = self._token(message.encode() or self.exchange.first())
        self.challenge = bytes(response.auth_bytes)
        # Each cluster has salts of its own for unknown users.
        shown = re.sub(rb"^r=abcdef[0-9A-Za-z+/_-]{24},s=[0-9A-Za-z+/=]{32},", b"", self.challenge)
        return (response.error_code, response.error_message, response.session_lifetime_ms, shown)

    def final(self, message: str) -> tuple[Any, ...]:
        data = self.exchange.final(self.challenge) if self.challenge else b"c=biws,r=x,p=AAAA"
        for change in filter(None, message.split(" ")):
            before, _, after = change.partition("->")
            data = re.sub(before.encode(), after.encode(), data, count=1)
        response = self._token(data)
        if response.error_code == ErrorCode.NONE:
            self.exchange.check(bytes(response.auth_bytes))
        return (response.error_code, response.error_message, response.session_lifetime_ms)

    def metadata(self, argument: str) -> tuple[Any, ...]:
        return (bool(self.client(MetadataRequest(topics=None), 12).cluster_id),)


CONVERSATIONS = {
    "login": ["handshake SCRAM-SHA-256", "first", "final", "metadata"],
    "after ApiVersions": ["versions", "handshake SCRAM-SHA-256", "first", "final", "versions", "metadata"],
    "again": ["handshake SCRAM-SHA-256", "first", "final", "handshake SCRAM-SHA-256", "first", "metadata"],
    "again after ApiVersions": ["versions", "handshake SCRAM-SHA-256", "first", "final", "handshake SCRAM-SHA-256"],
    "other mechanism": ["handshake SCRAM-SHA-512", "first", "final", "metadata"],
    "unknown mechanism": ["handshake SCRAM-SHA-1", "metadata"],
    "no handshake": ["first", "metadata"],
    "two handshakes": ["handshake SCRAM-SHA-256", "handshake SCRAM-SHA-256", "metadata"],
    "a late handshake": ["handshake SCRAM-SHA-256", "first", "handshake SCRAM-SHA-256", "metadata"],
    "late ApiVersions": ["handshake SCRAM-SHA-256", "versions", "metadata"],
    "later ApiVersions": ["handshake SCRAM-SHA-256", "first", "versions", "metadata"],
    "an early request": ["handshake SCRAM-SHA-256", "metadata"],
    "a later request": ["handshake SCRAM-SHA-256", "first", "metadata"],
    "no first message": ["handshake SCRAM-SHA-256", "first nonsense", "metadata"],
    "no final message": ["handshake SCRAM-SHA-256", "first", "final c=->d=", "metadata"],
    "another nonce": ["handshake SCRAM-SHA-256", "first", "final r=->r=x", "metadata"],
    "another proof": ["handshake SCRAM-SHA-256", "first", "final p=....->p=AAAA", "metadata"],
    "a short proof": ["handshake SCRAM-SHA-256", "first", "final p=....->p=", "metadata"],
    "extensions": ["handshake SCRAM-SHA-256", "first n,,n=alice,r=abcdef,ext=1,e=2", "final ,p=->,ext=1,p="],
    "a token": ["handshake SCRAM-SHA-256", "first n,,n=alice,r=abcdef,tokenauth=true", "final", "metadata"],
    "another identity": ["handshake SCRAM-SHA-256", "first n,a=bob,n=alice,r=abcdef", "metadata"],
    "empty": ["handshake SCRAM-SHA-256", "first  ", "metadata"],
}
CLIENTS = [("alice", "wonder"), ("alice", "wrong"), ("nobody", "x"), ("a,b=c", "x"), ("weak", "weak")]


def transcript(server: KafkaServer, steps: list[str], user: str, password: str, version: int, **first: Any) -> Any:
    conversation = Conversation(server, user, password, version, **first)
    for step in steps:
        conversation(step)
        if conversation.heard[-1][-1] == "closed":
            break
    conversation.client.close()
    return conversation.heard


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("user", CLIENTS, ids=str)
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_network_threads_answer_as_python_does(
    threads: KafkaServer, python: KafkaServer, name: str, user: tuple[str, str], version: int
) -> None:
    steps = CONVERSATIONS[name]
    assert transcript(threads, steps, *user, version) == transcript(python, steps, *user, version)


@pytest.mark.parametrize("authzid", ["alice", "bob"])
def test_an_authorization_id_is_pythons(
    threads: KafkaServer, python: KafkaServer, asked: list[int], authzid: str
) -> None:
    steps = CONVERSATIONS["login"]
    heard = transcript(threads, steps, "alice", "wonder", 2, authzid=authzid)
    assert AUTHENTICATE in asked
    assert heard == transcript(python, steps, "alice", "wonder", 2, authzid=authzid)


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_python_has_no_part_in_a_login(threads: KafkaServer, asked: list[int], mechanism: str, version: int) -> None:
    with_thread = open_connection(threads)
    exchange = ScramClient(mechanism, "alice", "wonder")
    assert handshake(with_thread, mechanism).mechanisms == MECHANISMS
    challenge = token(with_thread, exchange.first(), version)
    response = token(with_thread, exchange.final(challenge.auth_bytes), version)
    exchange.check(response.auth_bytes)
    assert works(with_thread)
    assert asked == []
    described = [each for each in threads.socket_server.connections() if each["principal"] == "User:alice"]
    assert described
    with_thread.close()


def works(client: Client) -> bool:
    return bool(client(MetadataRequest(topics=None), 12).cluster_id)


def test_a_refused_login_is_logged(threads: KafkaServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka.network.RequestChannel")
    expected = (
        r"Failed authentication of connection \d+ from 127\.0\.0\.1:\d+: Authentication failed during authentication "
        r"due to invalid credentials with SASL mechanism SCRAM-SHA-256 \(Invalid client credentials\)"
    )

    def is_logged() -> bool:
        # Again and again: a line that tells how many were left out may take the place of this one.
        refused = transcript(threads, CONVERSATIONS["login"], "alice", "wrong", 2)[2]
        assert refused[1] == ErrorCode.SASL_AUTHENTICATION_FAILED
        return any(re.fullmatch(expected, each) for each in caplog.messages)

    wait_until(is_logged, "the refusal is logged")


def test_logins_are_counted(threads: KafkaServer) -> None:
    before = threads.socket_server.counters()["authentication"][LISTENER]
    transcript(threads, CONVERSATIONS["login"], "alice", "wonder", 2)
    transcript(threads, CONVERSATIONS["login"], "alice", "wrong", 2)
    after = threads.socket_server.counters()["authentication"][LISTENER]
    assert after["authenticated"] == before["authenticated"] + 1
    assert after["failed"] == before["failed"] + 1


def lifetime(server: KafkaServer, mechanism: str) -> int:
    client = open_connection(server)
    response = log_in_scram(client, mechanism, "alice", "wonder")
    assert response.error_code == ErrorCode.NONE
    client.close()
    return int(response.session_lifetime_ms)


def test_sessions_that_end_are_pythons(tmp_path: Path, asked: list[int]) -> None:
    keys = {f"{KEY}scram-sha-256.connections.max.reauth.ms": "60000"}
    with KafkaServer(sasl_config(tmp_path, keys)) as server:
        add_scram_user(server, "alice", "wonder")
        asked.clear()
        assert lifetime(server, SHA_512) == 0
        assert asked == []
        assert lifetime(server, SHA_256) == 60_000
        assert AUTHENTICATE in asked


def test_a_change_of_the_mechanisms_counts_at_once(threads: KafkaServer, asked: list[int]) -> None:
    admin = logged_in(threads, "admin")

    def enable(mechanisms: list[str]) -> None:
        config = IncrementalAlterConfigsRequest.Resource.Config(
            name=f"{KEY}sasl.enabled.mechanisms", config_operation=0, value=",".join(mechanisms)
        )
        resource = IncrementalAlterConfigsRequest.Resource(resource_type=4, resource_name="1", configs=[config])
        response = admin(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert [each.error_code for each in response.responses] == [ErrorCode.NONE], response.responses

    def offered(mechanism: str) -> tuple[int, list[str]]:
        client = open_connection(threads)
        response = handshake(client, mechanism)
        client.close()
        return response.error_code, response.mechanisms

    enable(["PLAIN", SHA_512])
    try:
        wait_until(
            lambda: offered(SHA_256) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["PLAIN", SHA_512]), "one mechanism less"
        )
        asked.clear()
        assert offered(SHA_512) == (ErrorCode.NONE, ["PLAIN", SHA_512])
        assert asked == []
    finally:
        enable(MECHANISMS)
    wait_until(lambda: offered(SHA_256) == (ErrorCode.NONE, MECHANISMS), "all mechanisms again")
    asked.clear()
    assert lifetime(threads, SHA_256) == 0
    assert asked == []
    admin.close()


def test_a_new_password_counts_at_once(threads: KafkaServer) -> None:
    add_scram_user(threads, "carol", "one")
    client = open_connection(threads)
    assert log_in_scram(client, SHA_256, "carol", "one").error_code == ErrorCode.NONE
    client.close()
    add_scram_user(threads, "carol", "two")

    def code(password: str) -> int:
        client = open_connection(threads)
        response = log_in_scram(client, SHA_256, "carol", password)
        client.close()
        return int(response.error_code)

    wait_until(lambda: code("two") == ErrorCode.NONE, "the new password is accepted")
    assert code("one") == ErrorCode.SASL_AUTHENTICATION_FAILED
