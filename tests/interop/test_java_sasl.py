"""The Java clients and tools of Apache Kafka 3.9 and 4.x over SASL_PLAINTEXT (make interop-java)."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.sasl_broker import PLAIN_USERS, add_scram_user, sasl_config
from interop.conftest import JAVA
from interop.conftest import run_java as run
from peers.apache_kafka import java

from kafkapy.broker.server import KafkaServer

pytestmark = JAVA

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
LINES = [f"value {number}" for number in range(50)]
_names = itertools.count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    keys = {
        "listener.name.sasl_plaintext.scram-sha-256.connections.max.reauth.ms": "2000",
        "auto.create.topics.enable": "true",
    }
    with KafkaServer(sasl_config(tmp_path_factory.mktemp("sasl"), keys)) as started:
        add_scram_user(started, "scram,=user", 'pass\\word"=,')
        yield started


@pytest.fixture
def bootstrap(server: KafkaServer) -> str:
    return f"127.0.0.1:{server.endpoints[0].port}"


@pytest.fixture
def topic() -> str:
    return f"java-sasl-{next(_names)}"


def login(directory: Path, mechanism: str, user: str, password: str, more: str = "") -> str:
    """A properties file of a client."""
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    jaas = f'{module} required username="{user}" password="{quoted}" {more};'
    path = directory / f"{mechanism}-{next(_names)}.properties"
    escaped = jaas.replace("\\", "\\\\")
    path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={escaped}\n")
    return str(path)


def admin(directory: Path, user: str = "admin") -> str:
    return login(directory, "PLAIN", user, PLAIN_USERS[user])


def console_producer(version: str) -> str:
    return "kafka.tools.ConsoleProducer" if version.startswith("3") else "org.apache.kafka.tools.ConsoleProducer"


def produce(version: str, bootstrap: str, topic: str, config: str) -> None:
    run(
        version, console_producer(version), "--bootstrap-server", bootstrap, "--topic", topic,
        "--producer.config", config, data="\n".join(LINES) + "\n",
    )  # fmt: skip


def consume(version: str, bootstrap: str, topic: str, config: str) -> list[str]:
    return run(
        version, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap, "--topic", topic,
        "--consumer.config", config, "--group", topic, "--from-beginning", "--max-messages", str(len(LINES)),
        "--timeout-ms", "30000",
    ).splitlines()  # fmt: skip


@pytest.mark.parametrize(
    ("mechanism", "user", "password"),
    [
        ("PLAIN", "alice", PLAIN_USERS["alice"]),
        ("SCRAM-SHA-256", "scram,=user", 'pass\\word"=,'),
        ("SCRAM-SHA-512", "scram,=user", 'pass\\word"=,'),
    ],
)
def test_records_go_through(
    version: str, bootstrap: str, topic: str, tmp_path: Path, mechanism: str, user: str, password: str
) -> None:
    config = login(tmp_path, mechanism, user, password)
    produce(version, bootstrap, topic, config)
    assert consume(version, bootstrap, topic, config) == LINES


@pytest.mark.parametrize(
    ("mechanism", "user", "reason"),
    [
        ("PLAIN", "alice", "Authentication failed: Invalid username or password"),
        ("PLAIN", "nobody", "Authentication failed: Invalid username or password"),
        ("SCRAM-SHA-256", "scram,=user", "due to invalid credentials with SASL mechanism SCRAM-SHA-256"),
        ("SCRAM-SHA-512", "nobody", "due to invalid credentials with SASL mechanism SCRAM-SHA-512"),
    ],
)
def test_wrong_credentials_are_told(
    version: str, bootstrap: str, tmp_path: Path, mechanism: str, user: str, reason: str
) -> None:
    command = java(
        version, "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", bootstrap, "--list",
        "--command-config", login(tmp_path, mechanism, user, "wrong"), options=("-Xmx256m",),
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode != 0
    assert reason in done.stdout + done.stderr


def test_a_session_is_renewed_under_load(version: str, server: KafkaServer, topic: str, tmp_path: Path) -> None:
    bootstrap = f"127.0.0.1:{server.endpoints[0].port}"
    config = login(tmp_path, "SCRAM-SHA-256", "scram,=user", 'pass\\word"=,')
    out = run(
        version, "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", "500",
        "--throughput", "100", "--record-size", "100", "--producer.config", config,
        "--producer-props", f"bootstrap.servers={bootstrap}", "acks=all", "retries=0",
    )  # fmt: skip
    assert "500 records sent" in out
    assert "Exception" not in out


def test_the_configuration_tool_manages_scram_users(
    version: str, server: KafkaServer, topic: str, tmp_path: Path
) -> None:
    bootstrap = f"127.0.0.1:{server.endpoints[0].port}"
    user = f"user-{topic}"
    tool = ("kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, "--command-config", admin(tmp_path))
    entity = ("--entity-type", "users", "--entity-name", user)
    run(
        version, *tool, "--alter", "--add-config",
        "SCRAM-SHA-256=[iterations=8192,password=pencil],SCRAM-SHA-512=[password=pencil]", *entity,
    )  # fmt: skip
    # The tool describes users together with their quotas, which are not served; so the broker itself is asked.
    credentials = server.context.logins.scram_credentials
    described = server.call(credentials.describe([user]))[user]
    assert [(each.mechanism, each.iterations) for each in described] == [(1, 8192), (2, 4096)]
    config = login(tmp_path, "SCRAM-SHA-512", user, "pencil")
    produce(version, bootstrap, topic, config)
    run(version, *tool, "--alter", "--delete-config", "SCRAM-SHA-256", *entity)
    assert [each.mechanism for each in server.call(credentials.describe([user]))[user]] == [2]


def test_the_token_tool_creates_uses_renews_and_expires_tokens(
    version: str, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    tool = (
        "org.apache.kafka.tools.DelegationTokenCommand", "--bootstrap-server", bootstrap,
        "--command-config", admin(tmp_path, "alice"),
    )  # fmt: skip
    created = run(version, *tool, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    row = created.strip().splitlines()[-1].split()
    token_id, secret = row[0], row[1]
    config = login(tmp_path, "SCRAM-SHA-256", token_id, secret, "tokenauth=true")
    produce(version, bootstrap, topic, config)
    assert consume(version, bootstrap, topic, config) == LINES
    # Without an owner the tool asks for no owner's tokens.
    mine = ("--describe", "--owner-principal", "User:alice")
    described = run(version, *tool, *mine)
    assert re.search(rf"{re.escape(token_id)}\s+{re.escape(secret)}\s+User:alice", described)
    assert "User:bob" in described
    run(version, *tool, "--renew", "--renew-time-period", "-1", "--hmac", secret)
    run(version, *tool, "--expire", "--expiry-time-period", "-1", "--hmac", secret)
    assert token_id not in run(version, *tool, *mine)


def test_a_transactional_client_logs_in(version: str, bootstrap: str, topic: str, tmp_path: Path) -> None:
    config = login(tmp_path, "PLAIN", "alice", PLAIN_USERS["alice"])
    out: Any = run(
        version, "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", "100",
        "--throughput", "-1", "--record-size", "10", "--producer.config", config, "--transactional-id", topic,
        "--transaction-duration-ms", "100", "--producer-props", f"bootstrap.servers={bootstrap}",
    )  # fmt: skip
    assert "100 records sent" in out
