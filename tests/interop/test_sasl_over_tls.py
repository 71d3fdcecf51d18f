"""Foreign clients over SASL_SSL, and a broker whose listeners have mechanisms and users of their own."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import kafka
import pytest
from broker.sasl_broker import LISTENER, add_scram_user, handshake, log_in_plain, open_connection, sasl_config
from certificates import localhost, shared_ca

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
RECORDS = [f"value {number}".encode() for number in range(20)]
LOGINS = [("PLAIN", "safe", "safe-secret"), ("SCRAM-SHA-512", "scram", "pencil")]
TIMEOUT_S = 30.0
_names = itertools.count(1)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tls")
    (made / "trusted.pem").write_bytes(shared_ca().pem)
    (made / "broker.pem").write_bytes(localhost().key_pem + localhost().chain_pem)
    return made


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[KafkaServer]:
    keys = {
        "listeners": f"{LISTENER}://127.0.0.1:0,SAFE://localhost:0",
        "listener.security.protocol.map": f"{LISTENER}:SASL_PLAINTEXT,SAFE:SASL_SSL",
        "listener.name.safe.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.safe.plain.sasl.jaas.config": f'{MODULE} required user_safe="safe-secret";',
        "listener.name.safe.ssl.keystore.type": "PEM",
        "listener.name.safe.ssl.keystore.location": str(directory / "broker.pem"),
    }
    with KafkaServer(sasl_config(directory / "data", keys)) as started:
        add_scram_user(started, "scram", "pencil")
        yield started


@pytest.fixture
def bootstrap(server: KafkaServer) -> str:
    return f"localhost:{server.endpoints[1].port}"


@pytest.fixture
def topic() -> str:
    return f"safe-{next(_names)}"


def confluent(bootstrap: str, directory: Path, mechanism: str, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(directory / "trusted.pem"),
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def pythonic(bootstrap: str, directory: Path, mechanism: str, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=str(directory / "trusted.pem")),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


@pytest.mark.parametrize(("mechanism", "user", "password"), LOGINS)
def test_confluent_kafka(
    bootstrap: str, directory: Path, topic: str, mechanism: str, user: str, password: str
) -> None:
    settings = confluent(bootstrap, directory, mechanism, user, password)
    producer = confluent_kafka.Producer(settings)
    for value in RECORDS:
        producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = confluent_kafka.Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    received = []
    while len(received) < len(RECORDS):
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None, message.error()
        received.append(message.value())
    consumer.close()
    assert received == RECORDS


@pytest.mark.parametrize(("mechanism", "user", "password"), LOGINS)
def test_kafka_python(
    bootstrap: str, directory: Path, topic: str, mechanism: str, user: str, password: str
) -> None:
    settings = pythonic(bootstrap, directory, mechanism, user, password)
    producer = kafka.KafkaProducer(**settings)
    for value in RECORDS:
        producer.send(topic, value)
    producer.flush(TIMEOUT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, **settings, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=TIMEOUT_S * 1000
    )
    assert [record.value for record in itertools.islice(consumer, len(RECORDS))] == RECORDS
    consumer.close()


@pytest.mark.parametrize(("mechanism", "user", "password"), LOGINS)
def test_aiokafka(bootstrap: str, directory: Path, topic: str, mechanism: str, user: str, password: str) -> None:
    async def run() -> list[bytes]:
        settings = pythonic(bootstrap, directory, mechanism, user, password)
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            for value in RECORDS:
                await producer.send_and_wait(topic, value)
        consumer = aiokafka.AIOKafkaConsumer(topic, **settings, group_id=topic, auto_offset_reset="earliest")
        async with consumer:
            return [(await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value for _ in RECORDS]

    assert asyncio.run(run()) == RECORDS


def test_users_and_mechanisms_belong_to_their_listener(
    server: KafkaServer, bootstrap: str, directory: Path
) -> None:
    client = open_connection(server)
    assert log_in_plain(client, "safe", "safe-secret").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    client.close()
    client = open_connection(server)
    assert handshake(client, "SCRAM-SHA-256").mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    client.close()
    for mechanism, user, password in (("PLAIN", "alice", "wonder"), ("SCRAM-SHA-256", "scram", "pencil")):
        admin = confluent_kafka.admin.AdminClient(
            confluent(bootstrap, directory, mechanism, user, password) | {"log_level": 0}
        )
        with pytest.raises(confluent_kafka.KafkaException):
            admin.list_topics(timeout=2)
