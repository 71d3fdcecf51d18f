"""Brokers with TLS and SASL in a test's process, and every client of ours on each protocol and mechanism."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pytest

import kafkapy.arrow
from kafkapy import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafkapy.aio import AIOKafkaAdminClient, AIOKafkaConsumer, AIOKafkaProducer
from kafkapy.errors import (
    AuthenticationError,
    ConfigError,
    NoBrokersAvailableError,
    SaslAuthenticationFailedError,
    SslAuthenticationError,
)
from kafkapy.testing import Broker

USERS = {"ann": 'hun"t\\er2 =,', "bob": "x"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
WAIT_S = 60


class Way(NamedTuple):
    """A protocol with a mechanism."""

    protocol: str
    mechanism: str | None

    def __str__(self) -> str:
        return f"{self.protocol} {self.mechanism or ''}".strip()


WAYS = [
    Way(protocol, mechanism)
    for protocol in PROTOCOLS
    for mechanism in (MECHANISMS if protocol.startswith("SASL") else (None,))
]


@pytest.fixture(scope="module")
def brokers() -> Iterator[Callable[[str], Broker]]:
    """The broker of each protocol, started at its first use."""
    running: dict[str, Broker] = {}

    def of(protocol: str) -> Broker:
        if protocol not in running:
            users = USERS if protocol.startswith("SASL") else None
            running[protocol] = Broker(security=protocol, users=users).start()
        return running[protocol]

    yield of
    for broker in running.values():
        broker.stop()


@pytest.fixture(params=WAYS, ids=str)
def way(request: pytest.FixtureRequest) -> Way:
    found: Way = request.param
    return found


@pytest.fixture
def config(brokers: Callable[[str], Broker], way: Way) -> dict[str, str]:
    return brokers(way.protocol).client_config(mechanism=way.mechanism)


@pytest.fixture
def topic(brokers: Callable[[str], Broker], way: Way, request: pytest.FixtureRequest) -> str:
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)
    brokers(way.protocol).create_topic(name)
    return name


def values_of(consumer: KafkaConsumer, number: int) -> list[bytes]:
    values: list[bytes] = []
    while len(values) < number:
        record = next(consumer)
        assert record.value is not None
        values.append(record.value)
    return values


def test_producer_group_and_transaction(config: Mapping[str, Any], topic: str) -> None:
    wanted = [b"%d" % number * 1000 for number in range(100)]
    with KafkaProducer(config) as producer:
        for value in wanted[:50]:
            producer.send(topic, value)
    with KafkaProducer({**config, "transactional.id": topic}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"aborted")
        producer.abort_transaction()
        producer.begin_transaction()
        for value in wanted[50:]:
            producer.send(topic, value)
        producer.commit_transaction()
    reading = {
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "consumer_timeout_ms": WAIT_S * 1000,
    }
    with closing(KafkaConsumer(topic, **keywords({**config, **reading}))) as consumer:
        assert values_of(consumer, 100) == wanted
        consumer.commit()
    with closing(KafkaConsumer(**keywords({**config, **reading}))) as consumer:
        partition = TopicPartition(topic, 0)
        assert consumer.committed(partition) == consumer.end_offsets([partition])[partition]


def keywords(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace(".", "_"): value for name, value in config.items()}


def test_asyncio_clients(config: Mapping[str, Any], topic: str) -> None:
    async def scenario() -> None:
        async with AIOKafkaProducer(**keywords(config)) as producer:
            for number in range(20):
                await producer.send_and_wait(topic, b"%d" % number)
        reading = {"group_id": topic, "auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer(topic, **keywords(config), **reading) as consumer:
            values = [(await consumer.getone()).value for _ in range(20)]
            assert values == [b"%d" % number for number in range(20)]
            await consumer.commit()
        admin = AIOKafkaAdminClient(**keywords(config))
        await admin.start()
        assert topic in await admin.list_topics()
        await admin.close()

    async def bounded() -> None:
        async with asyncio.timeout(WAIT_S):
            await scenario()

    asyncio.run(bounded())


def test_columns_of_arrow(config: Mapping[str, Any], topic: str) -> None:
    with KafkaProducer(config) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number)
    with closing(KafkaConsumer(**keywords(config), auto_offset_reset="earliest")) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        rows = 0
        while rows < 10:
            rows += consumer.poll_arrow(1000).num_rows
        assert rows == 10
    table = kafkapy.arrow.read(topic, columns=["value"], **keywords(config))
    assert table["value"].to_pylist() == [b"%d" % number for number in range(10)]


def test_a_foreign_client_uses_the_same_keys(config: Mapping[str, Any], topic: str) -> None:
    names = {
        "ssl.truststore.certificates": "ssl.ca.pem",
        "sasl.plain.username": "sasl.username",
        "sasl.plain.password": "sasl.password",
    }
    foreign = {names.get(key, key): value for key, value in config.items() if key != "ssl.truststore.type"}
    producer = confluent_kafka.Producer(foreign)
    failed: list[Any] = []
    producer.produce(topic, b"1", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(WAIT_S) == 0
    assert failed == [None]


# --- refusals -----------------------------------------------------------------------------------------------------


def makers(topic: str) -> dict[str, Callable[[Mapping[str, Any]], Any]]:
    """What a user calls to get each client."""

    async def started(kind: Any, config: Mapping[str, Any]) -> None:
        client = kind(**keywords(config))
        try:
            await client.start()
        finally:
            await (client.close() if kind is AIOKafkaAdminClient else client.stop())

    return {
        "producer": KafkaProducer,
        "consumer": lambda config: KafkaConsumer(topic, **keywords(config)),
        "admin": KafkaAdminClient,
        "aio producer": lambda config: asyncio.run(started(AIOKafkaProducer, config)),
        "aio consumer": lambda config: asyncio.run(started(AIOKafkaConsumer, config)),
        "aio admin": lambda config: asyncio.run(started(AIOKafkaAdminClient, config)),
    }


@pytest.mark.parametrize("who", list(makers("")))
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_raised_from_the_users_call(
    brokers: Callable[[str], Broker], who: str, mechanism: str
) -> None:
    broker = brokers("SASL_SSL")
    config = broker.client_config("bob", mechanism=mechanism) | {"sasl.plain.password": "wrong hunter3"}
    with pytest.raises(SaslAuthenticationFailedError) as raised:
        makers("t")[who](config)
    assert mechanism in str(raised.value)
    assert broker.bootstrap_servers in str(raised.value)
    assert "hunter3" not in str(raised.value)


@pytest.mark.parametrize("who", list(makers("")))
def test_an_untrusted_broker_is_raised_from_the_users_call(brokers: Callable[[str], Broker], who: str) -> None:
    config = brokers("SASL_SSL").client_config()
    config["ssl.truststore.certificates"] = brokers("SSL").client_config()["ssl.truststore.certificates"]
    with pytest.raises(SslAuthenticationError, match="certificate"):
        makers("t")[who](config)


def test_an_unknown_user_is_told_the_same(brokers: Callable[[str], Broker]) -> None:
    said = set()
    for name, password in (("bob", "wrong"), ("nobody", "x")):
        config = brokers("SASL_PLAINTEXT").client_config("bob", mechanism="SCRAM-SHA-256")
        with pytest.raises(AuthenticationError) as raised:
            KafkaAdminClient(config | {"sasl.plain.username": name, "sasl.plain.password": password})
        said.add(str(raised.value))
    assert len(said) == 1


def test_a_client_certificate_can_be_demanded() -> None:
    with Broker(security="SSL", ssl_client_auth="required") as broker:
        with KafkaAdminClient(broker.client_config(certificate="CN=alice")) as admin:
            assert admin.list_topics() == []
        # With TLS 1.3 the refusal comes after the handshake, and a reset may overtake it.
        with pytest.raises((SslAuthenticationError, NoBrokersAvailableError)):
            KafkaAdminClient(broker.client_config() | {"bootstrap.timeout.ms": "500"})


def test_files_of_the_broker_go_with_it() -> None:
    with Broker(security="SSL") as broker:
        file = Path(broker.ca_file)
        assert "BEGIN CERTIFICATE" in file.read_text()
        assert broker.ca_file == str(file)
        config = {"bootstrap_servers": broker.bootstrap_servers, "security_protocol": "SSL", "ssl_cafile": str(file)}
        with KafkaAdminClient(**config) as admin:
            assert admin.list_topics() == []
    assert not file.exists()


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"security": "TLS"}, "must be one of PLAINTEXT"),
        ({"security": "SASL_SSL", "mechanisms": ["GSSAPI"]}, "must be of SCRAM-SHA-512"),
    ],
)
def test_unknown_security_is_refused(keys: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Broker(**keys)


def test_an_unknown_user_has_no_client_config(brokers: Callable[[str], Broker]) -> None:
    with pytest.raises(ConfigError, match="must be one of ann, bob"):
        brokers("SASL_SSL").client_config("carl")
    with pytest.raises(ConfigError, match="must be one of SCRAM-SHA-512"):
        brokers("SASL_SSL").client_config(mechanism="GSSAPI")


def test_a_user_is_made_when_none_is_named() -> None:
    with Broker(security="sasl_plaintext") as broker:
        assert len(broker.users) == 1
        with KafkaAdminClient(broker.client_config()) as admin:
            assert admin.list_topics() == []
