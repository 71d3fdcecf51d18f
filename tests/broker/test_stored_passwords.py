"""Secrets that clients set at run time: encrypted in the store, in force on the broker, shown to nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from broker.sasl_broker import log_in_plain, logged_in, open_connection, sasl_config

from kafkapy.broker.server import KafkaServer
from kafkapy.broker.stored_passwords import StoredPasswords
from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.metadata.znodes import CONFIG_BROKERS
from kafkapy.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkapy.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

KEY = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
ENCODER = {"password.encoder.secret": "encoder secret", "password.encoder.iterations": "1024"}
SET, DELETE = 0, 1


def jaas(**users: str) -> str:
    return f"{MODULE} required " + " ".join(f'user_{user}="{password}"' for user, password in users.items()) + ";"


def alter(server: KafkaServer, name: str, value: str | None, broker: str = "1", operation: int = SET) -> Any:
    Resource = IncrementalAlterConfigsRequest.Resource
    configs = [Resource.Config(name=name, config_operation=operation, value=value)]
    resource = Resource(resource_type=4, resource_name=broker, configs=configs)
    client = logged_in(server, "admin")
    response = client(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0]
    client.close()
    return response


def stored(server: KafkaServer) -> dict[str, str]:
    found: dict[str, str] = server.call(server.context.dynamic_config.repository.fetch(CONFIG_BROKERS, "1"))
    return found


def logs_in(server: KafkaServer, user: str, password: str) -> bool:
    client = open_connection(server)
    try:
        return bool(log_in_plain(client, user, password).error_code == ErrorCode.NONE)
    finally:
        client.close()


def test_a_secret_is_encrypted_in_the_store_and_works_also_after_a_restart(tmp_path: Path) -> None:
    users = jaas(admin="admin-secret", dora="explorer")
    with KafkaServer(sasl_config(tmp_path, ENCODER)) as server:
        assert not logs_in(server, "dora", "explorer")
        assert alter(server, KEY, users).error_code == ErrorCode.NONE
        server.call(server.context.authentication.update_config(server.config))
        assert logs_in(server, "dora", "explorer")
        text = stored(server)[KEY]
        assert "explorer" not in text
        assert "cipherAlgorithm:AES/CBC/PKCS5Padding" in text
        assert alter(server, "log.retention.ms", "12345678").error_code == ErrorCode.NONE
        assert stored(server)[KEY] == text
        client = logged_in(server, "admin")
        resource = DescribeConfigsRequest.Resource(resource_type=4, resource_name="1", configuration_keys=[KEY])
        (entry,) = client(DescribeConfigsRequest(resources=[resource]), 4).results[0].configs
        assert (entry.value, entry.is_sensitive) == (None, True)
        client.close()
    renewed = {**ENCODER, "password.encoder.secret": "new secret", "password.encoder.old.secret": "encoder secret"}
    with KafkaServer(sasl_config(tmp_path, renewed)) as server:
        assert logs_in(server, "dora", "explorer")
        assert stored(server)[KEY] != text
    with KafkaServer(sasl_config(tmp_path, {**ENCODER, "password.encoder.secret": "new secret"})) as server:
        assert logs_in(server, "dora", "explorer")
        assert alter(server, KEY, None, operation=DELETE).error_code == ErrorCode.NONE
        assert KEY not in stored(server)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (KEY, f"{MODULE} required user_dora=1EXPLORER;", "the option user_dora has no value at line 1"),
        (KEY, f"{MODULE} required; a.B required;", "must have one login module, not 2"),
        ("listener.name.sasl_plaintext.sasl.enabled.mechanisms", "PLAIN,NONE", "must be one of"),
        ("listener.name.sasl_plaintext.sasl.enabled.mechanisms", "", "must be one of sasl.enabled.mechanisms ()"),
    ],
)
def test_a_change_that_could_not_work_is_refused(tmp_path: Path, key: str, value: str, reason: str) -> None:
    with KafkaServer(sasl_config(tmp_path, ENCODER)) as server:
        response = alter(server, key, value)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert reason in response.error_message
        assert "EXPLORER" not in response.error_message
        assert key not in stored(server)
        assert logs_in(server, "alice", "wonder")


def test_a_secret_under_a_lost_key_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with KafkaServer(sasl_config(tmp_path, ENCODER)) as server:
        alter(server, KEY, jaas(admin="admin-secret", dora="explorer"))
    with KafkaServer(sasl_config(tmp_path, {**ENCODER, "password.encoder.secret": "other"})) as server:
        assert not logs_in(server, "dora", "explorer")
        assert logs_in(server, "alice", "wonder")
    assert f"Dynamic password config {KEY} could not be decoded, ignoring" in caplog.text


def test_a_secret_is_no_key_of_the_cluster(tmp_path: Path) -> None:
    with KafkaServer(sasl_config(tmp_path, ENCODER)) as server:
        response = alter(server, KEY, jaas(admin="admin-secret"), broker="")
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert "broker id must be specified" in response.error_message
        assert "admin-secret" not in response.error_message


def test_in_zookeeper_a_secret_needs_the_encoder() -> None:
    passwords = StoredPasswords(BrokerConfig({"zookeeper.connect": "localhost:1"}))
    with pytest.raises(KafkaError, match="Password encoder secret not configured") as caught:
        passwords.encoded({KEY: "SECRET", "log.retention.ms": "1"}, {})
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert "SECRET" not in str(caught.value)
    assert passwords.encoded({"log.retention.ms": "1"}, {}) == {"log.retention.ms": "1"}


def test_the_embedded_store_keeps_a_secret_as_kraft_does_without_an_encoder() -> None:
    passwords = StoredPasswords(BrokerConfig({}))
    assert passwords.encoded({KEY: "text"}, {}) == {KEY: "text"}
    assert passwords.decoded({KEY: "text"}) == {KEY: "text"}


@pytest.mark.parametrize("keys", [{}, ENCODER, {"password.encoder.old.secret": "old"}])
def test_without_both_secrets_nothing_is_renewed(keys: dict[str, str]) -> None:
    stored = StoredPasswords(BrokerConfig(ENCODER)).encoded({KEY: "text"}, {})
    assert StoredPasswords(BrokerConfig(keys)).renewed(stored) == stored
