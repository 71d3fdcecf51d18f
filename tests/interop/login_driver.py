"""One round of each client library for the tests of logins: it produces, and consumes in a group.

The settings are those of the library: `confluent_keys` and `pythonic_keys` give them for a protocol and a login.
The functions `..._round` are what tests call.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
import time
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.abc
import confluent_kafka
import kafka
from kafka.net.sasl.oauth import AbstractTokenProvider

import kafkapy
import kafkapy.aio

__all__ = [
    "RECORDS",
    "TIMEOUT_S",
    "AsyncTokens",
    "Tokens",
    "aiokafka_round",
    "confluent_keys",
    "confluent_round",
    "kafka_python_round",
    "kafkapy_aio_round",
    "kafkapy_round",
    "pythonic_keys",
]

RECORDS = [f"value {number}".encode() for number in range(20)]
TIMEOUT_S = 30.0
GROUP = {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}
_groups = itertools.count(1)


class Tokens(AbstractTokenProvider):
    """A token for kafka-python, and for kafkapy."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token

    def extensions(self) -> dict[str, str]:
        return {"traceId": "7"}


class AsyncTokens(aiokafka.abc.AbstractTokenProvider):
    """A token for aiokafka, and for kafkapy.aio."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    async def token(self) -> str:
        return self._token

    def extensions(self) -> dict[str, str]:
        return {"traceId": "7"}


# --- settings -----------------------------------------------------------------------------------------------------


def confluent_keys(
    bootstrap: str,
    mechanism: str,
    *,
    user: str | None = None,
    password: str = "",
    token: str | None = None,
    trusted: Path | None = None,
) -> dict[str, Any]:
    """The configuration of a confluent-kafka client; over TLS with `trusted`."""
    settings = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT" if trusted is None else "SASL_SSL",
        "sasl.mechanism": mechanism,
    }
    if trusted is not None:
        settings["ssl.ca.location"] = str(trusted)
    if user is not None:
        settings |= {"sasl.username": user, "sasl.password": password}
    if token is not None:
        settings["oauth_cb"] = lambda _: (token, time.time() + 3600, "", {"traceId": "7"})
    return settings


def pythonic_keys(
    bootstrap: str,
    mechanism: str,
    *,
    user: str | None = None,
    password: str = "",
    trusted: Path | None = None,
    **keys: Any,
) -> dict[str, Any]:
    """The keywords of kafka-python, aiokafka and kafkapy; over TLS with `trusted`."""
    settings = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT" if trusted is None else "SASL_SSL",
        "sasl_mechanism": mechanism,
        **keys,
    }
    if trusted is not None:
        settings["ssl_context"] = ssl.create_default_context(cafile=str(trusted))
    if user is not None:
        settings |= {"sasl_plain_username": user, "sasl_plain_password": password}
    return settings


# --- rounds -------------------------------------------------------------------------------------------------------


def confluent_round(settings: dict[str, Any], topic: str, transactional: bool = False) -> list[bytes]:
    """The values of a topic that a consumer of a group gets. An aborted transaction comes before a committed one."""
    identity = {"transactional.id": f"{topic}-id"} if transactional else {}
    producer = confluent_kafka.Producer({**settings, **identity})
    producer.poll(0)  # oauth_cb runs in it
    if transactional:
        producer.init_transactions(TIMEOUT_S)
        for commit in (False, True):
            producer.begin_transaction()
            for value in RECORDS if commit else [b"aborted"]:
                producer.produce(topic, value)
            (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT_S)
    else:
        for value in RECORDS:
            producer.produce(topic, value)
        assert producer.flush(TIMEOUT_S) == 0
    consumer = confluent_kafka.Consumer({**settings, **GROUP, "group.id": f"{topic}-{next(_groups)}"})
    consumer.subscribe([topic])
    received: list[bytes] = []
    while len(received) < len(RECORDS):
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, received
        assert message.error() is None, message.error()
        received.append(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    return received


def kafka_python_round(settings: dict[str, Any], topic: str, transactional: bool = False) -> list[bytes]:
    """The same with kafka-python."""
    return _blocking_round(kafka, settings, topic, transactional)


def kafkapy_round(settings: dict[str, Any], topic: str, transactional: bool = False) -> list[bytes]:
    """The same with kafkapy."""
    return _blocking_round(kafkapy, settings, topic, transactional)


def _blocking_round(library: Any, settings: dict[str, Any], topic: str, transactional: bool) -> list[bytes]:
    identity = {"transactional_id": f"{topic}-id"} if transactional else {}
    producer = library.KafkaProducer(**settings, **identity)
    if transactional:
        producer.init_transactions()
        for commit in (False, True):
            producer.begin_transaction()
            for value in RECORDS if commit else [b"aborted"]:
                producer.send(topic, value)
            (producer.commit_transaction if commit else producer.abort_transaction)()
    else:
        for value in RECORDS:
            producer.send(topic, value).get(TIMEOUT_S)
    producer.close()
    consumer = library.KafkaConsumer(
        topic,
        **settings,
        group_id=f"{topic}-{next(_groups)}",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=int(TIMEOUT_S * 1000),
    )
    received = [record.value for record in itertools.islice(consumer, len(RECORDS))]
    consumer.commit()
    consumer.close()
    return received


def aiokafka_round(settings: dict[str, Any], topic: str, transactional: bool = False) -> list[bytes]:
    """The same with aiokafka."""
    return asyncio.run(_async_round(aiokafka, settings, topic, transactional))


def kafkapy_aio_round(settings: dict[str, Any], topic: str, transactional: bool = False) -> list[bytes]:
    """The same with kafkapy.aio."""
    return asyncio.run(_async_round(kafkapy.aio, settings, topic, transactional))


async def _async_round(library: Any, settings: dict[str, Any], topic: str, transactional: bool) -> list[bytes]:
    identity = {"transactional_id": f"{topic}-id"} if transactional else {}
    async with library.AIOKafkaProducer(**settings, **identity) as producer:
        if transactional:
            async with producer.transaction():
                for value in RECORDS:
                    await producer.send(topic, value)
        else:
            for value in RECORDS:
                await producer.send_and_wait(topic, value)
    consumer = library.AIOKafkaConsumer(
        topic,
        **settings,
        group_id=f"{topic}-{next(_groups)}",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    async with consumer:
        received = [(await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value for _ in RECORDS]
        await consumer.commit()
    return received
