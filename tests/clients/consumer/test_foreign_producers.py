"""What other clients have produced, read by ours: codecs, headers, nulls, timestamps, transactions, compacted logs."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer as KafkaPythonProducer

from kafkapy import KafkaConsumer
from kafkapy.testing import Broker
from kafkapy.types import TopicPartition

Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]], int]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(log_cleaner_backoff_ms=50, log_message_timestamp_after_max_ms=1 << 60) as running:
        yield running


def rows(broker: Broker, topic: str, count: int, **configs: Any) -> list[Row]:
    """So many records of partition 0 from the beginning, and nothing after them."""
    configs |= {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 30}
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, **configs)
    with consumer:
        consumer.assign([TopicPartition(topic, 0)])
        got: list[Row] = []
        deadline = time.monotonic() + 30
        while len(got) < count and time.monotonic() < deadline:
            got += [(r.offset, r.key, r.value, r.headers, r.timestamp) for r in consumer.poll_batch(1000, 200)]
        got += [(r.offset, r.key, r.value, r.headers, r.timestamp) for r in consumer.poll_batch(1000, 100)]
        return got


def all_rows(broker: Broker, topic: str) -> list[Row]:
    """Partition 0 from its beginning to its end."""
    partition = TopicPartition(topic, 0)
    with KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        got: list[Row] = []
        while consumer.position(partition) < end:
            got += [(r.offset, r.key, r.value, r.headers, r.timestamp) for r in consumer.poll_batch(1000, 200)]
        return got


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_librdkafkas_records_in_every_codec(broker: Broker, codec: str) -> None:
    topic = f"confluent-{codec}"
    broker.create_topic(topic)
    rng = random.Random(codec)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "linger.ms": 20, "batch.size": 20000}
    )
    sent: list[Row] = []
    for number in range(2000):
        key = None if number % 3 == 0 else rng.randbytes(number % 20)
        value = None if number % 7 == 0 else (b"%d " % number) * (number % 50)
        headers: list[tuple[str, bytes | None]] = [
            (f"h{n}", None if n == 1 else rng.randbytes(n)) for n in range(number % 4)
        ]
        sent.append((number, key, value, headers, 1_600_000_000_000 + number * 7))
        producer.produce(topic, value, key, 0, timestamp=1_600_000_000_000 + number * 7, headers=headers)
    assert producer.flush(30) == 0
    assert rows(broker, topic, 2000) == sent


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_kafka_pythons_records_in_every_codec(broker: Broker, codec: str | None) -> None:
    topic = f"python-{codec}"
    broker.create_topic(topic)
    producer = KafkaPythonProducer(
        bootstrap_servers=broker.bootstrap_servers, compression_type=codec, linger_ms=20, acks=1
    )
    sent: list[Row] = []
    for number in range(300):
        value = b"v" * (number % 100)
        sent.append((number, b"%d" % number, value, [("a", b"b")], 1_600_000_000_000 + number))
        producer.send(topic, value, b"%d" % number, [("a", b"b")], 0, 1_600_000_000_000 + number)
    producer.flush(30)
    producer.close()
    assert rows(broker, topic, 300) == sent


def test_log_append_time_is_the_brokers(broker: Broker) -> None:
    broker.create_topic("append-time", 1, {"message.timestamp.type": "LogAppendTime"})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("append-time", b"v", timestamp=5)
    assert producer.flush(20) == 0
    with KafkaConsumer("append-time", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as c:
        record = next(c)
        assert record.timestamp_type == 1
        assert abs(record.timestamp - time.time() * 1000) < 60_000


def test_read_committed_returns_committed_transactions_only(broker: Broker) -> None:
    broker.create_topic("transactions")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x", "linger.ms": 0})
    producer.init_transactions(20)
    committed: list[bytes] = []
    everything: list[bytes] = []
    for turn in range(9):
        producer.begin_transaction()
        values = [b"%d-%d" % (turn, number) for number in range(turn % 4 + 1)]
        for value in values:
            producer.produce("transactions", value, partition=0)
            producer.flush(20)
        everything += values
        if turn % 3 == 1:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
            committed += values
    assert [row[2] for row in rows(broker, "transactions", len(everything))] == everything
    assert [
        row[2] for row in rows(broker, "transactions", len(committed), isolation_level="read_committed")
    ] == committed
    # An open transaction holds read_committed back, also for what comes after it.
    producer.begin_transaction()
    producer.produce("transactions", b"open", partition=0)
    producer.flush(20)
    other = Producer({"bootstrap.servers": broker.bootstrap_servers})
    other.produce("transactions", b"after", partition=0)
    assert other.flush(20) == 0
    with KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        partition = TopicPartition("transactions", 0)
        consumer.assign([partition])
        stable = consumer.end_offsets([partition])[partition]
        got: list[bytes] = []
        while len(got) < len(committed):
            got += [record.value for record in consumer.poll_batch(100, 1000)]
        assert consumer.poll_batch(10, 200) == []
        # The position has passed the markers that nobody sees.
        assert consumer.position(partition) == stable
        assert consumer.lag(partition) == 0
        producer.commit_transaction(20)
        while len(got) < len(committed) + 2:
            got += [record.value for record in consumer.poll_batch(100, 1000)]
        assert got == [*committed, b"open", b"after"]


def test_holes_of_a_compacted_log_are_passed_over(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": "20000",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "100",
        "delete.retention.ms": "0",
    }
    admin.create_topics([NewTopic("compacted", 1, 1, config=config)])["compacted"].result()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5, "batch.size": 2000})
    last: dict[bytes, tuple[int, bytes]] = {}
    for number in range(4000):
        key = b"%d" % (number * number % 37)
        last[key] = (number, b"value-%d" % number)
        producer.produce("compacted", last[key][1], key, 0)
        if number % 500 == 0:
            producer.flush(20)
    assert producer.flush(20) == 0
    deadline = time.monotonic() + 30
    while True:
        got = all_rows(broker, "compacted")
        if len(got) < 3500 or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    assert len(got) < 3500, "the log was not compacted"
    offsets = [row[0] for row in got]
    assert offsets == sorted(set(offsets))
    assert offsets[-1] == 3999
    seen = {row[1]: (row[0], row[2]) for row in got}
    assert seen == last
