"""Transactions: what readers of committed records see, offsets, fencing, errors, with both protocols (KIP-890)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as ForeignPartition

from kafkapy import KafkaProducer
from kafkapy.admin import KafkaAdminClient, TransactionState
from kafkapy.errors import (
    CommitFailedError,
    IllegalStateError,
    InvalidProducerEpochError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    RecordTooLargeError,
    TransactionAbortedError,
)
from kafkapy.testing import Broker
from kafkapy.testing.broker_process import BrokerProcess
from kafkapy.types import OffsetAndMetadata, TopicPartition

PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[Broker]:
    with Broker(num_partitions=PARTITIONS) as broker:
        yield broker


@pytest.fixture
def name() -> str:
    return uuid.uuid4().hex[:8]


def transactional(bootstrap: str, name: str, **config: Any) -> KafkaProducer:
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name, retry_backoff_ms=20, **config)
    producer.init_transactions()
    return producer


def read(bootstrap: str, topic: str, count: int, isolation: str = "read_committed") -> list[bytes]:
    """What a foreign consumer sees, `count` records of it and nothing after them."""
    config = {"bootstrap.servers": bootstrap, "group.id": "g", "isolation.level": isolation}
    consumer = Consumer(config | {"fetch.wait.max.ms": 50})
    consumer.list_topics(topic, 30)  # without a leader's name it asks for offsets after half a second only
    consumer.assign([ForeignPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    found: list[bytes] = []
    quiet = 0
    deadline = time.monotonic() + 30
    while quiet < 1 and time.monotonic() < deadline:
        messages = consumer.consume(10_000, 0.3)
        found += [message.value() for message in messages if message.error() is None]
        quiet = 0 if messages or len(found) < count else quiet + 1
    consumer.close()
    return found


def test_committed_records_are_seen_and_aborted_ones_are_not(cluster: Broker, name: str, protocol: int) -> None:
    bootstrap = cluster.bootstrap_servers
    with transactional(bootstrap, name) as producer:
        expected = []
        for number in range(4):
            producer.begin_transaction()
            for i in range(50):
                producer.send(name, b"kept-%d-%d" % (number, i))
                expected.append(b"kept-%d-%d" % (number, i))
            producer.commit_transaction()
            producer.begin_transaction()
            written = producer.send(name, b"aborted-%d" % number)
            if number % 2:
                producer.flush(10)
            producer.abort_transaction()
            if number % 2:
                assert written.succeeded()
            else:
                assert written.succeeded() or isinstance(written.exception, TransactionAbortedError)
        producer.begin_transaction()
        producer.commit_transaction()  # nothing was sent
        producer.begin_transaction()
        producer.abort_transaction()
    assert sorted(read(bootstrap, name, 200)) == sorted(expected)
    assert len(read(bootstrap, name, 202, "read_uncommitted")) >= 202


def test_offsets_go_with_the_transaction(cluster: Broker, name: str, protocol: int) -> None:
    bootstrap = cluster.bootstrap_servers
    place = TopicPartition(name, 0)

    def committed() -> int:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"group-{name}"})
        (found,) = consumer.committed([ForeignPartition(name, 0)], timeout=10)
        consumer.close()
        return int(found.offset)

    with transactional(bootstrap, name) as producer:
        producer.begin_transaction()
        producer.send(name, b"v")
        producer.send_offsets_to_transaction({place: OffsetAndMetadata(5, "note")}, f"group-{name}")
        producer.commit_transaction()
        assert committed() == 5
        producer.begin_transaction()
        producer.send_offsets_to_transaction({place: OffsetAndMetadata(9)}, f"group-{name}")
        producer.send_offsets_to_transaction({}, f"group-{name}")
        producer.abort_transaction()
        assert committed() == 5
        producer.begin_transaction()
        producer.send_offsets_to_transaction({place: OffsetAndMetadata(7)}, f"group-{name}")
        producer.commit_transaction()
        assert committed() == 7
        producer.begin_transaction()
        producer.send_offsets_to_transaction({place: 8}, f"group-{name}")
        producer.commit_transaction()
        assert committed() == 8


def test_a_member_that_is_not_one_cannot_commit_offsets(cluster: Broker, name: str, protocol: int) -> None:
    class Group:
        group_id = f"group-{name}"
        generation_id = 3
        member_id = "nobody"
        group_instance_id = None

    with transactional(cluster.bootstrap_servers, name) as producer:
        producer.begin_transaction()
        producer.send(name, b"aborted").get(10)
        with pytest.raises(CommitFailedError):
            producer.send_offsets_to_transaction({TopicPartition(name, 0): OffsetAndMetadata(1)}, Group())
        with pytest.raises(KafkaError):
            producer.commit_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(name, b"after")
        producer.commit_transaction()
    assert read(cluster.bootstrap_servers, name, 1) == [b"after"]


def test_a_newer_producer_fences_the_older(cluster: Broker, name: str, protocol: int) -> None:
    bootstrap = cluster.bootstrap_servers
    older = transactional(bootstrap, name)
    older.begin_transaction()
    older.send(name, b"older").get(10)
    newer = transactional(bootstrap, name)
    newer.begin_transaction()
    newer.send(name, b"newer")
    newer.commit_transaction()
    older.send(name, b"too late")
    with pytest.raises((ProducerFencedError, InvalidProducerEpochError)):
        older.commit_transaction()
    with pytest.raises((ProducerFencedError, InvalidProducerEpochError)):
        older.abort_transaction()
    with pytest.raises(KafkaError):
        older.begin_transaction()
    with pytest.raises(KafkaError):
        older.send(name, b"v")
    older.close()
    newer.close()
    assert read(bootstrap, name, 1) == [b"newer"]


def test_an_error_of_a_record_aborts_the_transaction(cluster: Broker, name: str, protocol: int) -> None:
    with transactional(cluster.bootstrap_servers, name, max_request_size=10_000_000) as producer:
        producer.begin_transaction()
        producer.send(name, b"lost with it")
        future = producer.send(name, bytes(2_000_000))
        with pytest.raises(RecordTooLargeError):
            producer.commit_transaction()
        assert isinstance(future.exception, RecordTooLargeError)
        with pytest.raises(RecordTooLargeError):
            producer.send(name, b"v")
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(name, b"kept")
        producer.commit_transaction()
    assert read(cluster.bootstrap_servers, name, 1) == [b"kept"]


def test_a_commit_of_nothing_leaves_nothing_open(cluster: Broker, name: str, protocol: int) -> None:
    with (
        transactional(cluster.bootstrap_servers, name, max_request_size=1000) as producer,
        KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        assert producer.partitions_for(name)
        for _ in range(5):
            producer.begin_transaction()
            with pytest.raises(RecordTooLargeError):
                producer.send(name, bytes(2000))  # its partition is being added to the transaction by now
            producer.commit_transaction()
            time.sleep(0.05)
            assert admin.describe_transactions([name])[name].state is not TransactionState.ONGOING


def test_calls_out_of_turn(cluster: Broker, name: str) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=name)
    with pytest.raises(IllegalStateError, match="init_transactions"):
        producer.send(name, b"v")
    with pytest.raises(IllegalStateError):
        producer.begin_transaction()
    producer.init_transactions()
    with pytest.raises(IllegalStateError, match="no transaction is open"):
        producer.send(name, b"v")
    for call in (producer.commit_transaction, producer.abort_transaction, producer.init_transactions):
        with pytest.raises(IllegalStateError):
            call()
    with pytest.raises(IllegalStateError):
        producer.send_offsets_to_transaction({TopicPartition(name, 0): OffsetAndMetadata(1)}, "g")
    producer.begin_transaction()
    with pytest.raises(IllegalStateError):
        producer.begin_transaction()
    producer.send(name, b"v")
    producer.commit_transaction()
    producer.close()
    with pytest.raises(IllegalStateError, match="closed"):
        producer.begin_transaction()


def test_close_aborts_an_open_transaction(cluster: Broker, name: str, protocol: int) -> None:
    with transactional(cluster.bootstrap_servers, name) as producer:
        producer.begin_transaction()
        producer.send(name, b"open").get(10)
    started = time.monotonic()
    with transactional(cluster.bootstrap_servers, name) as producer:
        producer.begin_transaction()
        producer.send(name, b"kept")
        producer.commit_transaction()
    assert time.monotonic() - started < 30  # and not transaction.timeout.ms
    assert read(cluster.bootstrap_servers, name, 1) == [b"kept"]


def insist(call: Callable[[], None]) -> None:
    """Calls again after each timeout, as a user would."""
    while True:
        try:
            call()
            return
        except KafkaTimeoutError:
            continue


def test_a_coordinator_that_is_killed_and_comes_back(name: str) -> None:
    with BrokerProcess(overrides={"num.partitions": str(PARTITIONS)}) as broker:
        with KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=name, max_block_ms=1000) as producer:
            insist(producer.init_transactions)
            insist(lambda: producer.partitions_for(name) and None)
            expected = []
            for number in range(6):
                producer.begin_transaction()
                for i in range(20):
                    producer.send(name, b"%d-%d" % (number, i))
                    expected.append(b"%d-%d" % (number, i))
                if number == 3:
                    producer.flush(10)
                    broker.kill()
                    with pytest.raises(KafkaTimeoutError, match="call it again"):
                        producer.commit_transaction()
                    with pytest.raises(IllegalStateError, match="must be called again"):
                        producer.begin_transaction()
                    broker.start()
                insist(producer.commit_transaction)
        assert sorted(read(broker.bootstrap, name, len(expected))) == sorted(expected)
