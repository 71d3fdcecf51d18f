"""What kafka-python's README and documentation show, written as they show it.

Each test runs with kafkapy and (make soak) with kafka-python itself, and nothing but the module's name differs.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from kafkapy.testing import Broker


@pytest.fixture(params=["kafkapy", pytest.param("kafka", marks=pytest.mark.soak)])
def kafka(request: pytest.FixtureRequest) -> ModuleType:
    """The one import that changes."""
    return import_module(request.param)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap_servers


_numbers = itertools.count(1)


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"topic{next(_numbers)}"
    broker.create_topic(name)
    return name


Make = Callable[..., Any]


@pytest.fixture
def producer(kafka: ModuleType, bootstrap: str) -> Iterator[Make]:
    """Makes producers, and closes them in the end."""
    with contextlib.ExitStack() as made:

        def make(**keywords: Any) -> Any:
            each = kafka.KafkaProducer(bootstrap_servers=bootstrap, **keywords)
            made.callback(each.close)
            return each

        yield make


@pytest.fixture
def consumer(kafka: ModuleType, bootstrap: str) -> Iterator[Make]:
    """Makes consumers that end when nothing comes for a while, and closes them in the end."""
    with contextlib.ExitStack() as made:

        def make(*topics: str, **keywords: Any) -> Any:
            settings = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 2_000} | keywords
            each = kafka.KafkaConsumer(*topics, bootstrap_servers=[bootstrap], **settings)
            made.callback(each.close)
            return each

        yield make


def some(messages: Any, count: int) -> list[Any]:
    """The first so many of an iteration."""
    return list(itertools.islice(messages, count))


# --- the producer -----------------------------------------------------------------------------------------------------


def test_fire_and_forget_then_one_that_is_waited_for(producer: Make, topic: str) -> None:
    sender = producer()
    for _ in range(100):
        sender.send(topic, b"some_message_bytes")
    future = sender.send(topic, b"another_message")
    result = future.get(timeout=60)
    assert (result.topic, result.partition, result.offset) == (topic, 0, 100)
    sender.flush()
    assert future.succeeded()
    assert not future.failed()
    assert future.is_done


def test_keys_choose_partitions_alike(kafka: ModuleType, broker: Broker, producer: Make) -> None:
    name = f"topic{next(_numbers)}"
    broker.create_topic(name, 7)
    sender = producer()
    expected = {b"foo": 1, b"bar": 0, b"baz": 0, b"ping": 6}  # murmur2, modulo 7
    for _ in range(2):
        chosen = {key: sender.send(name, key=key, value=b"bar").get(60).partition for key in expected}
        assert chosen == expected


def test_json_and_text_are_serialized(kafka: ModuleType, producer: Make, consumer: Make, topic: str) -> None:
    producer(value_serializer=kafka.JsonSerializer()).send(topic, {"foo": "bar"}).get(60)
    producer(value_serializer=lambda v: json.dumps(v).encode("utf-8")).send(topic, {"foo": "baz"}).get(60)
    producer(key_serializer=kafka.DefaultSerializer()).send(topic, key="ping", value=b"1234").get(60)
    producer(key_serializer=str.encode).send(topic, key="pong", value=b"1234").get(60)
    producer(value_serializer=kafka.DefaultSerializer("utf-16")).send(topic, "懂不懂").get(60)
    raw = [(message.key, message.value) for message in some(consumer(topic), 5)]
    assert [json.loads(value) for _, value in raw[:2]] == [{"foo": "bar"}, {"foo": "baz"}]
    assert raw[2:4] == [(b"ping", b"1234"), (b"pong", b"1234")]
    assert raw[4][1].decode("utf-16") == "懂不懂"


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_messages_are_compressed(producer: Make, consumer: Make, topic: str, codec: str) -> None:
    sender = producer(compression_type=codec)
    for i in range(1000):
        sender.send(topic, b"msg %d" % i)
    sender.flush()
    assert [message.value for message in some(consumer(topic), 1000)] == [b"msg %d" % i for i in range(1000)]


def test_transactions_and_who_reads_only_what_was_committed(
    kafka: ModuleType, producer: Make, consumer: Make, topic: str
) -> None:
    sender = producer(transactional_id=f"fizzbuzz-{topic}")
    sender.init_transactions()
    sender.begin_transaction()
    future = sender.send(topic, value=b"yes")
    future.get(60)
    sender.commit_transaction()

    sender.begin_transaction()
    future = sender.send(topic, value=b"no")
    future.get(60)
    sender.abort_transaction()

    reader = consumer(isolation_level=kafka.IsolationLevel.READ_COMMITTED)
    reader.subscribe([topic])
    assert [message.value for message in reader] == [b"yes"]


def test_headers_go_with_a_message(producer: Make, consumer: Make, topic: str) -> None:
    producer().send(topic, value=b"c29tZSB2YWx1ZQ==", headers=[("content-encoding", b"base64")]).get(60)
    (message,) = some(consumer(topic), 1)
    assert message.headers == [("content-encoding", b"base64")]


def test_callbacks_are_told_of_results(kafka: ModuleType, producer: Make, topic: str) -> None:
    told: list[Any] = []
    done = threading.Event()

    def on_send_success(record_metadata: Any) -> None:
        told.append((record_metadata.topic, record_metadata.partition, record_metadata.offset))
        done.set()

    def on_send_error(excp: BaseException) -> None:
        told.append(excp)
        done.set()

    sender = producer()
    sender.send(topic, b"raw_bytes").add_callback(on_send_success).add_errback(on_send_error)
    sender.flush()
    assert done.wait(60)
    assert told == [(topic, 0, 0)]


def test_an_error_is_a_kafka_error(kafka: ModuleType, producer: Make, broker: Broker) -> None:
    errors = import_module(f"{kafka.__name__}.errors")
    name = f"topic{next(_numbers)}"
    broker.create_topic(name, configs={"max.message.bytes": 200})
    future = producer(retries=5).send(name, b"x" * 5000)
    with pytest.raises(errors.KafkaError) as raised:
        future.get(timeout=60)
    assert isinstance(raised.value, errors.MessageSizeTooLargeError)
    assert future.failed()


def test_both_have_metrics(producer: Make, consumer: Make, topic: str) -> None:
    sender = producer()
    sender.send(topic, b"x").get(60)
    assert sender.metrics()["producer-metrics"]
    reader = consumer(topic)
    some(reader, 1)
    assert reader.metrics()


def test_partitions_and_the_end(kafka: ModuleType, bootstrap: str, topic: str) -> None:
    with kafka.KafkaProducer(bootstrap_servers=bootstrap) as sender:
        assert sender.partitions_for(topic) == {0}
        sender.send(topic, b"x")
    with kafka.KafkaConsumer(bootstrap_servers=bootstrap) as reader:
        assert topic in reader.topics()
        assert reader.partitions_for_topic(topic) == {0}


# --- the consumer -----------------------------------------------------------------------------------------------------


def test_iterating_ends_when_nothing_comes(producer: Make, consumer: Make, topic: str) -> None:
    producer().send(topic, key=b"k", value=b"v").get(60)
    got = []
    for message in consumer(topic, consumer_timeout_ms=1000):
        got.append(f"{message.topic}:{message.partition}:{message.offset}: key={message.key} value={message.value}")
    assert got == [f"{topic}:0:0: key=b'k' value=b'v'"]


def test_a_group_commits_by_itself(producer: Make, consumer: Make, topic: str) -> None:
    sender = producer()
    for n in range(5):
        sender.send(topic, b"%d" % n)
    sender.flush()
    group = f"group-{topic}"
    first = consumer(topic, group_id=group)
    assert [message.value for message in some(first, 5)] == [b"%d" % n for n in range(5)]
    first.close()
    sender.send(topic, b"5").get(60)
    assert [message.value for message in some(consumer(topic, group_id=group), 1)] == [b"5"]


def test_offsets_are_committed_by_hand(kafka: ModuleType, producer: Make, consumer: Make, topic: str) -> None:
    sender = producer()
    for n in range(10):
        sender.send(topic, b"%d" % n)
    sender.flush()
    reader = consumer(topic, group_id=f"group-{topic}", enable_auto_commit=False)
    for message in some(reader, 4):
        tp = kafka.TopicPartition(message.topic, message.partition)
        reader.commit({tp: kafka.OffsetAndMetadata(message.offset + 1, "", -1)})
    assert reader.committed(tp) == 4
    assert reader.committed(tp, metadata=True) == kafka.OffsetAndMetadata(4, "", -1)


def test_a_partition_is_assigned_by_hand(kafka: ModuleType, producer: Make, consumer: Make, broker: Broker) -> None:
    name = f"topic{next(_numbers)}"
    broker.create_topic(name, 3)
    producer().send(name, b"here", partition=2).get(60)
    reader = consumer()
    reader.assign([kafka.TopicPartition(name, 2)])
    msg = next(reader)
    assert (msg.partition, msg.value) == (2, b"here")


def test_values_are_deserialized(kafka: ModuleType, producer: Make, consumer: Make, topic: str) -> None:
    producer().send(topic, b'{"a": 1}').get(60)
    reader = consumer(value_deserializer=kafka.JsonSerializer())
    reader.subscribe([topic])
    (msg,) = some(reader, 1)
    assert isinstance(msg.value, dict)
    (msg,) = some(consumer(topic, value_deserializer=kafka.DefaultSerializer()), 1)
    assert msg.value == '{"a": 1}'
    (msg,) = some(consumer(topic, value_deserializer=json.loads), 1)
    assert msg.value == {"a": 1}


def test_a_pattern_subscribes(producer: Make, consumer: Make, broker: Broker) -> None:
    number = next(_numbers)
    for name in (f"awesome{number}-a", f"awesome{number}-b", f"other{number}"):
        broker.create_topic(name)
        producer().send(name, name.encode()).get(60)
    reader = consumer(group_id=f"group-{number}")
    reader.subscribe(pattern=f"^awesome{number}.*")
    assert {msg.value for msg in some(reader, 2)} == {b"awesome%d-a" % number, b"awesome%d-b" % number}


def test_two_consumers_share_a_group(kafka: ModuleType, producer: Make, consumer: Make, broker: Broker) -> None:
    name = f"topic{next(_numbers)}"
    broker.create_topic(name, 2)
    readers = [
        consumer(name, group_id="my-group", heartbeat_interval_ms=100, session_timeout_ms=6000) for _ in range(2)
    ]
    for _ in range(300):
        for reader in readers:
            reader.poll(timeout_ms=50)
        if [len(reader.assignment()) for reader in readers] == [1, 1]:
            break
    assert readers[0].assignment() | readers[1].assignment() == {kafka.TopicPartition(name, n) for n in range(2)}
    sender = producer()
    for n in range(10):
        sender.send(name, b"%d" % n, partition=n % 2)
    sender.flush()
    got = [message.value for reader in readers for message in some(reader, 5)]
    assert sorted(got) == sorted(b"%d" % n for n in range(10))


def test_polls_seeks_and_pauses(kafka: ModuleType, producer: Make, consumer: Make, topic: str) -> None:
    sender = producer()
    for n in range(10):
        sender.send(topic, b"%d" % n, timestamp_ms=1000 + n)
    sender.flush()
    tp = kafka.TopicPartition(topic, 0)
    reader = consumer(max_poll_records=3)
    reader.assign([tp])
    assert reader.assignment() == {tp}
    records = poll(reader)
    assert [message.offset for message in records[tp]] == [0, 1, 2]
    assert reader.position(tp) == 3
    reader.seek(tp, 7)
    assert [message.offset for message in poll(reader)[tp]] == [7, 8, 9]
    reader.seek_to_beginning(tp)
    assert reader.position(tp) == 0
    reader.seek_to_end(tp)
    assert reader.position(tp) == 10
    assert reader.beginning_offsets([tp]) == {tp: 0}
    assert reader.end_offsets([tp]) == {tp: 10}
    found = reader.offsets_for_times({tp: 1005})[tp]
    assert (found.offset, found.timestamp) == (5, 1005)
    reader.seek(tp, 0)
    reader.pause(tp)
    assert reader.paused() == {tp}
    assert reader.poll(timeout_ms=200) == {}
    reader.resume(tp)
    assert [message.offset for message in poll(reader)[tp]] == [0, 1, 2]
    assert reader.highwater(tp) == 10
    reader.unsubscribe()
    assert reader.assignment() == set()


def poll(reader: Any) -> dict[Any, list[Any]]:
    """What the first poll that has something returns."""
    while not (records := reader.poll(timeout_ms=1000)):
        pass
    return dict(records)


def test_a_message_is_like_a_named_tuple(producer: Make, consumer: Make, topic: str) -> None:
    producer().send(topic, key=b"k", value=b"v", headers=[("h", b"x")], timestamp_ms=5).get(60)
    (message,) = some(consumer(topic), 1)
    fields = (message.topic, message.partition, message.offset, message.timestamp, message.timestamp_type)
    assert fields == (topic, 0, 0, 5, 0)
    assert (message.key, message.value, message.headers) == (b"k", b"v", [("h", b"x")])
    assert (message.serialized_key_size, message.serialized_value_size) == (1, 1)
    assert list(message)[:2] == [topic, 0]
    assert "value=b'v'" in repr(message)


def test_a_listener_is_told_of_rebalances(kafka: ModuleType, consumer: Make, producer: Make, topic: str) -> None:
    told: list[Any] = []

    class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[name-defined, misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            told.append(("revoked", set(revoked)))

        def on_partitions_assigned(self, assigned: Any) -> None:
            told.append(("assigned", set(assigned)))

    producer().send(topic, b"v").get(60)
    reader = consumer(group_id=f"group-{topic}")
    reader.subscribe([topic], listener=Listener())
    some(reader, 1)
    reader.close()
    tp = kafka.TopicPartition(topic, 0)
    assert ("assigned", {tp}) in told
    assert told[-1] == ("revoked", {tp})


# --- administration ---------------------------------------------------------------------------------------------------


def test_topics_and_groups_are_administered(kafka: ModuleType, bootstrap: str, producer: Make, consumer: Make) -> None:
    number = next(_numbers)
    one, two = f"testtopic{number}-1", f"testtopic{number}-2"
    admin = kafka.KafkaAdminClient(bootstrap_servers=[bootstrap])
    admin.create_topics([one], timeout_ms=None, validate_only=False)
    new_topics = {
        two: {
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": {0: [1]},
            "configs": {"max.message.bytes": "1000000"},
        }
    }
    new_topics[two].pop("assignments")
    admin.create_topics(new_topics, timeout_ms=None, validate_only=False)
    assert {one, two} <= set(admin.list_topics())
    described = admin.describe_topics([one])
    assert [each["name"] for each in described] == [one]

    producer().send(one, b"x").get(60)
    group = f"group-{number}"
    reader = consumer(one, group_id=group)
    some(reader, 1)
    reader.commit()
    reader.close()
    assert group in [each["group_id"] for each in admin.list_groups()]
    assert admin.describe_groups([group])[group]["group_state"] == "Empty"
    offsets = admin.list_group_offsets([group])[group]
    assert offsets[kafka.TopicPartition(one, 0)].offset == 1

    admin.delete_topics([one, two])
    assert not {one, two} & set(admin.list_topics())
    admin.close()
