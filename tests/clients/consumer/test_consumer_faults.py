"""Brokers killed and connections cut in the middle: an assigned consumer returns every record once and in order."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from clients.producer.cutting_proxy import CuttingProxy
from confluent_kafka import Producer

from kafkapy import KafkaConsumer
from kafkapy.testing import Broker
from kafkapy.testing.broker_process import BrokerProcess
from kafkapy.types import TopicPartition

PARTITIONS = 3
T = [TopicPartition("t", number) for number in range(PARTITIONS)]
QUICK: dict[str, Any] = {"auto_offset_reset": "earliest", "retry_backoff_ms": 20, "reconnect_backoff_ms": 10}


def produce(bootstrap: str, count: int, codec: str = "none") -> None:
    """Each partition gets the numbers 0 to count in order."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            "reconnect.backoff.max.ms": 200,
        }
    )
    for number in range(count):
        for partition in range(PARTITIONS):
            producer.produce("t", b"%d" % number, partition=partition)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(200) == 0


def read_all(consumer: KafkaConsumer, count: int, pause: float = 0.0, limit_s: float = 60.0) -> dict[int, list[int]]:
    """The numbers read of each partition, until there are so many of each or the time is over."""
    got: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    deadline = time.monotonic() + limit_s
    left = count * PARTITIONS
    while left > 0 and time.monotonic() < deadline:
        for record in consumer.poll_batch(2000, 500):
            assert record.offset == len(got[record.partition]), "lost or twice"
            got[record.partition].append(int(record.value))
            left -= 1
        time.sleep(pause)
    return got


@pytest.mark.parametrize(("group", "codec"), [(None, "none"), ("g", "lz4")])
def test_connections_cut_within_frames_lose_and_double_nothing(group: str | None, codec: str) -> None:
    count = 20_000
    with CuttingProxy(seed=7) as proxy:
        advertised = f"PLAINTEXT://127.0.0.1:{proxy.port}"
        with Broker(advertised_listeners=advertised) as broker:
            proxy.target_port = int(broker.bootstrap_servers.rpartition(":")[2])
            broker.create_topic("t", PARTITIONS)
            produce(f"127.0.0.1:{proxy.port}", count, codec)
            configs = QUICK | {"bootstrap_servers": f"127.0.0.1:{proxy.port}", "max_partition_fetch_bytes": 50_000}
            with KafkaConsumer(group_id=group, **configs) as consumer:
                if group is None:
                    consumer.assign(T)
                else:
                    consumer.subscribe(["t"])
                    consumer.poll(5000, 1, update_offsets=False)
                proxy.cut_every = 150_000
                got = read_all(consumer, count)
                proxy.cut_every = 0
            assert got == {number: list(range(count)) for number in range(PARTITIONS)}
            assert proxy.cuts >= 2


def test_a_broker_killed_and_started_again_loses_and_doubles_nothing() -> None:
    count = 20_000
    with BrokerProcess() as broker:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result()
        producing = threading.Thread(target=produce, args=(broker.bootstrap, count))
        with KafkaConsumer(bootstrap_servers=broker.bootstrap, **QUICK, max_partition_fetch_bytes=20_000) as consumer:
            consumer.assign(T)
            result: dict[int, list[int]] = {}
            reading = threading.Thread(target=lambda: result.update(read_all(consumer, count, 0.002)))
            producing.start()
            reading.start()
            for _ in range(2):
                time.sleep(0.3)
                broker.kill()
                broker.start()
            producing.join()
            reading.join()
            assert result == {number: list(range(count)) for number in range(PARTITIONS)}
