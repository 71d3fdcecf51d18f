"""KafkaProducer against a broker: what a user can do with it, and what it says when something is wrong."""

from __future__ import annotations

import asyncio
import enum
import gc
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message
from confluent_kafka import TopicPartition as ForeignPartition

from kafkapy import KafkaProducer
from kafkapy._speedups.base.murmur2 import partition_for_key
from kafkapy.clients.cluster import BrokerNode, PartitionMetadata, TopicMetadata, index_limit
from kafkapy.clients.producer.core import ProducerCore
from kafkapy.config.producer import PRODUCER, ProducerConfig
from kafkapy.errors import (
    BufferExhaustedError,
    ConfigError,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    NoBrokersAvailableError,
    RecordTooLargeError,
)
from kafkapy.serializer import JsonSerializer
from kafkapy.testing import Broker
from kafkapy.testing.broker_process import BrokerProcess
from kafkapy.types import ZERO_UUID, TopicPartition

PARTITIONS = 4


@pytest.fixture(scope="module")
def cluster() -> Iterator[Broker]:
    with Broker(num_partitions=PARTITIONS) as broker:
        yield broker


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def producer_of(cluster: Broker, **config: Any) -> KafkaProducer:
    return KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **config)


def read(cluster: Broker, topic: str, count: int, partitions: int = PARTITIONS) -> list[Message]:
    """`count` records by a foreign consumer, by partition and offset."""
    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "check.crcs": True}
    consumer = Consumer(config | {"fetch.wait.max.ms": 50})
    consumer.list_topics(topic, 30)  # without a leader's name it asks for offsets after half a second only
    consumer.assign([ForeignPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    found: list[Message] = []
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.consume(count - len(found), 0.5)
    assert [message.error() for message in found] == [None] * count
    consumer.close()
    return sorted(found, key=lambda message: (message.partition(), message.offset()))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_foreign_consumer_reads_what_was_sent(cluster: Broker, topic: str, codec: str) -> None:
    sent = {}
    with producer_of(cluster, compression_type=codec, batch_size=2000) as producer:
        for i in range(500):
            key = b"key-%d" % i if i % 3 else None
            headers = [("h", b"%d" % i), ("empty", b""), ("null", None)][: i % 4]
            future = producer.send(
                topic, b"value %d " % i * (i % 20), key=key, headers=headers, timestamp_ms=1_700_000_000_000 + i
            )
            sent[i] = (future, key, headers)
    by_place = {(message.partition(), message.offset()): message for message in read(cluster, topic, 500)}
    for i, (future, key, headers) in sent.items():
        metadata = future.get(0)
        message = by_place.pop((metadata.partition, metadata.offset))
        assert (message.key(), message.value()) == (key, b"value %d " % i * (i % 20))
        assert (message.headers() or []) == headers
        assert message.timestamp()[1] == metadata.timestamp == 1_700_000_000_000 + i
        assert metadata.serialized_key_size == (-1 if key is None else len(key))
        if key is not None:
            assert metadata.partition == partition_for_key(key, PARTITIONS)
    assert not by_place


@pytest.mark.parametrize(("codec", "level"), [("gzip", 9), ("lz4", 12), ("zstd", -5)])
def test_levels_change_the_size(cluster: Broker, topic: str, codec: str, level: int) -> None:
    values = [json.dumps({"number": i, "square": i * i, "name": f"item {i}"}).encode() for i in range(1000)]
    rates = []
    for levels in ({}, {f"compression.{codec}.level": level}):
        config = {"compression.type": codec, "batch.size": 1 << 18, "linger.ms": 50, **levels}
        with KafkaProducer(configs={"bootstrap.servers": cluster.bootstrap_servers, **config}) as producer:
            producer.send_many(topic, values, partition=0).wait(20)
            rates.append(producer.metrics()["producer-metrics"]["compression-rate-avg"])
    assert rates[0] < 0.5
    assert rates[1] != rates[0]
    assert len(read(cluster, topic, 2000)) == 2000


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(cluster: Broker, topic: str, acks: Any) -> None:
    with producer_of(cluster, acks=acks) as producer:
        offsets = [producer.send(topic, b"v", partition=1).get(10).offset for _ in range(3)]
    assert offsets == ([-1] * 3 if acks == 0 else [0, 1, 2])
    assert len(read(cluster, topic, 3)) == 3


def test_a_topic_may_be_a_kind_of_str_and_an_open_producer_that_is_dropped_sends(cluster: Broker, topic: str) -> None:
    class Topics(enum.StrEnum):
        ORDERS = topic

    producer = producer_of(cluster, linger_ms=500)
    producer.send(Topics.ORDERS, b"v")
    del producer
    gc.collect()
    assert read(cluster, topic, 1)[0].value() == b"v"


def test_the_end_of_the_program_sends_what_open_producers_hold(cluster: Broker, topic: str) -> None:
    program = f"""
from kafkapy import KafkaProducer
from kafkapy.clients.producer import producer as module
module.CLOSE_AT_EXIT_S = 60  # the machine may be busy
producers = [KafkaProducer(bootstrap_servers={cluster.bootstrap_servers!r}, linger_ms=600_000) for _ in range(2)]
for producer in producers:
    producer.send({topic!r}, b"v")
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=200)
    assert [message.value() for message in read(cluster, topic, 2)] == [b"v"] * 2


def test_send_many_has_one_future(cluster: Broker, topic: str) -> None:
    with producer_of(cluster, batch_size=1000) as producer:
        future = producer.send_many(topic, [b"%d" % i for i in range(1000)], keys=(b"k%d" % i for i in range(1000)))
        stretches = future.get(20)
        assert len(future) == 1000
        with pytest.raises(ValueError, match="more values"):
            producer.send_many(topic, [b"a", b"b"], keys=[b"x"])
        with pytest.raises(ValueError, match="more keys"):
            producer.send_many(topic, [b"a"], keys=[b"x", b"y"])
        assert producer.send_many(topic, []).get() == []
    places = [(place.partition, first + i) for place, first, count in stretches for i in range(count)]
    by_place = {(message.partition(), message.offset()): message for message in read(cluster, topic, 1002)}
    assert [by_place[place].value() for place in places] == [b"%d" % i for i in range(1000)]


def test_serializers_of_every_kind(cluster: Broker, topic: str) -> None:
    class WithTopic:
        closed = False

        def serialize(self, topic: str, headers: Any, data: Any) -> bytes:
            return f"{topic}:{len(headers)}:{data}".encode()

        def close(self) -> None:
            type(self).closed = True

    with producer_of(cluster, key_serializer=str.encode, value_serializer=JsonSerializer()) as producer:
        producer.send(topic, {"a": 1}, key="ü", partition=0).get(10)
        with pytest.raises(TypeError):
            producer.send(topic, {1, 2}, key="k")
    for number, serializer in enumerate((WithTopic(), WithTopic)):
        WithTopic.closed = False
        with producer_of(cluster, value_serializer=serializer) as producer:
            producer.send(topic, 5 + number, headers=[("h", b"")], partition=1).get(10)
        assert WithTopic.closed
    first, second, third = read(cluster, topic, 3)
    assert (first.key(), first.value()) == ("ü".encode(), b'{"a": 1}')
    assert second.value() == f"{topic}:1:5".encode()
    assert third.value() == f"{topic}:1:6".encode()


def test_callbacks_and_interceptors(cluster: Broker, topic: str) -> None:
    seen: list[Any] = []

    class Audit:
        def on_send(self, record: Any) -> Any:
            return record._replace(value=record.value + b"!")

        def on_acknowledgement(self, metadata: Any, exception: Any) -> None:
            seen.append(("ack", metadata and metadata.offset, exception and type(exception).__name__))

        def close(self) -> None:
            seen.append("closed")

    class Broken:
        def on_send(self, record: Any) -> Any:
            raise RuntimeError("broken")

    with producer_of(cluster, interceptor_classes=[Broken(), Audit]) as producer:
        done = threading.Event()
        producer.send(topic, b"v", partition=0, callback=lambda *told: (seen.append(("callback", *told)), done.set()))
        assert done.wait(10)
        with pytest.raises(RecordTooLargeError):
            producer.send(topic, bytes(2 << 20))
    ack, (name, metadata, exception), failed, closed = seen
    assert ack == ("ack", 0, None)
    assert (name, metadata.offset, exception) == ("callback", 0, None)
    assert failed[:2] == ("ack", None)
    assert closed == "closed"
    assert read(cluster, topic, 1)[0].value() == b"v!"


@pytest.mark.parametrize("partitioner", ["round_robin", "org.apache.kafka.clients.producer.RoundRobinPartitioner"])
def test_round_robin_takes_each_in_turn(cluster: Broker, topic: str, partitioner: str) -> None:
    with producer_of(cluster, partitioner_class=partitioner) as producer:
        chosen = [producer.send(topic, b"v", key=b"same").get(10).partition for _ in range(8)]
    assert chosen == [0, 1, 2, 3] * 2


def test_partitioners_of_every_shape(cluster: Broker, topic: str) -> None:
    from kafka.partitioner import DefaultPartitioner, StickyPartitioner

    class Ours:
        def partition(self, topic: str, key: Any, value: Any, partitions: int) -> int:
            return partitions - 1

    def old(key: Any, all_partitions: list[int], available: list[int]) -> int:
        assert all_partitions == available == [0, 1, 2, 3]
        return 2

    def chosen(partitioner: Any, **record: Any) -> int:
        with producer_of(cluster, partitioner=partitioner) as producer:
            partition: int = producer.send(topic, b"v", **record).get(10).partition
            return partition

    assert chosen(Ours()) == 3
    assert chosen(Ours) == 3
    assert chosen(old) == 2
    assert chosen(DefaultPartitioner(), key=b"abc") == partition_for_key(b"abc", 4)
    assert chosen("default", key=b"abc") == partition_for_key(b"abc", 4)
    assert chosen(StickyPartitioner()) in range(4)
    with producer_of(cluster, partitioner=StickyPartitioner()) as producer:
        keys = [b"k%d" % number for number in range(10)]
        of_keys = [producer.send(topic, b"v", key=key).get(10).partition for key in keys]
    assert of_keys == [partition_for_key(key, 4) for key in keys]
    assert chosen("uniform_sticky", key=b"abc") in range(4)
    assert chosen(Ours(), partition=1) == 1
    with pytest.raises(ConfigError, match="round_robin"):
        producer_of(cluster, partitioner="nonsense")
    with producer_of(cluster, partitioner=lambda *_: -1) as producer, pytest.raises(ValueError, match="-1"):
        producer.send(topic, b"v")


# --- what is wrong ------------------------------------------------------------------------------------------------


def test_nobody_there() -> None:
    with pytest.raises(NoBrokersAvailableError):
        KafkaProducer(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=200)


def test_configuration_that_cannot_be(cluster: Broker) -> None:
    for config in (
        {"acks": 2},
        {"lingers_ms": 1},
        {"enable_idempotence": True, "acks": 1},
        {"enable_idempotence": False, "transactional_id": "x"},
        {"delivery_timeout_ms": 10},
        {"transactional_id": "x", "max_in_flight_requests_per_connection": 6},
        {"compression_type": "brotli"},
    ):
        with pytest.raises(ConfigError):
            producer_of(cluster, **config)
    with producer_of(cluster, acks=1) as producer:
        assert producer.config["enable.idempotence"] is False


def test_arguments_that_cannot_be(cluster: Broker, topic: str) -> None:
    with producer_of(cluster) as producer:
        for arguments in ({"value": "text"}, {"key": 5}, {"headers": [("a", "b")]}, {"headers": [b"a"]}):
            with pytest.raises(TypeError):
                producer.send(topic, **arguments)
        with pytest.raises(TypeError):
            producer.send(b"topic", b"v")
        for arguments in ({"partition": -1}, {"timestamp_ms": -2}):
            with pytest.raises(ValueError, match="negative"):
                producer.send(topic, b"v", **arguments)
        with pytest.raises(InvalidTopicError):
            producer.send("not a topic!", b"v")
        with pytest.raises(IllegalStateError, match="transactional_id"):
            producer.init_transactions()


def test_a_topic_or_partition_that_never_comes(cluster: Broker, topic: str) -> None:
    with producer_of(cluster, max_block_ms=300, allow_auto_create_topics=False) as producer:
        started = time.monotonic()
        with pytest.raises(KafkaTimeoutError, match=topic):
            producer.send(topic, b"v")
        with pytest.raises(KafkaTimeoutError):
            producer.partitions_for(topic)
        assert time.monotonic() - started >= 0.6
    with producer_of(cluster, max_block_ms=1000) as producer:
        assert producer.partitions_for(topic) == {0, 1, 2, 3}
        with pytest.raises(KafkaTimeoutError, match="no partition 4"):
            producer.send(topic, b"v", partition=4)


def test_partitions_that_are_added_are_waited_for(cluster: Broker, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    with producer_of(cluster) as producer:
        producer.send(topic, b"v", partition=0).get(10)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_partitions([NewPartitions(topic, 6)])[topic].result()
        assert producer.send(topic, b"v", partition=5).get(10).partition == 5


def test_the_queues_of_a_topic_are_in_proportion_to_its_partitions() -> None:
    """Whatever index a broker gives one of them."""
    core = ProducerCore(ProducerConfig(PRODUCER, {"bootstrap.servers": "127.0.0.1:1"}))
    queues = core.accumulator.topic("t")
    cluster = core.network.cluster
    partitions = {index: PartitionMetadata(index, 1, 5, (1,), (1,), (), 0) for index in (0, 2, 5_000_000)}
    cluster.topics = {"t": TopicMetadata("t", ZERO_UUID, 0, partitions, False)}
    cluster._brokers = {1: BrokerNode(1, "h", 1)}
    core._metadata_changed(cluster)
    assert 3 <= len(queues) <= index_limit(len(partitions))


def test_records_that_are_too_large(cluster: Broker, topic: str) -> None:
    with producer_of(cluster, max_request_size=10_000_000, buffer_memory=20_000_000) as producer:
        future = producer.send(topic, bytes(2_000_000))
        with pytest.raises(RecordTooLargeError):  # for the topic
            future.get(10)
        with pytest.raises(RecordTooLargeError):
            producer.send(topic, bytes(10_000_000))
        assert producer.send(topic, b"small").get(10).offset >= 0


def test_batches_that_are_too_large_for_their_topic_are_split(cluster: Broker, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1, config={"max.message.bytes": "3000"})])[topic].result()
    with producer_of(cluster, batch_size=100_000, linger_ms=100) as producer:
        futures = [producer.send(topic, b"%04d" % i * 25) for i in range(300)]
        assert [future.get(20).offset for future in futures] == list(range(300))
        assert producer.metrics()["producer-metrics"]["batch-split-total"] > 0
    assert [message.value() for message in read(cluster, topic, 300, 1)] == [b"%04d" % i * 25 for i in range(300)]


# --- waiting, closing ---------------------------------------------------------------------------------------------


def test_flush_sends_at_once_and_waits(cluster: Broker, topic: str) -> None:
    with producer_of(cluster, linger_ms=60_000, delivery_timeout_ms=200_000) as producer:
        futures = [producer.send(topic, b"v") for _ in range(10)]
        time.sleep(0.05)
        assert not any(future.is_done for future in futures)
        producer.flush(20)
        assert all(future.succeeded() for future in futures)
        producer.flush()


def test_a_full_buffer_is_waited_for_and_memory_stays_bounded(cluster: Broker, topic: str) -> None:
    with producer_of(cluster, buffer_memory=100_000, batch_size=10_000) as producer:
        for _ in range(3000):
            producer.send(topic, bytes(500))
            assert producer.accumulator.pool.available >= 0
        producer.flush(20)
        assert producer.accumulator.pool.available == 100_000


def test_without_a_broker_the_buffer_fills_and_send_gives_up(topic: str) -> None:
    with BrokerProcess() as broker:
        producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap, buffer_memory=50_000, batch_size=10_000, max_block_ms=1000, linger_ms=0
        )
        producer.send(topic, b"v").get(10)
        broker.kill()
        with pytest.raises(BufferExhaustedError, match=r"buffer\.memory"):
            for _ in range(1000):
                producer.send(topic, bytes(1000))
        with pytest.raises(KafkaTimeoutError):
            producer.flush(0.1)
        started = time.monotonic()
        producer.close(timeout=0.2)
        assert time.monotonic() - started < 5
        broker.start()


def test_a_forgotten_producer_does_not_hold_the_loop_on_which_it_is_collected(cluster: Broker, topic: str) -> None:
    async def forget() -> None:
        producer = producer_of(cluster, linger_ms=0)
        producer.partitions_for(topic)
        # Its own thread is busy for a while, so that waiting for its end would show.
        held = threading.Event()
        producer._background.post(held.wait, 20)
        producer.send(topic, b"last words", partition=0)
        threads.append(producer._background._thread)
        del producer
        gc.collect()
        assert threads[0].is_alive(), "the collection waited for the producer's end"
        held.set()

    threads: list[threading.Thread] = []
    asyncio.run(forget())
    threads[0].join(20)
    assert not threads[0].is_alive()
    assert [message.value() for message in read(cluster, topic, 1)] == [b"last words"]


def test_records_expire_while_there_is_no_broker(topic: str) -> None:
    with BrokerProcess() as broker:
        producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap, request_timeout_ms=1000, delivery_timeout_ms=2000, linger_ms=0
        )
        producer.send(topic, b"v").get(10)
        broker.kill()
        future = producer.send(topic, b"w")
        with pytest.raises(KafkaTimeoutError, match="were not sent within"):
            future.get(10)
        broker.start()
        # The result of w is not known: the producer goes on under another epoch.
        assert producer.send(topic, b"x").get(20).offset == 1
        producer.close()


def test_close_sends_what_there_is_and_then_nothing_works(cluster: Broker, topic: str) -> None:
    producer = producer_of(cluster, linger_ms=30_000)
    futures = [producer.send(topic, b"v") for _ in range(100)]
    assert producer.bootstrap_connected()
    producer.close()
    producer.close()
    assert all(future.succeeded() for future in futures)
    assert not producer.bootstrap_connected()
    producer.flush()
    with pytest.raises(IllegalStateError, match="closed"):
        producer.send(topic, b"v")
    with pytest.raises(IllegalStateError, match="closed"):
        producer.partitions_for(topic)


def test_close_at_once_fails_what_there_is(cluster: Broker, topic: str) -> None:
    producer = producer_of(cluster, linger_ms=30_000)
    producer.partitions_for(topic)
    future = producer.send(topic, b"v")
    with pytest.raises(ValueError, match="negative"):
        producer.close(-1)
    producer.close(timeout=0)
    with pytest.raises(KafkaError, match="closed"):
        future.get(1)


def test_close_from_a_callback_waits_for_nothing(cluster: Broker, topic: str) -> None:
    producer = producer_of(cluster)
    closed = threading.Event()

    def close(*_: object) -> None:
        producer.close()
        closed.set()

    producer.send(topic, b"v", callback=close)
    assert closed.wait(10)
    with pytest.raises(IllegalStateError):
        producer.send(topic, b"v")


def test_waiting_in_a_callback_is_refused(cluster: Broker, topic: str) -> None:
    told: list[Any] = []
    done = threading.Event()

    def callback(*_: object) -> None:
        for wait in (lambda: producer.flush(1), lambda: producer.send(topic, b"w").get(1)):
            try:
                wait()
            except Exception as error:
                told.append(error)
        done.set()

    with producer_of(cluster) as producer:
        producer.send(topic, b"v", callback=callback)
        assert done.wait(10)
    assert [type(error) for error in told] == [IllegalStateError] * 2


def test_a_forked_child_cannot_send_and_the_parent_goes_on(cluster: Broker, topic: str) -> None:
    with producer_of(cluster) as producer:
        producer.send(topic, b"before").get(10)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                producer.send(topic, b"child")
            except IllegalStateError as error:
                code = 0 if "after a fork" in str(error) else 2
            producer.close()
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        producer.send(topic, b"after").get(10)
    assert sorted(message.value() for message in read(cluster, topic, 2)) == [b"after", b"before"]


def test_threads_share_a_producer(cluster: Broker, topic: str) -> None:
    with producer_of(cluster, batch_size=3000, compression_type="lz4") as producer:

        def send(number: int) -> None:
            for i in range(2000):
                producer.send(topic, b"%d-%d" % (number, i), partition=number % PARTITIONS)

        threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    by_sender: dict[int, list[int]] = {number: [] for number in range(8)}
    for message in read(cluster, topic, 16_000):
        number, _, i = message.value().decode().partition("-")
        by_sender[int(number)].append(int(i))
    assert all(numbers == list(range(2000)) for numbers in by_sender.values())


def test_metrics_have_kafkas_names(cluster: Broker, topic: str) -> None:
    with producer_of(cluster, client_id="counted") as producer:
        for _ in range(10):
            producer.send(topic, b"12345", partition=0).get(10)
        metrics = producer.metrics()
        assert metrics["producer-metrics"]["record-send-total"] == 10
        assert metrics["producer-metrics"]["record-error-total"] == 0
        assert metrics["producer-metrics"]["record-size-avg"] == 5
        assert metrics["producer-metrics"]["buffer-total-bytes"] == 32 << 20
        assert producer.metrics(raw=True)["producer-metrics", "record-send-total"] == 10
        assert "counted" in repr(producer)
        assert producer.send(topic, b"v").topic_partition in [TopicPartition(topic, i) for i in range(4)]
