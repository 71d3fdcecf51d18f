"""Nothing is lost, doubled or out of order, whatever happens to connections and brokers in the middle."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator

import pytest
from clients.producer.cutting_proxy import CuttingProxy
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from kafkapy import KafkaProducer
from kafkapy.testing.broker_process import BrokerProcess

PARTITIONS = 3


@pytest.fixture
def proxy() -> Iterator[CuttingProxy]:
    with CuttingProxy() as proxy:
        yield proxy


@pytest.fixture
def broker(proxy: CuttingProxy) -> Iterator[BrokerProcess]:
    """A broker that clients reach through the proxy only."""
    overrides = {
        "num.partitions": str(PARTITIONS),
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}",
    }
    with BrokerProcess(overrides=overrides) as broker:
        proxy.target_port = broker.port
        yield broker


def read_all(bootstrap: str, topic: str, count: int) -> dict[int, list[int]]:
    """What a foreign consumer finds, by partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.list_topics(topic, 30)  # without a leader's name it asks for offsets after half a second only
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    found: dict[int, list[int]] = defaultdict(list)
    total = 0
    quiet = 0
    while quiet < 2:
        messages = consumer.consume(10_000, 0.4)
        quiet = 0 if messages or total < count else quiet + 1
        for message in messages:
            assert message.error() is None
            found[message.partition()].append(int(message.value()))
            total += 1
    consumer.close()
    return found


def send_through_trouble(
    proxy: CuttingProxy, broker: BrokerProcess, count: int, *, kills: int, cut_every: int, **config: object
) -> None:
    proxy.cut_every = cut_every
    stop = threading.Event()
    killed = 0

    def kill() -> None:
        nonlocal killed
        while not stop.wait(0.7) and killed < kills:
            broker.kill()
            time.sleep(0.2)
            broker.start()
            killed += 1

    killer = threading.Thread(target=kill)
    expected: dict[int, list[int]] = defaultdict(list)
    futures = []
    with KafkaProducer(
        bootstrap_servers=f"127.0.0.1:{proxy.port}", retry_backoff_ms=20, linger_ms=1, **config
    ) as producer:
        producer.partitions_for("trouble")
        killer.start()
        try:
            number = 0
            while number < count or killed < kills:
                futures.append(producer.send("trouble", b"%d" % number, partition=number % PARTITIONS))
                expected[number % PARTITIONS].append(number)
                number += 1
                if number % 2000 == 0:
                    time.sleep(0.02)
            producer.flush(timeout=120)
        finally:
            stop.set()
            killer.join()
    assert all(future.succeeded() for future in futures)
    proxy.cut_every = 0
    assert read_all(f"127.0.0.1:{proxy.port}", "trouble", number) == expected
    assert proxy.cuts > 0
    assert killed == kills
    # Each future knows where its record is: the n-th of its partition.
    assert all(futures[i].get(0).offset == i // PARTITIONS for i in range(0, number, 997))


def test_connections_cut_and_a_broker_killed(proxy: CuttingProxy, broker: BrokerProcess) -> None:
    send_through_trouble(proxy, broker, 20_000, kills=1, cut_every=100_000, batch_size=4096)


@pytest.mark.soak
def test_a_million_records_through_cuts_and_kills(proxy: CuttingProxy, broker: BrokerProcess) -> None:
    send_through_trouble(proxy, broker, 1_000_000, kills=5, cut_every=3_000_000, compression_type="lz4")
