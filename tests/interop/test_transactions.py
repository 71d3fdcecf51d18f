"""Transactions of foreign clients: what readers see, who is fenced, and what is left after kills."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest

from kafkapy.coordinator.partitioning import partition_of
from kafkapy.coordinator.transaction.metadata import TransactionMetadata
from kafkapy.coordinator.transaction.records import transaction_record
from kafkapy.coordinator.transaction.state import TransactionState
from kafkapy.records.batches import RecordBatchBuilder, iter_batches
from kafkapy.testing.broker_process import BrokerProcess
from kafkapy.types import TopicPartition

TIMEOUT_S = 30
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "group.min.session.timeout.ms": "1000",
    "num.partitions": "1",
}

Transactions = list[tuple[bool, list[bytes]]]
"""Whether each is committed, and the values of its records."""


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A broker that looks for timed out transactions often."""
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"), SETTINGS)
    broker.start()
    yield broker
    broker.stop()
    broker.remove()


# --- writers --------------------------------------------------------------------------------------------------------


def confluent_producer(bootstrap: str, name: str, **config: Any) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": name} | config)
    producer.init_transactions(TIMEOUT_S)
    return producer


def write_with_confluent(bootstrap: str, topic: str, transactions: Transactions) -> None:
    producer = confluent_producer(bootstrap, f"confluent-{topic}")
    for committed, values in transactions:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        if committed:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)


def write_with_aiokafka(bootstrap: str, topic: str, transactions: Transactions) -> None:
    async def write() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"aiokafka-{topic}")
        await producer.start()
        for committed, values in transactions:
            await producer.begin_transaction()
            for value in values:
                await producer.send_and_wait(topic, value, partition=0)
            await (producer.commit_transaction() if committed else producer.abort_transaction())
        await producer.stop()

    asyncio.run(asyncio.wait_for(write(), TIMEOUT_S))


def write_with_kafka_python(bootstrap: str, topic: str, transactions: Transactions) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"kafka-python-{topic}")
    producer.init_transactions()
    for committed, values in transactions:
        producer.begin_transaction()
        for value in values:
            producer.send(topic, value, partition=0).get(TIMEOUT_S)
        if committed:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()


# --- readers --------------------------------------------------------------------------------------------------------


def read_with_confluent(bootstrap: str, topic: str, isolation: str, count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-without-a-group",
            "isolation.level": isolation,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline:
        found += [message.value() for message in consumer.consume(1000, 0.2) if message.error() is None]
    found += [message.value() for message in consumer.consume(1000, 0.3) if message.error() is None]
    consumer.close()
    return found


def read_with_aiokafka(bootstrap: str, topic: str, isolation: str, count: int) -> list[bytes]:
    async def read() -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation)
        partition = aiokafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.start()
        await consumer.seek_to_beginning(partition)
        found: list[bytes] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(found) < count and time.monotonic() < deadline:
            batches = await consumer.getmany(timeout_ms=200)
            found += [record.value for records in batches.values() for record in records]
        batches = await consumer.getmany(timeout_ms=300)
        found += [record.value for records in batches.values() for record in records]
        await consumer.stop()
        return found

    return asyncio.run(read())


def read_with_kafka_python(bootstrap: str, topic: str, isolation: str, count: int) -> list[bytes]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation)
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    found: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline:
        found += [record.value for records in consumer.poll(200).values() for record in records]
    found += [record.value for records in consumer.poll(300).values() for record in records]
    consumer.close()
    return found


WRITERS = [write_with_confluent, write_with_aiokafka, write_with_kafka_python]
READERS = [read_with_confluent, read_with_aiokafka, read_with_kafka_python]


@pytest.mark.parametrize("write", WRITERS, ids=lambda each: each.__name__[11:])
def test_readers_of_committed_records_see_no_aborted_ones(
    own_broker: Any, topic: str, write: Callable[..., None]
) -> None:
    outcomes = [True, False, True, False, False, True]
    transactions = [(kept, [b"%d-%d" % (number, i) for i in range(50)]) for number, kept in enumerate(outcomes)]
    write(own_broker.bootstrap, topic, transactions)
    everything = [value for _, values in transactions for value in values]
    committed = [value for kept, values in transactions if kept for value in values]
    for read in READERS:
        assert read(own_broker.bootstrap, topic, "read_committed", len(committed)) == committed, read
        assert read(own_broker.bootstrap, topic, "read_uncommitted", len(everything)) == everything, read


def test_an_open_transaction_holds_readers_of_committed_records_back(own_broker: Any, topic: str) -> None:
    open_one = confluent_producer(own_broker.bootstrap, f"open-{topic}")
    open_one.begin_transaction()
    open_one.produce(topic, b"open", partition=0)
    assert open_one.flush(TIMEOUT_S) == 0
    write_with_confluent(own_broker.bootstrap, topic, [(True, [b"after"])])
    assert read_with_confluent(own_broker.bootstrap, topic, "read_uncommitted", 2) == [b"open", b"after"]
    assert read_with_confluent(own_broker.bootstrap, topic, "read_committed", 0) == []
    open_one.commit_transaction(TIMEOUT_S)
    assert read_with_confluent(own_broker.bootstrap, topic, "read_committed", 2) == [b"open", b"after"]


def test_offsets_are_committed_with_the_transaction_only(own_broker: Any, topic: str) -> None:
    bootstrap = own_broker.bootstrap
    write_with_confluent(bootstrap, topic, [(True, [b"%d" % n for n in range(10)])])
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"group-{topic}", "enable.auto.commit": False}
    )
    partition = confluent_kafka.TopicPartition(topic, 0)
    producer = confluent_producer(bootstrap, f"offsets-{topic}")

    def committed() -> int:
        return consumer.committed([partition], TIMEOUT_S)[0].offset

    for outcome, offset in ((False, 5), (True, 7), (False, 9)):
        before = committed()
        producer.begin_transaction()
        producer.produce(topic, b"out", partition=0)
        position = confluent_kafka.TopicPartition(topic, 0, offset)
        producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), TIMEOUT_S)
        if outcome:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)
        assert committed() == (offset if outcome else before)
    own_broker.kill()
    own_broker.start()
    assert committed() == 7
    consumer.close()


def test_a_zombie_gets_nothing_done(own_broker: Any, topic: str) -> None:
    zombie = confluent_producer(own_broker.bootstrap, f"id-{topic}")
    zombie.begin_transaction()
    zombie.produce(topic, b"zombie", partition=0)
    assert zombie.flush(TIMEOUT_S) == 0
    successor = confluent_producer(own_broker.bootstrap, f"id-{topic}")
    zombie.produce(topic, b"zombie again", partition=0)
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        zombie.commit_transaction(TIMEOUT_S)
    assert raised.value.args[0].code() in (
        confluent_kafka.KafkaError._FENCED,
        confluent_kafka.KafkaError.PRODUCER_FENCED,
        confluent_kafka.KafkaError.INVALID_PRODUCER_EPOCH,
    )
    successor.begin_transaction()
    successor.produce(topic, b"successor", partition=0)
    successor.commit_transaction(TIMEOUT_S)
    assert read_with_confluent(own_broker.bootstrap, topic, "read_committed", 1) == [b"successor"]


def test_a_transaction_that_runs_out_of_time_is_aborted(own_broker: Any, topic: str) -> None:
    slow = confluent_producer(own_broker.bootstrap, f"slow-{topic}", **{"transaction.timeout.ms": 1000})
    slow.begin_transaction()
    slow.produce(topic, b"slow", partition=0)
    assert slow.flush(TIMEOUT_S) == 0
    write_with_confluent(own_broker.bootstrap, topic, [(True, [b"quick"])])
    # Its end is what lets the reader see what came after.
    assert read_with_confluent(own_broker.bootstrap, topic, "read_committed", 1) == [b"quick"]
    with pytest.raises(confluent_kafka.KafkaException):
        slow.commit_transaction(TIMEOUT_S)
    assert read_with_confluent(own_broker.bootstrap, topic, "read_committed", 1) == [b"quick"]


# --- kills ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "seen"), [(TransactionState.PREPARE_COMMIT, [b"before"]), (TransactionState.PREPARE_ABORT, [])]
)
def test_what_was_decided_before_a_kill_is_done_after_it(
    tmp_path: Path, topic: str, state: TransactionState, seen: list[bytes]
) -> None:
    name = "decided"
    broker = BrokerProcess(tmp_path, SETTINGS)
    broker.start()
    try:
        producer = confluent_producer(broker.bootstrap, name)
        producer.begin_transaction()
        producer.produce(topic, b"before", partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        broker.kill()
        # The log of a broker that was killed just after it had decided.
        decide(tmp_path / "logs", name, TopicPartition(topic, 0), state)
        broker.start()
        write_with_confluent(broker.bootstrap, topic, [(True, [b"after"])])
        assert read_with_confluent(broker.bootstrap, topic, "read_committed", len(seen) + 1) == [*seen, b"after"]
    finally:
        broker.remove()


def decide(logs: Path, name: str, partition: TopicPartition, state: TransactionState) -> None:
    """Append to __transaction_state what a coordinator writes first when a transaction ends."""
    [segment] = (logs / f"__transaction_state-{partition_of(name, 50)}").glob("*.log")
    batches = list(iter_batches(segment.read_bytes()))
    [producer_id] = producers_of(logs / f"{partition.topic}-{partition.partition}")
    now = int(time.time() * 1000)
    metadata = TransactionMetadata(name, producer_id, 0, 60_000, state, frozenset([partition]), now, now)
    key, value = transaction_record(metadata).encode()
    builder = RecordBatchBuilder(base_offset=batches[-1].next_offset)
    builder.append(now, key, value)
    with segment.open("ab") as file:
        file.write(builder.build(leader_epoch=0))


def producers_of(directory: Path) -> set[int]:
    [segment] = directory.glob("*.log")
    return {batch.producer_id for batch in iter_batches(segment.read_bytes())}
