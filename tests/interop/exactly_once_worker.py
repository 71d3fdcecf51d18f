"""The program in the middle of an exactly-once pipeline: reads a topic, writes each record to another one, and commits
both in one transaction. Some transactions it aborts, after it has written other values, and does again. To be killed
at any time, and started again; it ends by itself with an error it cannot handle, with FENCED when another one has taken
its place.

    python exactly_once_worker.py <bootstrap> <input topic> <output topic> <group and transactional id>
"""

from __future__ import annotations

import faulthandler
import os
import random
import sys

import confluent_kafka

BATCH = 500
ABORTED = b"aborted"
"""The value of every record of a transaction that is aborted."""
ABORTED_SHARE = 0.05
FENCED = 2
TIMEOUT_S = 15

_FENCED_CODES = {
    confluent_kafka.KafkaError._FENCED,
    confluent_kafka.KafkaError.PRODUCER_FENCED,
    confluent_kafka.KafkaError.INVALID_PRODUCER_EPOCH,
}


def main(bootstrap: str, source: str, target: str, name: str) -> None:
    """Run until something goes wrong."""
    faulthandler.enable()  # one who finds it stuck ends it with SIGABRT, and reads where it stood
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 2000,
            "heartbeat.interval.ms": 300,
            "reconnect.backoff.max.ms": 500,
        }
    )
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 20_000,
            "linger.ms": 5,
            "reconnect.backoff.max.ms": 500,
        }
    )
    try:
        run(consumer, producer, source, target)
    except confluent_kafka.KafkaException as error:
        print(f"{error}", file=sys.stderr, flush=True)
        # Not by way of the clients' end: librdkafka may wait for ever there for a broker that went away.
        os._exit(FENCED if error.args[0].code() in _FENCED_CODES else 1)


def run(consumer: confluent_kafka.Consumer, producer: confluent_kafka.Producer, source: str, target: str) -> None:
    """Pass records on."""
    dice = random.Random()
    producer.init_transactions(TIMEOUT_S)
    consumer.subscribe([source])
    while True:
        messages = [message for message in consumer.consume(BATCH, 0.2) if message.error() is None]
        if not messages:
            continue
        positions = {message.partition(): message.offset() + 1 for message in messages}
        offsets = [confluent_kafka.TopicPartition(source, number, offset) for number, offset in positions.items()]
        for aborted in (True, False) if dice.random() < ABORTED_SHARE else (False,):
            producer.begin_transaction()
            for message in messages:
                value = ABORTED if aborted else message.value()
                producer.produce(target, value=value, key=message.key(), partition=message.partition())
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
            if aborted:
                producer.flush(TIMEOUT_S)
                producer.abort_transaction(TIMEOUT_S)
            else:
                producer.commit_transaction(TIMEOUT_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
