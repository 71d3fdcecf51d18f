"""Our clients against Apache Kafka 3.9 and 4.x: the matrix of test_clients, transactions, and a broker that is killed
(make interop-java).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clients import test_chaos
from clients.producer.cutting_proxy import CuttingProxy
from interop import clients
from interop.conftest import JAVA
from interop.test_clients import (
    test_each_client_reads_what_the_others_wrote,
    test_every_record_comes_back_as_sent,
    test_fetch_from_a_timestamp,
    test_fetch_from_the_middle_and_across_segment_rolls,
    test_idempotent_producer,
    test_many_partitions_are_kept_apart,
    test_record_sizes_from_one_byte_to_a_megabyte,
)
from peers.apache_kafka import ApacheKafka

from kafkapy import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafkapy.admin import NewTopic
from kafkapy.aio import AIOKafkaConsumer, AIOKafkaProducer

__all__ = [
    "test_each_client_reads_what_the_others_wrote",
    "test_every_record_comes_back_as_sent",
    "test_fetch_from_a_timestamp",
    "test_fetch_from_the_middle_and_across_segment_rolls",
    "test_idempotent_producer",
    "test_many_partitions_are_kept_apart",
    "test_record_sizes_from_one_byte_to_a_megabyte",
]
"""They are collected here once more, with this module's broker and clients."""

pytestmark = [*JAVA, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def broker(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    with ApacheKafka(version, tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(params=clients.OURS, ids=lambda kind: kind.name)
def client(request: pytest.FixtureRequest, broker: ApacheKafka) -> clients.Client:
    """Each of our clients in turn."""
    made: clients.Client = request.param(broker.bootstrap)
    return made


def test_records_are_consumed_transformed_and_produced_once(broker: ApacheKafka, topic: str) -> None:
    source, target, group = f"{topic}-in", f"{topic}-out", f"{topic}-group"
    numbers = range(100)
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(source, 1, 1), NewTopic(target, 1, 1)])
    with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        for number in numbers:
            producer.send(source, b"%d" % number)
    where = TopicPartition(source, 0)
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap,
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed",
        "fetch_max_wait_ms": 100,
    }
    with (
        KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=topic) as producer,
        KafkaConsumer(source, group_id=group, enable_auto_commit=False, **settings) as consumer,
    ):
        producer.init_transactions()
        attempts = 0
        done = 0
        while done < len(numbers):
            records = consumer.poll(10_000, 10).get(where, [])
            producer.begin_transaction()
            for record in records:
                producer.send(target, record.value)
            producer.send_offsets_to_transaction(
                {where: OffsetAndMetadata(consumer.position(where))}, consumer.group_metadata()
            )
            attempts += 1
            if attempts % 3 == 0:
                producer.flush()
                producer.abort_transaction()
                consumer.seek(where, records[0].offset)
            else:
                producer.commit_transaction()
                done += len(records)
        assert consumer.committed(where) == len(numbers)
    with KafkaConsumer(target, **settings) as reader:
        got = [int(next(reader).value) for _ in numbers]
        assert reader.poll(500) == {}
    assert got == list(numbers)


def test_transactions_on_asyncio(broker: ApacheKafka, topic: str) -> None:
    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=topic) as producer:
            for number in range(4):
                try:
                    async with producer.transaction():
                        await producer.send_and_wait(topic, b"%d" % number, partition=0)
                        if number % 2:
                            raise KeyError
                except KeyError:
                    pass
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            assert [(await consumer.getone()).value for _ in range(2)] == [b"0", b"2"]
            assert await consumer.getmany(timeout_ms=500) == {}

    asyncio.run(main())


def test_connections_are_cut_and_the_broker_is_killed(version: str, tmp_path: Path) -> None:
    with CuttingProxy() as proxy:
        running = ApacheKafka(version, tmp_path, test_chaos.OVERRIDES)
        running.overrides["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{proxy.port}"
        with running:
            proxy.target_port = running.port
            with KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{proxy.port}") as admin:
                admin.create_topics([NewTopic(test_chaos.TOPIC, test_chaos.PARTITIONS, 1)])
            broker: Any = running
            test_chaos.through_trouble(proxy, broker, 30_000, kills=1, cut_every=200_000)
