"""Transactions that are prepared, and ended by the producer itself or by another client (names of KIP-939)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from kafkapy import KafkaConsumer, KafkaProducer
from kafkapy.admin import KafkaAdminClient, TransactionState
from kafkapy.errors import IllegalStateError, RecordTooLargeError, TransactionAbortableError
from kafkapy.testing import Broker
from kafkapy.types import ListOffsetsTimestamp, TopicPartition


@pytest.fixture(scope="module")
def cluster() -> Iterator[Broker]:
    with Broker(num_partitions=2) as broker:
        yield broker


@pytest.fixture
def name() -> str:
    return uuid.uuid4().hex[:8]


def transactional(cluster: Broker, name: str) -> KafkaProducer:
    producer = KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id=name, linger_ms=10_000, retry_backoff_ms=20
    )
    producer.init_transactions()
    producer.begin_transaction()
    return producer


def committed(cluster: Broker, topic: str) -> int:
    """How many records readers of committed ones see; the log's last stable offsets are at its ends."""
    partitions = [TopicPartition(topic, number) for number in range(2)]
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, isolation_level="read_committed") as consumer:
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        stable = consumer.end_offsets(partitions)
        found = 0
        while any(consumer.position(partition) < stable[partition] for partition in partitions):
            found += sum(map(len, consumer.poll(timeout_ms=100).values()))
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        ends = admin.list_partition_offsets(dict.fromkeys(partitions, ListOffsetsTimestamp.LATEST))
    assert {partition: each.offset for partition, each in ends.items()} == stable
    return found


def state_of(cluster: Broker, name: str) -> tuple[TransactionState, int, int]:
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        found = admin.describe_transactions([name])[name]
        return found.state, found.producer_id, found.producer_epoch


def test_a_prepared_transaction_stays_open_when_its_producer_is_closed(
    cluster: Broker, name: str, protocol: int
) -> None:
    with transactional(cluster, name) as producer:
        futures = [producer.send(name, b"%d" % number) for number in range(100)]
        prepared = producer.prepare_transaction()
        assert all(future.succeeded() for future in futures)
        with pytest.raises(IllegalStateError, match="PREPARED"):
            producer.send(name, b"late").get(1)
    assert prepared.transaction_version == protocol
    assert state_of(cluster, name) == (TransactionState.ONGOING, prepared.producer_id, prepared.producer_epoch)


def test_the_producer_completes_what_it_has_prepared(cluster: Broker, name: str, protocol: int) -> None:
    """It commits what was decided on, and aborts what was not; then it goes on."""
    with transactional(cluster, name) as producer:
        producer.send(name, b"1")
        producer.complete_transaction(producer.prepare_transaction())
        producer.begin_transaction()
        producer.send(name, b"2")
        other = producer.prepare_transaction()
        producer.complete_transaction(other._replace(producer_epoch=other.producer_epoch + 1))
        producer.begin_transaction()
        producer.send(name, b"3")
        producer.prepare_transaction()
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send(name, b"4")
        producer.prepare_transaction()
        producer.abort_transaction()
        with pytest.raises(IllegalStateError, match="no transaction is prepared"):
            producer.complete_transaction(other)
    assert committed(cluster, name) == 2


def test_a_record_that_fails_fails_the_preparation(cluster: Broker, name: str, protocol: int) -> None:
    cluster.create_topic(name, 2, {"max.message.bytes": 1000})
    with transactional(cluster, name) as producer:
        producer.send(name, b"x" * 2000)
        with pytest.raises((RecordTooLargeError, TransactionAbortableError)):
            producer.prepare_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(name, b"y")
        producer.complete_transaction(producer.prepare_transaction())
    assert committed(cluster, name) == 1


def test_preparing_out_of_turn(cluster: Broker, name: str) -> None:
    with transactional(cluster, name) as producer:
        producer.commit_transaction()
        with pytest.raises(IllegalStateError):
            producer.prepare_transaction()
    plain = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    with plain, pytest.raises(IllegalStateError, match="transactional_id"):
        plain.prepare_transaction()
