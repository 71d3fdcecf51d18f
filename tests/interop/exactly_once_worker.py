"""The program in the middle of an exactly-once pipeline: reads a topic, writes each record to another one, and commits
both in one transaction. To be killed at any time, and started again; it ends by itself with an error it cannot handle.

    python exactly_once_worker.py <bootstrap> <input topic> <output topic> <group and transactional id>
"""

from __future__ import annotations

import os
import sys

import confluent_kafka

BATCH = 500


def main(bootstrap: str, source: str, target: str, name: str) -> None:
    """Run until something goes wrong."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 2000,
            "heartbeat.interval.ms": 300,
        }
    )
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 20_000,
            "linger.ms": 5,
        }
    )
    try:
        run(consumer, producer, source, target)
    except confluent_kafka.KafkaException as error:
        print(f"{error}", file=sys.stderr, flush=True)
        # Not by way of the clients' end: librdkafka may wait for ever there for a broker that went away.
        os._exit(1)


def run(consumer: confluent_kafka.Consumer, producer: confluent_kafka.Producer, source: str, target: str) -> None:
    """Pass records on."""
    producer.init_transactions(15)
    consumer.subscribe([source])
    while True:
        messages = [message for message in consumer.consume(BATCH, 0.2) if message.error() is None]
        if not messages:
            continue
        positions: dict[int, int] = {}
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, value=message.value(), key=message.key(), partition=message.partition())
            positions[message.partition()] = message.offset() + 1
        offsets = [confluent_kafka.TopicPartition(source, number, offset) for number, offset in positions.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 10)
        producer.commit_transaction(10)


if __name__ == "__main__":
    main(*sys.argv[1:])
