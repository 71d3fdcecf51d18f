"""The Java clients of Apache Kafka over SSL and SASL_SSL, with stores of Java's types (make interop-java)."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from broker.sasl_broker import add_scram_user, sasl_config
from certificates import localhost, make_ca, shared_ca
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
    serialize_key_and_certificates,
)
from interop.conftest import JAVA
from interop.test_java_oauthbearer import LINES, produce_and_consume
from peers.apache_kafka import java

from kafkapy.broker.server import KafkaServer

pytestmark = JAVA

PASSWORD = "store-secret"
OPTIONS = ("-Xmx256m",)
_names = itertools.count(1)


class Addresses(NamedTuple):
    certificates: str
    """Of the listener that asks for certificates (SSL)."""
    scram: str
    """Of the listener with SCRAM over TLS (SASL_SSL)."""


@pytest.fixture
def topic() -> str:
    return f"java-ssl-{next(_names)}"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the stores of the broker and of its clients, in PKCS12."""
    made = tmp_path_factory.mktemp("stores")
    encryption = BestAvailableEncryption(PASSWORD.encode())
    trusted = [PKCS12Certificate(shared_ca().certificate, b"ca")]
    (made / "trusted.p12").write_bytes(serialize_java_truststore(trusted, encryption))
    (made / "trusted.pem").write_bytes(shared_ca().pem)
    identities = {"broker": localhost(), "carol": shared_ca().sign("carol"), "eve": make_ca("evil").sign("carol")}
    for name, each in identities.items():
        store = serialize_key_and_certificates(name.encode(), each.key, each.certificate, each.issuers, encryption)
        (made / f"{name}.p12").write_bytes(store)
        (made / f"{name}.pem").write_bytes(each.key_pem + each.chain_pem)
    return made


@pytest.fixture(scope="module")
def addresses(directory: Path) -> Iterator[Addresses]:
    keys = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,SSL://localhost:0,SASL_SSL://localhost:0",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(directory / "broker.p12"),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(directory / "trusted.p12"),
        "ssl.truststore.password": PASSWORD,
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin;User:carol;User:scram",
    }
    with KafkaServer(sasl_config(directory / "data", keys)) as server:
        add_scram_user(server, "scram", "pencil")
        ports = {each.listener_name: each.port for each in server.endpoints}
        yield Addresses(f"localhost:{ports['SSL']}", f"localhost:{ports['SASL_SSL']}")


def properties(directory: Path, store: str, name: str | None = None, *more: str) -> Path:
    """A client's properties file, with stores of a type, and the identity of a name."""
    suffix = {"PKCS12": "p12", "PEM": "pem"}[store]
    password = [] if store == "PEM" else [f"ssl.truststore.password={PASSWORD}"]
    lines = [
        "security.protocol=SSL",
        f"ssl.truststore.type={store}",
        f"ssl.truststore.location={directory}/trusted.{suffix}",
    ]
    if name is not None:
        lines += [f"ssl.keystore.type={store}", f"ssl.keystore.location={directory}/{name}.{suffix}"]
        password += [] if store == "PEM" else [f"ssl.keystore.password={PASSWORD}"]
    path = directory / f"client-{next(_names)}.properties"
    path.write_text("\n".join([*lines, *password, *more]) + "\n")
    return path


@pytest.mark.parametrize("store", ["PEM", "PKCS12"])
@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_a_certificate_lets_java_clients_in(
    version: str, addresses: Addresses, topic: str, directory: Path, store: str, protocol: str
) -> None:
    config = properties(directory, store, "carol", f"ssl.enabled.protocols={protocol}")
    assert produce_and_consume(version, addresses.certificates, topic, config, OPTIONS) == LINES


def test_scram_over_tls_lets_java_clients_in(version: str, addresses: Addresses, topic: str, directory: Path) -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    config = properties(
        directory,
        "PKCS12",
        None,
        "security.protocol=SASL_SSL",
        "sasl.mechanism=SCRAM-SHA-512",
        f'sasl.jaas.config={module} required username="scram" password="pencil";',
    )
    assert produce_and_consume(version, addresses.scram, topic, config, OPTIONS) == LINES


@pytest.mark.parametrize("name", [None, "eve"])
def test_java_clients_without_a_certificate_of_the_authority_are_refused(
    version: str, addresses: Addresses, directory: Path, name: str | None
) -> None:
    config = properties(directory, "PEM", name)
    command = java(
        version, "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", addresses.certificates, "--list",
        "--command-config", str(config), options=OPTIONS,
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode != 0
    assert "SslAuthenticationException" in done.stdout + done.stderr
