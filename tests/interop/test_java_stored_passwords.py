"""Secrets among dynamic keys in ZooKeeper: kafkapy reads what Apache Kafka 3.9 encrypted, and 3.9 what kafkapy did."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.dynamic_changes import alter, change
from interop.conftest import JAVA, with_jars
from peers.apache_kafka import ApacheKafka, PeerMissingError, free_port, java
from peers.zookeeper import ZooKeeper
from system.raw_client import RawClient

from kafkapy.errors import ErrorCode
from kafkapy.security.ssl.certificates import create_authority
from kafkapy.testing.broker_process import BrokerProcess

pytestmark = [*JAVA, pytest.mark.timeout(900)]

PREFIX = "listener.name.tls.ssl."
STORE, OTHER = "opens", "shuts"
ENCODER = {"password.encoder.secret": "encodes"}


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[str]:
    with_jars("3.9")
    try:
        server = ZooKeeper(tmp_path / "zookeeper")
    except PeerMissingError as missing:
        pytest.skip(str(missing))
    with server:
        yield server.connect


class Settings:
    """Keys of broker 1 with a listener TLS, whose password is not among them."""

    def __init__(self, place: Path, connect: str) -> None:
        place.mkdir()
        authority = create_authority()
        (place / "key.p12").write_bytes(authority.issue("broker", hosts=["localhost"]).pkcs12(STORE))
        self.trusted = authority.chain_pem()
        self.port, self.tls_port = free_port(), free_port()
        listeners = f"PLAINTEXT://127.0.0.1:{self.port},TLS://127.0.0.1:{self.tls_port}"
        self.keys = {
            "broker.id": "1",
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": "6000",
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL",
            PREFIX + "keystore.type": "PKCS12",
            PREFIX + "keystore.location": str(place / "key.p12"),
            **ENCODER,
        }

    def handshake(self) -> str | None:
        """The version of TLS that a client gets at the listener."""
        context = ssl.create_default_context(cadata=self.trusted)
        with (
            socket.create_connection(("127.0.0.1", self.tls_port), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            return secured.version()


@pytest.fixture
def settings(zookeeper: str, tmp_path: Path) -> Settings:
    return Settings(tmp_path / "settings", zookeeper)


def configs(*arguments: str) -> tuple[int, str]:
    """kafka-configs of 3.9: exit code, and what it printed."""
    command = java("3.9", "kafka.admin.ConfigCommand", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


def secrets(password: str = STORE, encoder: str = "encodes") -> tuple[str, ...]:
    keys = {PREFIX + "keystore.password": password, PREFIX + "key.password": password}
    added = ",".join(f"{key}={value}" for key, value in keys.items())
    return "--alter", "--add-config", f"{added},password.encoder.secret={encoder}"


def test_a_broker_starts_with_secrets_that_kafkas_tool_wrote_before(
    settings: Settings, zookeeper: str, tmp_path: Path
) -> None:
    """The tool writes to ZooKeeper while no broker runs, and refuses that later."""
    one = ("--zookeeper", zookeeper, "--entity-type", "brokers", "--entity-name", "1")
    code, said = configs(*one, *secrets())
    assert (code, "Completed updating config" in said) == (0, True), said
    with broker(tmp_path / "kafkapy", settings) as running:
        assert settings.handshake() == "TLSv1.3"
        code, said = configs(*one, *secrets(OTHER))
        assert (code, "brokers are up" in said or "broker is running" in said or "running" in said) == (1, True), said
        code, said = configs("--bootstrap-server", running.bootstrap, *one[2:], "--describe")
        assert code == 0
        shown = re.findall(r"(\S+)=(\S+) sensitive=(\S+)", said)
        assert shown == [(PREFIX + name, "null", "true") for name in ("key.password", "keystore.password")]


def test_secrets_of_another_encoder_are_not_used(settings: Settings, zookeeper: str, tmp_path: Path) -> None:
    """The broker says so and ends, for its listener has no password; the old secret makes them usable again."""
    one = ("--zookeeper", zookeeper, "--entity-type", "brokers", "--entity-name", "1")
    code, said = configs(*one, *secrets(encoder="former"))
    assert code == 0, said
    settings.keys["password.encoder.old.secret"] = "former"
    with broker(tmp_path / "kafkapy", settings) as running:
        assert settings.handshake() == "TLSv1.3"
        running.stop()
        # They are stored under the current secret now.
        del running.overrides["password.encoder.old.secret"]
        running.start()
        assert settings.handshake() == "TLSv1.3"


def test_apache_kafka_reads_the_secrets_that_kafkapy_stored(settings: Settings, tmp_path: Path) -> None:
    changed = {PREFIX + "keystore.password": STORE, PREFIX + "key.password": STORE}
    keys = settings.keys
    settings.keys = keys | changed
    with broker(tmp_path / "kafkapy", settings) as running:
        client = RawClient(running.bootstrap)
        wrong = alter(client.call, {PREFIX + "keystore.password": OTHER})
        assert wrong.error_code == ErrorCode.INVALID_REQUEST
        change(client.call, changed)
        client.close()
        assert running.stop() == 0
    theirs = ApacheKafka("3.9", tmp_path / "apache", zookeeper=keys["zookeeper.connect"])
    theirs.port = settings.port
    theirs.overrides = keys
    with theirs:
        assert settings.handshake() is not None


def broker(place: Path, settings: Settings) -> Any:
    return BrokerProcess(place, dict(settings.keys), port=settings.port)
