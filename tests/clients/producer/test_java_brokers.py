"""KafkaProducer on Apache Kafka, the releases of this run: records compared, transactions, a broker that restarts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from clients.producer import test_transactions as transactions
from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as ForeignPartition
from confluent_kafka.admin import AdminClient, NewTopic
from interop.conftest import JAVA, with_jars
from peers.apache_kafka import VERSIONS, ApacheKafka

from kafkapy import KafkaProducer
from kafkapy.errors import InvalidProducerEpochError, ProducerFencedError, RecordTooLargeError
from kafkapy.types import OffsetAndMetadata, TopicPartition

pytestmark = JAVA
PARTITIONS = 3


@pytest.fixture(scope="module", params=sorted(VERSIONS))
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    with ApacheKafka(with_jars(request.param), tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


def make_topic(kafka: ApacheKafka, name: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    topic = NewTopic(name, PARTITIONS, 1, config={key.replace("_", "."): value for key, value in config.items()})
    admin.create_topics([topic])[name].result()


def read(kafka: ApacheKafka, topic: str, count: int) -> dict[tuple[int, int], Any]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g", "check.crcs": True})
    consumer.assign([ForeignPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    found: dict[tuple[int, int], Any] = {}
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.5):
            assert message.error() is None
            found[message.partition(), message.offset()] = message
    consumer.close()
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_record_in_every_codec(kafka: ApacheKafka, codec: str) -> None:
    topic = f"codec-{codec}"
    make_topic(kafka, topic, retention_ms="-1")  # the records are old
    sent = []
    with KafkaProducer(bootstrap_servers=kafka.bootstrap, compression_type=codec) as producer:
        for i in range(3000):
            key = None if i % 3 == 0 else b"k%d" % i
            value = None if i % 7 == 0 else b"%d " % i * (i % 40)
            headers = [(f"h{n}", None if n == 1 else b"x" * n) for n in range(i % 4)]
            future = producer.send(topic, value, key=key, headers=headers, timestamp_ms=1_700_000_000_000 + i)
            sent.append((future, key, value, headers))
    found = read(kafka, topic, 3000)
    for i, (future, key, value, headers) in enumerate(sent):
        metadata = future.get(0)
        message = found.pop((metadata.partition, metadata.offset))
        assert (message.key(), message.value(), message.headers() or []) == (key, value, headers)
        assert message.timestamp()[1] == 1_700_000_000_000 + i
    assert not found


def test_batches_that_are_too_large_are_split(kafka: ApacheKafka) -> None:
    make_topic(kafka, "small", max_message_bytes="2000")
    with KafkaProducer(bootstrap_servers=kafka.bootstrap, batch_size=50_000, linger_ms=50) as producer:
        futures = [producer.send("small", b"%05d" % i * 20, partition=1) for i in range(200)]
        assert [future.get(60).offset for future in futures] == list(range(200))
        with pytest.raises(RecordTooLargeError):
            producer.send("small", bytes(5000)).get(60)
    found = read(kafka, "small", 200)
    assert [found[1, i].value() for i in range(200)] == [b"%05d" % i * 20 for i in range(200)]


def test_transactions_with_offsets(kafka: ApacheKafka) -> None:
    make_topic(kafka, "tx")
    expected = []
    with transactions.transactional(kafka.bootstrap, "tx") as producer:
        for number in range(5):
            producer.begin_transaction()
            for i in range(30):
                producer.send("tx", b"kept-%d-%d" % (number, i))
                expected.append(b"kept-%d-%d" % (number, i))
            producer.send_offsets_to_transaction({TopicPartition("tx", 0): OffsetAndMetadata(number)}, "tx-group")
            producer.commit_transaction()
            producer.begin_transaction()
            producer.send("tx", b"aborted")
            if number % 2:
                producer.flush(30)
            producer.abort_transaction()
    assert sorted(transactions.read(kafka.bootstrap, "tx", len(expected))) == sorted(expected)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "tx-group"})
    assert consumer.committed([ForeignPartition("tx", 0)], timeout=30)[0].offset == 4
    consumer.close()


def test_a_newer_producer_fences_the_older(kafka: ApacheKafka) -> None:
    make_topic(kafka, "fenced")
    older = transactions.transactional(kafka.bootstrap, "fenced")
    older.begin_transaction()
    older.send("fenced", b"older").get(30)
    with transactions.transactional(kafka.bootstrap, "fenced") as newer:
        newer.begin_transaction()
        newer.send("fenced", b"newer")
        newer.commit_transaction()
    with pytest.raises((ProducerFencedError, InvalidProducerEpochError)):
        older.commit_transaction()
    older.close()
    assert transactions.read(kafka.bootstrap, "fenced", 1) == [b"newer"]


def test_a_broker_that_is_killed_and_comes_back(kafka: ApacheKafka) -> None:
    make_topic(kafka, "killed")
    with KafkaProducer(bootstrap_servers=kafka.bootstrap, linger_ms=1, batch_size=2000) as producer:
        futures = []
        for i in range(30_000):
            futures.append(producer.send("killed", b"%d" % i, partition=i % PARTITIONS))
            if i == 10_000:
                kafka.kill()
            if i % 1000 == 0:
                time.sleep(0.01)
        kafka.start()
        producer.flush(120)
        assert all(future.succeeded() for future in futures)
    found = read(kafka, "killed", 30_000)
    assert len(found) == 30_000
    for partition in range(PARTITIONS):
        values = [int(found[partition, offset].value()) for offset in range(10_000)]
        assert values == list(range(partition, 30_000, PARTITIONS))
