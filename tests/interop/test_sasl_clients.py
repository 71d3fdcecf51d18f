"""Foreign clients over SASL_PLAINTEXT: every mechanism produces, consumes in a group and uses transactions; wrong
passwords, unknown users, wrong mechanisms and clients that do not log in are refused."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.errors
import pytest
from broker.sasl_broker import PLAIN_USERS, add_scram_user, sasl_config

from kafkapy.broker.server import KafkaServer

PASSWORDS = {**PLAIN_USERS, "scram,=user": "p\u00e4ssword,=", "scram": "pencil"}
LOGINS = [("PLAIN", "alice"), ("SCRAM-SHA-256", "scram,=user"), ("SCRAM-SHA-512", "scram,=user")]
RECORDS = [f"value {number}".encode() for number in range(20)]
TIMEOUT_S = 30.0
SHORT_S = 1.0
_names = itertools.count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    keys = {"connections.max.reauth.ms": "3600000", "transaction.state.log.num.partitions": "1"}
    with KafkaServer(sasl_config(tmp_path_factory.mktemp("sasl"), keys)) as started:
        for user in ("scram,=user", "scram"):
            add_scram_user(started, user, PASSWORDS[user])
        yield started


@pytest.fixture
def bootstrap(server: KafkaServer) -> str:
    return f"127.0.0.1:{server.endpoints[0].port}"


@pytest.fixture
def topic() -> str:
    return f"sasl-{next(_names)}"


def confluent(bootstrap: str, mechanism: str, user: str, password: str | None = None, **keys: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": PASSWORDS.get(user, "") if password is None else password,
        **{key.replace("_", "."): value for key, value in keys.items()},
    }


def pythonic(bootstrap: str, mechanism: str, user: str, password: str | None = None, **keys: Any) -> dict[str, Any]:
    """The keywords of kafka-python and aiokafka."""
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": PASSWORDS.get(user, "") if password is None else password,
        **keys,
    }


@pytest.mark.parametrize(("mechanism", "user"), LOGINS)
def test_confluent_kafka(bootstrap: str, topic: str, mechanism: str, user: str) -> None:
    producer = confluent_kafka.Producer(confluent(bootstrap, mechanism, user, transactional_id=f"{topic}-id"))
    producer.init_transactions(TIMEOUT_S)
    for commit in (False, True):
        producer.begin_transaction()
        for value in RECORDS if commit else [b"aborted"]:
            producer.produce(topic, value)
        (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT_S)
    keys = {"group_id": topic, "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    settings = confluent(bootstrap, mechanism, user)
    consumer = confluent_kafka.Consumer(settings | {key.replace("_", "."): value for key, value in keys.items()})
    consumer.subscribe([topic])
    received: list[bytes] = []
    while len(received) < len(RECORDS):
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None, message.error()
        received.append(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    assert received == RECORDS


@pytest.mark.parametrize(("mechanism", "user"), LOGINS)
def test_kafka_python(bootstrap: str, topic: str, mechanism: str, user: str) -> None:
    # It does not escape the characters "," and "=" of a user name.
    settings = pythonic(bootstrap, mechanism, user.removesuffix(",=user"))
    with_id = kafka.KafkaProducer(**settings, transactional_id=f"{topic}-id")
    with_id.init_transactions()
    for commit in (False, True):
        with_id.begin_transaction()
        for value in RECORDS if commit else [b"aborted"]:
            with_id.send(topic, value)
        (with_id.commit_transaction if commit else with_id.abort_transaction)()
    with_id.close()
    consumer = kafka.KafkaConsumer(
        topic,
        **settings,
        group_id=topic,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=TIMEOUT_S * 1000,
    )
    assert [record.value for record in itertools.islice(consumer, len(RECORDS))] == RECORDS
    consumer.commit()
    consumer.close()


@pytest.mark.parametrize(("mechanism", "user"), LOGINS)
def test_aiokafka(bootstrap: str, topic: str, mechanism: str, user: str) -> None:
    async def run() -> list[bytes]:
        settings = pythonic(bootstrap, mechanism, user)
        producer = aiokafka.AIOKafkaProducer(**settings, transactional_id=f"{topic}-id")
        async with producer, producer.transaction():
            for value in RECORDS:
                await producer.send(topic, value)
        consumer = aiokafka.AIOKafkaConsumer(
            topic, **settings, group_id=topic, auto_offset_reset="earliest", isolation_level="read_committed"
        )
        async with consumer:
            received = [(await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value for _ in RECORDS]
            await consumer.commit()
        return received

    assert asyncio.run(run()) == RECORDS


WRONG = [
    ("PLAIN", "alice", "wrong"),
    ("PLAIN", "nobody", "wonder"),
    ("SCRAM-SHA-256", "scram,=user", "wrong"),
    ("SCRAM-SHA-512", "nobody", "x"),
    ("SCRAM-SHA-256", "alice", "wonder"),
]


@pytest.mark.parametrize(("mechanism", "user", "password"), WRONG)
def test_confluent_kafka_is_told_of_wrong_credentials(
    bootstrap: str, mechanism: str, user: str, password: str
) -> None:
    errors: list[confluent_kafka.KafkaError] = []
    admin = confluent_kafka.admin.AdminClient(
        confluent(bootstrap, mechanism, user, password) | {"error_cb": errors.append, "log_level": 0}
    )
    with pytest.raises(confluent_kafka.KafkaException):
        admin.list_topics(timeout=2)
    admin.poll(0)
    assert confluent_kafka.KafkaError._AUTHENTICATION in {error.code() for error in errors}


def test_confluent_kafka_is_told_of_an_unknown_mechanism(bootstrap: str) -> None:
    errors: list[confluent_kafka.KafkaError] = []
    settings = confluent(bootstrap, "OAUTHBEARER", "")
    del settings["sasl.username"], settings["sasl.password"]
    settings |= {"enable.sasl.oauthbearer.unsecure.jwt": True, "sasl.oauthbearer.config": "principal=alice"}
    admin = confluent_kafka.admin.AdminClient(settings | {"error_cb": errors.append, "log_level": 0})
    with pytest.raises(confluent_kafka.KafkaException):
        admin.list_topics(timeout=2)
    admin.poll(0)
    assert any("not supported by broker" in error.str() or "Unsupported" in error.str() for error in errors), errors


@pytest.mark.parametrize(("mechanism", "user", "password"), WRONG)
def test_kafka_python_is_told_of_wrong_credentials(
    bootstrap: str, mechanism: str, user: str, password: str
) -> None:
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaConsumer(
            **pythonic(bootstrap, mechanism, user, password), bootstrap_timeout_ms=SHORT_S * 1000
        ).topics()


@pytest.mark.parametrize(("mechanism", "user", "password"), WRONG)
def test_aiokafka_is_told_of_wrong_credentials(bootstrap: str, mechanism: str, user: str, password: str) -> None:
    async def run() -> None:
        client = aiokafka.AIOKafkaProducer(**pythonic(bootstrap, mechanism, user, password))
        try:
            await client.start()
        finally:
            await client.stop()

    with pytest.raises(aiokafka.errors.KafkaError):
        asyncio.run(run())


def test_clients_that_do_not_log_in_are_refused(bootstrap: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    with pytest.raises(confluent_kafka.KafkaException):
        admin.list_topics(timeout=2)

    async def run() -> None:
        client = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap)
        try:
            await client.start()
        finally:
            await client.stop()

    with pytest.raises(aiokafka.errors.KafkaError):
        asyncio.run(run())
