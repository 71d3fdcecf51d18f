"""Clients of five libraries over GSSAPI, with tickets of a real key distribution centre.

confluent-kafka's wheel has no Kerberos; kcat of Debian has librdkafka's.
"""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.sasl_broker import open_connection, sasl_config
from interop.login_driver import (
    RECORDS,
    TIMEOUT_S,
    aiokafka_round,
    kafka_python_round,
    kafkapy_aio_round,
    kafkapy_round,
    pythonic_keys,
)
from kerberos_realm import REALM, Realm, kerberos_realm, needs_kerberos
from waiting import wait_until

import kafkapy
from kafkapy.broker.server import KafkaServer
from kafkapy.errors import SaslAuthenticationFailedError, TopicAuthorizationFailedError
from kafkapy.protocol.messages.api_versions import ApiVersionsRequest
from kafkapy.protocol.messages.metadata import MetadataRequest

pytestmark = needs_kerberos
MODULE = "com.sun.security.auth.module.Krb5LoginModule"
_names = itertools.count(1)


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with kerberos_realm(tmp_path_factory.mktemp("realm")) as realm, pytest.MonkeyPatch.context() as patch:
        for name, value in realm.environment.items():
            patch.setenv(name, value)
        for principal in ("kafka/127.0.0.1", "kafka/localhost", "alice", "mallory"):
            realm.add(principal)
        yield realm


def keytab(realm: Realm, principal: str) -> Path:
    return realm.directory / f"{principal.replace('/', '_')}.keytab"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, realm: Realm) -> Iterator[KafkaServer]:
    jaas = f'{MODULE} required useKeyTab=true storeKey=true keyTab="{keytab(realm, "kafka/127.0.0.1")}" principal="*";'
    keys = {
        "sasl.enabled.mechanisms": "PLAIN,GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": jaas,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin;User:alice",
    }
    with KafkaServer(sasl_config(tmp_path_factory.mktemp("kerberos"), keys)) as started:
        yield started


@pytest.fixture
def bootstrap(server: KafkaServer) -> str:
    return f"127.0.0.1:{server.endpoints[0].port}"


@pytest.fixture
def topic() -> str:
    return f"kerberos-{next(_names)}"


@pytest.fixture
def tickets(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> Path:
    """alice's ticket cache, which is the default one."""
    cache = realm.kinit(f"alice@{REALM}", keytab(realm, "alice"))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    return cache


def pythonic(bootstrap: str, **keys: Any) -> dict[str, Any]:
    """The keywords of kafka-python and aiokafka."""
    return pythonic_keys(bootstrap, "GSSAPI", sasl_kerberos_service_name="kafka", **keys)


@pytest.mark.usefixtures("tickets")
def test_kafka_python(bootstrap: str, topic: str) -> None:
    assert kafka_python_round(pythonic(bootstrap, sasl_kerberos_domain_name="127.0.0.1"), topic) == RECORDS


@pytest.mark.usefixtures("tickets")
def test_aiokafka(bootstrap: str, topic: str) -> None:
    assert aiokafka_round(pythonic(bootstrap, sasl_kerberos_domain_name="127.0.0.1"), topic) == RECORDS


@pytest.mark.skipif(shutil.which("kcat") is None, reason="needs kcat")
def test_kcat(bootstrap: str, topic: str, tickets: Path) -> None:
    if not any(Path("/usr/lib").glob("*/sasl2/libgssapiv2.so")):
        pytest.skip("needs libsasl2-modules-gssapi-mit")
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.kinit.cmd": "true",
    }
    options = [f"-X{name}={value}" for name, value in settings.items()]

    def kcat(*arguments: str, stdin: bytes = b"") -> bytes:
        command = ["kcat", "-b", bootstrap, *options, "-t", topic, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False, env=os.environ)
        assert done.returncode == 0, done.stderr
        return done.stdout

    kcat("-P", stdin=b"\n".join(RECORDS))
    assert kcat("-C", "-e", "-q", "-o", "beginning").splitlines() == RECORDS


def ours(bootstrap: str, realm: Realm, principal: str = "alice", **keys: Any) -> dict[str, Any]:
    """A keytab, as a properties file of Java has it."""
    jaas = f'{MODULE} required useKeyTab=true keyTab="{keytab(realm, principal)}" principal="{principal}@{REALM}";'
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_jaas_config": jaas,
        **keys,
    }


def test_kafkapy_with_a_keytab(bootstrap: str, topic: str, realm: Realm) -> None:
    assert kafkapy_round(ours(bootstrap, realm), topic) == RECORDS


@pytest.mark.usefixtures("tickets")
def test_kafkapy_with_a_ticket_cache(bootstrap: str, topic: str) -> None:
    assert kafkapy_aio_round(pythonic(bootstrap), topic) == RECORDS


def test_the_ticket_decides_the_principal(bootstrap: str, topic: str, realm: Realm) -> None:
    """Only alice may write."""
    with (
        kafkapy.KafkaProducer(**ours(bootstrap, realm, "mallory")) as producer,
        pytest.raises(TopicAuthorizationFailedError),
    ):
        producer.send(topic, b"x").get(TIMEOUT_S)


def test_a_ticket_for_another_broker_is_refused(bootstrap: str, realm: Realm, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka")
    with pytest.raises(SaslAuthenticationFailedError, match="refused authentication by GSSAPI"):
        kafkapy.KafkaProducer(**ours(bootstrap, realm, sasl_kerberos_domain_name="localhost"))
    wait_until(lambda: "Kerberos refuses the client" in caplog.text, "the broker logs the reason")


def test_no_tickets_are_told(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'none'}")
    with pytest.raises(SaslAuthenticationFailedError, match="to get a ticket from the default ticket cache"):
        kafkapy.KafkaProducer(**pythonic(bootstrap))


# --- clients of Kafka 0.9 -----------------------------------------------------------------------------------------


def frame(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def read_frame(connection: socket.socket) -> bytes:
    def exactly(size: int) -> bytes:
        found = b""
        while len(found) < size:
            chunk = connection.recv(size - len(found))
            if not chunk:
                raise ConnectionResetError("closed")
            found += chunk
        return found

    return exactly(struct.unpack(">i", exactly(4))[0])


def test_the_first_frame_may_be_a_token(server: KafkaServer, tickets: Path) -> None:
    """Clients of 0.9 know no SaslHandshake: tokens without headers, and then requests."""
    import gssapi

    context = gssapi.SecurityContext(
        name=gssapi.Name("kafka@127.0.0.1", gssapi.NameType.hostbased_service),
        usage="initiate",
        mech=gssapi.MechType.kerberos,
        flags=[gssapi.RequirementFlag.mutual_authentication, gssapi.RequirementFlag.integrity],
    )
    client = open_connection(server)
    connection = client.socket
    connection.settimeout(TIMEOUT_S)
    connection.sendall(frame(context.step()))
    assert context.step(read_frame(connection)) is None
    connection.sendall(frame(b""))
    assert context.unwrap(read_frame(connection)).message == b"\x01\0\0\0"
    connection.sendall(frame(context.wrap(b"\x01\0\0\0", False).message))
    assert read_frame(connection) == b""
    assert client(ApiVersionsRequest(), 0).error_code == 0
    assert client(MetadataRequest(topics=[]), 1).brokers
    client.close()


@pytest.mark.parametrize("data", [b"", b"\x60", b"\x60\x82\x01\x00garbage", b"\x00\x00\x00", b"GET / HTTP/1.1\r\n"])
def test_a_first_frame_that_is_no_token_closes_the_connection(server: KafkaServer, data: bytes) -> None:
    client = open_connection(server)
    client.socket.settimeout(TIMEOUT_S)
    client.socket.sendall(frame(data))
    with pytest.raises(ConnectionResetError):
        read_frame(client.socket)
    client.close()
