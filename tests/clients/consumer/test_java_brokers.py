"""KafkaConsumer on Apache Kafka, the releases of this run: what it reads, commits and survives, against what came."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from clients.consumer.test_consumer_faults import PARTITIONS, QUICK, T, produce, read_all
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from interop.conftest import JAVA, with_jars
from peers.apache_kafka import VERSIONS, ApacheKafka

from kafkapy import KafkaConsumer
from kafkapy.types import TopicPartition

pytestmark = JAVA


@pytest.fixture(scope="module", params=sorted(VERSIONS))
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    with ApacheKafka(with_jars(request.param), tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


def make_topic(kafka: ApacheKafka, name: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    topic = NewTopic(name, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()})
    admin.create_topics([topic])[name].result()


def rows(consumer: KafkaConsumer, count: int) -> list[tuple[Any, ...]]:
    got: list[tuple[Any, ...]] = []
    deadline = time.monotonic() + 30
    while len(got) < count and time.monotonic() < deadline:
        got += [(r.offset, r.key, r.value, r.headers, r.timestamp) for r in consumer.poll_batch(1000, 500)]
    return got


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_record_in_every_codec(kafka: ApacheKafka, codec: str) -> None:
    topic = f"codec-{codec}"
    make_topic(kafka, topic)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "compression.type": codec, "linger.ms": 10})
    sent: list[tuple[Any, ...]] = []
    start = int(time.time() * 1000) - 100_000
    for number in range(3000):
        key = None if number % 3 == 0 else b"k%d" % number
        value = None if number % 7 == 0 else (b"%d " % number) * (number % 40)
        headers = [(f"h{n}", None if n == 1 else b"x" * n) for n in range(number % 4)]
        sent.append((number, key, value, headers, start + number))
        producer.produce(topic, value, key, 0, timestamp=start + number, headers=headers)
    assert producer.flush(30) == 0
    with KafkaConsumer(bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert rows(consumer, 3000) == sent
        found = consumer.offsets_for_times({TopicPartition(topic, 0): start + 1234})[TopicPartition(topic, 0)]
        assert found is not None
        assert (found.offset, found.timestamp) == (1234, start + 1234)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_go_on_where_they_were(kafka: ApacheKafka, protocol: str) -> None:
    if protocol == "consumer" and kafka.version != "4.x":
        pytest.skip("the consumer protocol came with 4.0; it is a preview in 3.9")
    topic = f"group-{protocol}"
    make_topic(kafka, topic, 3)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(300):
        producer.produce(topic, b"%d" % number, partition=number % 3)
    assert producer.flush(30) == 0
    configs: dict[str, Any] = {
        "bootstrap_servers": kafka.bootstrap,
        "group_id": f"g-{protocol}",
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
    }
    seen: list[int] = []
    with KafkaConsumer(topic, **configs) as consumer:
        seen += [int(row[2]) for row in rows(consumer, 100)]
        assert consumer.group_metadata().generation_id > 0
    assert len(seen) >= 100
    with KafkaConsumer(topic, **configs) as first, KafkaConsumer(topic, **configs) as second:
        deadline = time.monotonic() + 60
        while (len(seen) < 300 or not second.assignment()) and time.monotonic() < deadline:
            for consumer in (first, second):
                seen += [int(record.value) for record in consumer.poll_batch(50, 100)]
        assert first.assignment() | second.assignment() == {TopicPartition(topic, number) for number in range(3)}
        assert first.assignment() & second.assignment() == set()
    assert sorted(seen) == list(range(300))


def test_a_seek_while_a_fetch_waits_at_the_broker(kafka: ApacheKafka) -> None:
    make_topic(kafka, "waiting")
    partition = TopicPartition("waiting", 0)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(10):
        producer.produce("waiting", b"%d" % number, partition=0)
    assert producer.flush(30) == 0
    minutes = {"fetch_max_wait_ms": 300_000, "request_timeout_ms": 600_000}
    with KafkaConsumer(bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest", **minutes) as consumer:
        consumer.assign([partition])
        assert len(rows(consumer, 10)) == 10
        for offset in (0, 7, 7):
            assert consumer.poll(50) == {}
            consumer.seek(partition, offset)
            assert [row[0] for row in rows(consumer, 10 - offset)] == list(range(offset, 10))
        assert consumer.end_offsets([partition]) == {partition: 10}
        producer.produce("waiting", b"10", partition=0)
        assert producer.flush(30) == 0
        assert [row[0] for row in rows(consumer, 1)] == [10]


def test_read_committed(kafka: ApacheKafka) -> None:
    make_topic(kafka, "transactions")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "x"})
    producer.init_transactions(30)
    committed = []
    for turn in range(6):
        producer.begin_transaction()
        for number in range(50):
            producer.produce("transactions", b"%d-%d" % (turn, number), partition=0)
        if turn % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            committed += [b"%d-%d" % (turn, number) for number in range(50)]
    with KafkaConsumer(
        bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign([TopicPartition("transactions", 0)])
        assert [row[2] for row in rows(consumer, len(committed))] == committed
        assert consumer.poll(300) == {}
        end = consumer.end_offsets([TopicPartition("transactions", 0)])[TopicPartition("transactions", 0)]
        assert consumer.position(TopicPartition("transactions", 0)) == end


def test_records_deleted_under_the_reader(kafka: ApacheKafka) -> None:
    make_topic(kafka, "deleted")
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(100):
        producer.produce("deleted", b"%d" % number, partition=0)
    assert producer.flush(30) == 0
    from confluent_kafka import TopicPartition as Place

    partition = TopicPartition("deleted", 0)
    with KafkaConsumer(bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest") as consumer:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        for future in admin.delete_records([Place("deleted", 0, 60)]).values():
            future.result(30)
        consumer.assign([partition])
        consumer.seek(partition, 10)
        assert [row[0] for row in rows(consumer, 40)] == list(range(60, 100))
        assert consumer.beginning_offsets([partition]) == {partition: 60}


def test_a_topic_deleted_and_made_again(kafka: ApacheKafka) -> None:
    make_topic(kafka, "again")
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for _ in range(3):  # more than the new topic gets: a position that the new log has as well would stay
        producer.produce("again", b"old", partition=0)
    assert producer.flush(30) == 0
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    with KafkaConsumer(
        bootstrap_servers=kafka.bootstrap,
        auto_offset_reset="earliest",
        metadata_max_age_ms=500,
        allow_auto_create_topics=False,
    ) as c:
        c.assign([TopicPartition("again", 0)])
        assert [row[2] for row in rows(c, 3)] == [b"old"] * 3
        admin.delete_topics(["again"])["again"].result()
        c.poll(1500)
        make_topic(kafka, "again")
        fresh = Producer({"bootstrap.servers": kafka.bootstrap})
        fresh.produce("again", b"new", partition=0)
        assert fresh.flush(30) == 0
        assert [row[2] for row in rows(c, 1)] == [b"new"]


def test_records_over_a_killed_and_restarted_broker(kafka: ApacheKafka) -> None:
    make_topic(kafka, "t", PARTITIONS)
    # A killed Java broker keeps what it had flushed to the page cache, which is everything that was acknowledged.
    count = 20_000
    producing = threading.Thread(target=produce, args=(kafka.bootstrap, count))
    with KafkaConsumer(bootstrap_servers=kafka.bootstrap, **QUICK, max_partition_fetch_bytes=20_000) as consumer:
        consumer.assign(T)
        result: dict[int, list[int]] = {}
        reading = threading.Thread(target=lambda: result.update(read_all(consumer, count, 0.002, 200.0)))
        producing.start()
        reading.start()
        time.sleep(1)
        kafka.kill()
        kafka.start()
        producing.join()
        reading.join()
    assert result == {number: list(range(count)) for number in range(PARTITIONS)}
