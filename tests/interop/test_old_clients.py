"""Foreign clients that speak as before Kafka 0.11: Produce v0 to v2, Fetch v0 to v3, message sets of formats v0 and v1.

librdkafka and kafka-python do so when they are told that the broker is old and not asked to find out.
"""

from __future__ import annotations

import json
import logging
import random
import shutil
import subprocess
import time
from typing import Any

import confluent_kafka
import kafka
import pytest
from interop.clients import TIMEOUT_S, ConfluentClient, Record

CODECS = ("none", "gzip", "snappy", "lz4")
LIBRDKAFKA_BROKERS = ("0.8.1", "0.8.2", "0.9.0")
"""From 0.10 on librdkafka asks for ApiVersions whatever it is told, and finds what is newest."""

logging.getLogger("rdkafka").setLevel(logging.ERROR)


def old_records(seed: int, count: int = 200) -> list[Record]:
    """What those formats can hold: no headers, null and empty keys and values."""
    source = random.Random(seed)
    records = []
    for number in range(count):
        key = [None, b"", b"key-%d" % number, source.randbytes(20)][number % 4]
        value = [b"v", None, source.randbytes(source.randrange(3000)), b"%d" % number * 40][number // 2 % 4]
        records.append(Record(key, value))
    return records


def librdkafka(bootstrap: str, broker_version: str, **keys: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "api.version.request": False,
        "broker.version.fallback": broker_version,
        "log_level": 3,
    } | {key.replace("_", "."): value for key, value in keys.items()}


def produce_with_librdkafka(config: dict[str, Any], topic: str, records: list[Record]) -> None:
    failures: list[object] = []
    producer = confluent_kafka.Producer(config, logger=logging.getLogger("rdkafka"))
    for record in records:
        producer.produce(
            topic,
            value=record.value,
            key=record.key,
            partition=0,
            on_delivery=lambda error, _: error and failures.append(error),
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert not failures, failures[:3]


def consume_with_librdkafka(config: dict[str, Any], topic: str, offset: int, count: int) -> list[tuple[int, Record]]:
    consumer = confluent_kafka.Consumer(
        config | {"group.id": "none", "enable.auto.commit": False}, logger=logging.getLogger("rdkafka")
    )
    got: list[tuple[int, Record]] = []
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, offset)])
        deadline = time.monotonic() + TIMEOUT_S
        while len(got) < count and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None:
                assert message.error() is None, message.error()
                offset_of = message.offset()
                assert offset_of is not None
                got.append((offset_of, Record(message.key(), message.value())))
    finally:
        consumer.close()
    return got


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("broker_version", LIBRDKAFKA_BROKERS)
def test_librdkafka_as_for_an_old_broker(broker: Any, topic: str, broker_version: str, codec: str) -> None:
    ConfluentClient(broker.bootstrap).create_topic(topic)
    records = old_records(CODECS.index(codec))
    acks = {"0.8.1": "all", "0.8.2": "1", "0.9.0": "all"}[broker_version]
    config = librdkafka(broker.bootstrap, broker_version)
    produce_with_librdkafka(config | {"compression.type": codec, "linger.ms": 20, "acks": acks}, topic, records)
    assert consume_with_librdkafka(config, topic, 0, len(records)) == list(enumerate(records))
    # From the middle of a batch, and as a client of today sees them.
    assert consume_with_librdkafka(config, topic, 77, 10) == list(enumerate(records))[77:87]
    received = ConfluentClient(broker.bootstrap).consume(topic, len(records))
    assert [Record(r.record.key, r.record.value) for r in received] == records


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("broker_version", LIBRDKAFKA_BROKERS)
def test_librdkafka_reads_what_new_clients_write(broker: Any, topic: str, broker_version: str, codec: str) -> None:
    client = ConfluentClient(broker.bootstrap)
    client.create_topic(topic)
    records = [
        Record(r.key, r.value, (("header", b"dropped"),), 1_700_000_000_000 + n)
        for n, r in enumerate(old_records(3, 500))
    ]
    client.produce(topic, records, compression=codec, idempotent=True)
    config = librdkafka(broker.bootstrap, broker_version, fetch_message_max_bytes=5_000)
    got = consume_with_librdkafka(config, topic, 0, len(records))
    assert got == [(n, Record(r.key, r.value)) for n, r in enumerate(records)]


def test_an_old_client_reads_over_transactions(broker: Any, topic: str) -> None:
    ConfluentClient(broker.bootstrap).create_topic(topic)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, value=b"%d" % number, partition=0)
        producer.flush(TIMEOUT_S)
        if number % 2:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    got = consume_with_librdkafka(librdkafka(broker.bootstrap, "0.9.0"), topic, 0, 6)
    # Those formats know no transactions: all records are seen, and no marker.
    assert got == [(2 * n, Record(None, b"%d" % n)) for n in range(6)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("broker_version", [(0, 8, 2), (0, 9), (0, 10, 0), (0, 10, 1)], ids=str)
def test_kafka_python_as_for_an_old_broker(
    broker: Any, topic: str, broker_version: tuple[int, ...], codec: str
) -> None:
    if codec == "lz4" and broker_version < (0, 10):
        pytest.skip("kafka-python cannot write the broken LZ4 header of format v0 by itself")
    ConfluentClient(broker.bootstrap).create_topic(topic)
    records = [record for record in old_records(7) if record.value is not None or record.key is not None]
    common: dict[str, Any] = {"bootstrap_servers": broker.bootstrap, "api_version": broker_version}
    producer = kafka.KafkaProducer(
        **common, compression_type=None if codec == "none" else codec, linger_ms=20, enable_idempotence=False, acks=1
    )
    for record in records:
        producer.send(topic, key=record.key, value=record.value, partition=0)
    producer.flush(TIMEOUT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
        **common, auto_offset_reset="earliest", enable_auto_commit=False, consumer_timeout_ms=int(TIMEOUT_S * 1000)
    )
    consumer.assign([kafka.TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    got = []
    for message in consumer:
        got.append((message.offset, Record(message.key, message.value)))
        if len(got) == len(records):
            break
    consumer.close()
    assert got == list(enumerate(records))


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
@pytest.mark.parametrize("codec", CODECS)
def test_kcat_as_for_an_old_broker(broker: Any, topic: str, codec: str) -> None:
    ConfluentClient(broker.bootstrap).create_topic(topic)
    old = ["-b", broker.bootstrap, "-t", topic, "-p", "0", "-X", "api.version.request=false"]
    old += ["-X", "broker.version.fallback=0.8.2", "-q"]
    lines = [f"key-{n}:value {n} {'x' * (n % 50)}" for n in range(300)]
    subprocess.run(
        ["kcat", "-P", *old, "-z", codec, "-K:"], input="\n".join(lines), text=True, check=True, timeout=TIMEOUT_S
    )
    out = subprocess.run(
        ["kcat", "-C", *old, "-e", "-J", "-o", "beginning"],
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT_S,
    )
    got = [json.loads(line) for line in out.stdout.splitlines()]
    assert [(each["offset"], f"{each['key']}:{each['payload']}") for each in got] == list(enumerate(lines))
