"""Secrets of a broker's configuration stay out of DescribeConfigs, of the request log, and of texts of objects."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.sasl_broker import PLAIN_USERS, logged_in, sasl_config

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.protocol.messages.alter_configs import AlterConfigsRequest
from kafkapy.protocol.messages.describe_configs import DescribeConfigsRequest
from kafkapy.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafkapy.protocol.messages.metadata import MetadataRequest

BROKER, TOPIC = 4, 2
JAAS_KEY = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
SECRETS = [*PLAIN_USERS.values(), "token secret of the tests"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with KafkaServer(sasl_config(tmp_path_factory.mktemp("secrets"))) as started:
        yield started


@pytest.fixture
def admin(server: KafkaServer) -> Iterator[Any]:
    client = logged_in(server, "admin")
    yield client
    client.close()


@pytest.mark.parametrize("version", range(5))
def test_described_secrets_have_no_value(admin: Any, version: int) -> None:
    resource = DescribeConfigsRequest.Resource(resource_type=BROKER, resource_name="1", configuration_keys=None)
    asked = DescribeConfigsRequest(resources=[resource], include_synonyms=version >= 1)
    (result,) = admin(asked, version).results
    assert result.error_code == ErrorCode.NONE
    found = {each.name: each for each in result.configs}
    for name in (JAAS_KEY, "delegation.token.secret.key"):
        assert (found[name].value, found[name].is_sensitive) == (None, True)
    assert [secret for secret in SECRETS if secret in repr(result)] == []


def test_configuration_objects_show_no_secret(server: KafkaServer) -> None:
    config = server.config
    shown = repr(config) + str(config.plain()) + repr(config[JAAS_KEY]) + str(config.describe())
    assert not any(secret in shown for secret in SECRETS)


def messages(name: str, value: str, kind: int) -> list[tuple[Any, int]]:
    old, new = AlterConfigsRequest.Resource, IncrementalAlterConfigsRequest.Resource
    return [
        (
            AlterConfigsRequest(
                resources=[old(resource_type=kind, resource_name="1", configs=[old.Config(name=name, value=value)])],
                validate_only=True,
            ),
            2,
        ),
        (
            IncrementalAlterConfigsRequest(
                resources=[
                    new(
                        resource_type=kind,
                        resource_name="1",
                        configs=[new.Config(name=name, config_operation=0, value=value)],
                    )
                ],
                validate_only=True,
            ),
            1,
        ),
    ]


@pytest.mark.parametrize(
    ("name", "kind", "hidden"),
    [
        (JAAS_KEY, BROKER, True),
        ("listener.name.sasl_plaintext.ssl.keystore.password", BROKER, True),
        ("ssl.key.password", BROKER, True),
        ("misspelt.password", BROKER, True),
        ("log.retention.ms", BROKER, False),
        ("listener.name.sasl_plaintext.max.connections", BROKER, False),
        ("retention.ms", TOPIC, False),
    ],
)
def test_the_request_log_hides_requests_that_set_secrets(
    admin: Any, caplog: pytest.LogCaptureFixture, name: str, kind: int, hidden: bool
) -> None:
    caplog.set_level(5, "kafka.request.logger")
    for message, version in messages(name, "1234512345", kind):
        admin(message, version)
    admin(MetadataRequest(topics=None), 12)  # when it is answered, the lines of the others are written
    logged = [record for record in caplog.records if getattr(record, "api", "").endswith("AlterConfigs")]
    assert len(logged) == 2
    for record in logged:
        assert ("1234512345" not in str(record.__dict__)) is hidden


def test_a_broken_jaas_text_stops_the_start_without_being_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "kafka")
    config = sasl_config(tmp_path, {JAAS_KEY: 'org.apache.kafka.Plain required password="hunter2'})
    with pytest.raises(Exception, match="no closing quote") as caught:
        KafkaServer(config).start()
    assert JAAS_KEY in str(caught.value)
    assert "hunter2" not in str(caught.value) + caplog.text


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({JAAS_KEY: ""}, "names no login module"),
        ({JAAS_KEY: "a.B required; c.D required;"}, "must have one login module, not 2"),
        ({JAAS_KEY: "a.B required user_x=y;"}, "not of a.B"),
        ({"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-1"}, "must be one of .*SCRAM-SHA-512; did you mean"),
        (
            {"listener.name.sasl_plaintext.plain.sasl.server.callback.handler.class": "nothing"},
            "sasl.server.callback.handler.class",
        ),
    ],
)
def test_a_listener_that_cannot_authenticate_stops_the_start(tmp_path: Path, keys: dict[str, str], reason: str) -> None:
    with pytest.raises(Exception, match=reason):
        KafkaServer(sasl_config(tmp_path, keys)).start()


def test_users_may_stand_in_a_jaas_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's start scripts name the file in KAFKA_OPTS; a context of the listener wins."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    text = f"KafkaServer {{ {module} required user_admin=other; }};\nClient {{ a.B required; }};\n"
    own = f'sasl_plaintext.KafkaServer {{ {module} required user_admin="admin-secret"; }};\n'
    (tmp_path / "jaas.conf").write_text(text + own)
    monkeypatch.setenv("KAFKA_OPTS", f"-Xmx1g -Djava.security.auth.login.config={tmp_path}/jaas.conf -Da=b")
    config = sasl_config(tmp_path / "data")
    config = type(config)({name: value for name, value in config.static.items() if name != JAAS_KEY})
    with KafkaServer(config) as server:
        logged_in(server, "admin").close()
    (tmp_path / "jaas.conf").write_text("KafkaServer {")
    with pytest.raises(Exception, match=r"jaas\.conf.*a login module's class name is expected at the end"):
        KafkaServer(config).start()
    monkeypatch.setenv("KAFKA_OPTS", "-Djava.security.auth.login.config=/nowhere/jaas.conf")
    with pytest.raises(Exception, match=r"/nowhere/jaas\.conf.*cannot be read"):
        KafkaServer(config).start()
