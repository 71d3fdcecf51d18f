"""Clients whose sessions end often, and clients whose user is deleted, against our broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest

from kafkapy import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafkapy.aio import AIOKafkaConsumer, AIOKafkaProducer
from kafkapy.broker.scram_credentials import Deletion
from kafkapy.errors import SaslAuthenticationFailedError
from kafkapy.security.scram import SCRAM_MECHANISMS, ScramMechanism
from kafkapy.testing import Broker

SESSION_MS = 1500
"""A broker refuses a re-authentication within a second of the last."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256")
WAIT_S = 60
MANY = 20_000
"""Calls that last longer than a session."""


@pytest.fixture(params=["SASL_PLAINTEXT", "SASL_SSL"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    users = {"ann": "x", "bob": "y"}
    with Broker(security=request.param, users=users, connections_max_reauth_ms=SESSION_MS) as running:
        running.create_topic("t")
        yield running


def keywords(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace(".", "_"): value for name, value in config.items()}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_no_request_is_lost_when_sessions_end(broker: Broker, mechanism: str) -> None:
    """Retries are off, so that a lost request is a failure."""
    config = broker.client_config(mechanism=mechanism)
    never_again = {"retries": 0, "enable.idempotence": False, "request.timeout.ms": WAIT_S * 1000}
    with (
        KafkaProducer({**config, **never_again, "linger.ms": 0}) as producer,
        closing(KafkaConsumer(**keywords(config), auto_offset_reset="earliest", fetch_max_wait_ms=50)) as consumer,
    ):
        consumer.assign([TopicPartition("t", 0)])
        seen: list[bytes] = []
        sent = 0
        while min(renewals(producer, "producer"), renewals(consumer, "consumer")) < 2:
            producer.send("t", b"%d" % sent).get(WAIT_S)
            sent += 1
            for records in consumer.poll(10).values():
                seen += [record.value for record in records if record.value is not None]
        while len(seen) < sent:
            for records in consumer.poll(100).values():
                seen += [record.value for record in records if record.value is not None]
        assert seen == [b"%d" % number for number in range(sent)]
        for client, kind in ((producer, "producer"), (consumer, "consumer")):
            assert client.metrics()[f"{kind}-metrics"]["connection-close-total"] == 0
            assert client.metrics()[f"{kind}-metrics"]["failed-reauthentication-total"] == 0


def renewals(client: Any, kind: str) -> float:
    counted: float = client.metrics()[f"{kind}-metrics"]["successful-reauthentication-total"]
    return counted


def delete(broker: Broker, user: str) -> None:
    deletions = [Deletion(user, ScramMechanism.of_name(name).value) for name in SCRAM_MECHANISMS]
    outcome = broker.server.call(broker.server.context.logins.scram_credentials.alter(deletions, ()))
    assert outcome == {user: None}


def test_a_producer_of_a_deleted_user_fails_its_records(broker: Broker) -> None:
    with KafkaProducer(broker.client_config("bob")) as producer:
        producer.send("t", b"1").get(WAIT_S)
        delete(broker, "bob")
        with pytest.raises(SaslAuthenticationFailedError, match="SCRAM-SHA-512"):
            for _ in range(MANY):
                producer.send("t", b"2").get(WAIT_S)


@pytest.mark.parametrize("group", [None, "g"])
def test_a_poll_of_a_deleted_user_raises(broker: Broker, group: str | None) -> None:
    config = keywords(broker.client_config("bob"))
    with closing(KafkaConsumer(**config, group_id=group, auto_offset_reset="earliest")) as consumer:
        if group is None:
            consumer.assign([TopicPartition("t", 0)])
        else:
            consumer.subscribe(["t"])
        consumer.poll(500)
        delete(broker, "bob")
        with pytest.raises(SaslAuthenticationFailedError, match="SCRAM-SHA-512"):
            for _ in range(MANY):
                consumer.poll(100)


def test_an_admin_client_of_a_deleted_user_raises(broker: Broker) -> None:
    with KafkaAdminClient(broker.client_config("bob")) as admin:
        admin.list_topics()
        delete(broker, "bob")
        with pytest.raises(SaslAuthenticationFailedError):
            for _ in range(MANY):
                admin.list_topics()


def test_asyncio_clients_of_a_deleted_user_raise(broker: Broker) -> None:
    async def scenario() -> None:
        config = keywords(broker.client_config("bob"))
        async with AIOKafkaProducer(**config) as producer, AIOKafkaConsumer("t", **config) as consumer:
            await producer.send_and_wait("t", b"1")
            await asyncio.to_thread(delete, broker, "bob")
            with pytest.raises(SaslAuthenticationFailedError):
                for _ in range(MANY):
                    await producer.send_and_wait("t", b"2")
            with pytest.raises(SaslAuthenticationFailedError):
                for _ in range(MANY):
                    await consumer.getmany(timeout_ms=100)

    async def bounded() -> None:
        async with asyncio.timeout(WAIT_S):
            await scenario()

    asyncio.run(bounded())
