"""A broker with SASL listeners, and raw connections that log in."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from broker.conftest import Client
from security.sasl.scram_client import ScramClient

from kafkapy.broker.server import KafkaServer
from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kafkapy.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkapy.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kafkapy.security.scram import ScramMechanism

PLAIN_USERS = {"admin": "admin-secret", "alice": "wonder", "bob": "bobs-secret"}
LISTENER = "SASL_PLAINTEXT"


def sasl_config(directory: Path, keys: dict[str, str] | None = None) -> BrokerConfig:
    """A broker with one listener for SASL_PLAINTEXT, where PLAIN and SCRAM are enabled."""
    options = " ".join(f'user_{user}="{password}"' for user, password in PLAIN_USERS.items())
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    given = {
        "broker.id": "1",
        "listeners": f"{LISTENER}://127.0.0.1:0",
        "inter.broker.listener.name": LISTENER,
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": f"{module} required {options};",
        "log.dirs": str(directory),
        "num.network.threads": "1",
        "num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "connection.failed.authentication.delay.ms": "1",
        "delegation.token.secret.key": "token secret of the tests",
    }
    return BrokerConfig(given | (keys or {}))


def open_connection(server: KafkaServer) -> Client:
    """A connection that has not logged in."""
    endpoint = server.endpoints[0]
    return Client(endpoint.host, endpoint.port)


def handshake(client: Client, mechanism: str, version: int = 1) -> Any:
    return client(SaslHandshakeRequest(mechanism=mechanism), version)


def token(client: Client, data: bytes, version: int = 2) -> Any:
    return client(SaslAuthenticateRequest(auth_bytes=data), version)


def log_in_plain(client: Client, user: str = "alice", password: str | None = None, version: int = 2) -> Any:
    """The response to the last token."""
    assert handshake(client, "PLAIN").error_code == ErrorCode.NONE
    secret = PLAIN_USERS.get(user, "") if password is None else password
    return token(client, b"\0".join((b"", user.encode(), secret.encode())), version)


def log_in_scram(client: Client, mechanism: str, user: str, password: str, extensions: str = "") -> Any:
    """The response to the last token."""
    assert handshake(client, mechanism).error_code == ErrorCode.NONE
    exchange = ScramClient(mechanism, user, password, extensions=extensions)
    challenge = token(client, exchange.first())
    assert challenge.error_code == ErrorCode.NONE, challenge.error_message
    response = token(client, exchange.final(challenge.auth_bytes))
    if response.error_code == ErrorCode.NONE:
        exchange.check(response.auth_bytes)
    return response


def logged_in(server: KafkaServer, user: str = "alice") -> Client:
    """A connection of a user by PLAIN."""
    client = open_connection(server)
    response = log_in_plain(client, user)
    assert response.error_code == ErrorCode.NONE, response.error_message
    return client


def add_scram_user(server: KafkaServer, user: str, password: str, iterations: int = 4096) -> None:
    """A user with credentials of both mechanisms, made by a request."""
    salt = hashlib.sha256(user.encode()).digest()[:24]
    upsertions = [
        AlterUserScramCredentialsRequest.Upsertion(
            name=user,
            mechanism=each,
            iterations=iterations,
            salt=salt,
            salted_password=hashlib.pbkdf2_hmac(each.hash_name, password.encode(), salt, iterations),
        )
        for each in ScramMechanism
        if each
    ]
    client = logged_in(server, "admin")
    response = client(AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions), 0)
    assert [each.error_code for each in response.results] == [ErrorCode.NONE]
    client.close()
