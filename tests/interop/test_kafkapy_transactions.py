"""Transactions of our own clients: what is consumed, transformed and produced in them is there once."""

from __future__ import annotations

import asyncio
from typing import Any

from kafkapy import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafkapy.admin import NewTopic
from kafkapy.aio import AIOKafkaConsumer, AIOKafkaProducer


def test_records_are_consumed_transformed_and_produced_once(broker: Any, topic: str) -> None:
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


def test_transactions_on_asyncio(broker: Any, topic: str) -> None:
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
