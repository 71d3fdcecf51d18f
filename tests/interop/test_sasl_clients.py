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
from interop.login_driver import (
    RECORDS,
    aiokafka_round,
    confluent_keys,
    confluent_round,
    kafka_python_round,
    pythonic_keys,
)

from kafkapy.broker.server import KafkaServer

PASSWORDS = {**PLAIN_USERS, "scram,=user": "p\u00e4ssword,=", "scram": "pencil"}
LOGINS = [("PLAIN", "alice"), ("SCRAM-SHA-256", "scram,=user"), ("SCRAM-SHA-512", "scram,=user")]
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


def confluent(bootstrap: str, mechanism: str, user: str, password: str | None = None) -> dict[str, Any]:
    return confluent_keys(bootstrap, mechanism, user=user, password=_password(user, password))


def pythonic(bootstrap: str, mechanism: str, user: str, password: str | None = None) -> dict[str, Any]:
    """The keywords of kafka-python and aiokafka."""
    return pythonic_keys(bootstrap, mechanism, user=user, password=_password(user, password))


def _password(user: str, given: str | None) -> str:
    return PASSWORDS.get(user, "") if given is None else given


@pytest.mark.parametrize(("mechanism", "user"), LOGINS)
def test_confluent_kafka(bootstrap: str, topic: str, mechanism: str, user: str) -> None:
    assert confluent_round(confluent(bootstrap, mechanism, user), topic, transactional=True) == RECORDS


@pytest.mark.parametrize(("mechanism", "user"), LOGINS)
def test_kafka_python(bootstrap: str, topic: str, mechanism: str, user: str) -> None:
    # It does not escape the characters "," and "=" of a user name.
    settings = pythonic(bootstrap, mechanism, user.removesuffix(",=user"))
    assert kafka_python_round(settings, topic, transactional=True) == RECORDS


@pytest.mark.parametrize(("mechanism", "user"), LOGINS)
def test_aiokafka(bootstrap: str, topic: str, mechanism: str, user: str) -> None:
    assert aiokafka_round(pythonic(bootstrap, mechanism, user), topic, transactional=True) == RECORDS


WRONG = [
    ("PLAIN", "alice", "wrong"),
    ("PLAIN", "nobody", "wonder"),
    ("SCRAM-SHA-256", "scram,=user", "wrong"),
    ("SCRAM-SHA-512", "nobody", "x"),
    ("SCRAM-SHA-256", "alice", "wonder"),
]


@pytest.mark.parametrize(("mechanism", "user", "password"), WRONG)
def test_confluent_kafka_is_told_of_wrong_credentials(bootstrap: str, mechanism: str, user: str, password: str) -> None:
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
def test_kafka_python_is_told_of_wrong_credentials(bootstrap: str, mechanism: str, user: str, password: str) -> None:
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
