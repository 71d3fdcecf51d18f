"""Foreign clients under quotas: their rates over a window, also many clients that share one, and their neighbours."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import pytest
from interop.conftest import make_broker

from kafkapy import KafkaAdminClient

WARM_UP_S = 12.0
"""The windows of a rate: the burst of an idle client is over."""
PERIOD_S = 11.0
"""A client that sends without pause has a burst at most once in the windows of a rate."""
TOLERANCE = 0.05
BUSY = 0.35
"""What one burst more or less is in two periods, and a busy machine."""
VALUE = b"v" * 5_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    place: Path = tmp_path_factory.mktemp("quotas")
    with make_broker(place, **{"num.partitions": "4"}) as started:
        yield started


@pytest.fixture
def admin(broker: Any) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as client:
        yield client


class Producers:
    """Producers of confluent-kafka that send as fast as they may; counts the bytes of acknowledged values."""

    def __init__(self, bootstrap: str, topic: str, client_ids: list[str]) -> None:
        self.acknowledged = 0
        self.failed: list[Any] = []
        self.latencies: list[float] = []
        self._stop = threading.Event()
        self._topic = topic
        self._producers = [
            confluent_kafka.Producer(
                {
                    "bootstrap.servers": bootstrap, "client.id": client_id, "linger.ms": 5, "acks": "1",
                    "queue.buffering.max.messages": 100, "message.timeout.ms": 300_000, "batch.size": 20_000,
                }
            )
            for client_id in client_ids
        ]  # fmt: skip
        self._threads = [threading.Thread(target=self._run, args=(each,), daemon=True) for each in self._producers]

    def __enter__(self) -> Producers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        for producer in self._producers:
            producer.purge()

    def _run(self, producer: confluent_kafka.Producer) -> None:
        while not self._stop.is_set():
            began = time.monotonic()

            def delivered(error: Any, message: Any, began: float = began) -> None:
                if error is None:
                    self.acknowledged += len(message.value())
                    self.latencies.append(time.monotonic() - began)
                elif not self._stop.is_set():
                    self.failed.append(error)

            try:
                producer.produce(self._topic, VALUE, on_delivery=delivered)
            except BufferError:
                producer.poll(0.05)
            producer.poll(0)


def measured(count: Any, periods: int = 2) -> float:
    """Bytes per second of a counter, after the burst."""
    time.sleep(WARM_UP_S)
    before, began = count(), time.monotonic()
    time.sleep(periods * PERIOD_S)
    return float(count() - before) / (time.monotonic() - began)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("clients", [1, 10])
def test_producers_that_share_a_quota_have_it_together(broker: Any, admin: KafkaAdminClient, clients: int) -> None:
    share_a_quota(broker, admin, clients, 1_000_000, 2, BUSY)


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("clients", [1, 10])
def test_producers_have_their_quota_over_a_minute(broker: Any, admin: KafkaAdminClient, clients: int) -> None:
    share_a_quota(broker, admin, clients, 1_000_000, 6, TOLERANCE)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_thousand_producers_share_a_quota(broker: Any, admin: KafkaAdminClient) -> None:
    share_a_quota(broker, admin, 1000, 10_000_000, 6, TOLERANCE)


def share_a_quota(
    broker: Any, admin: KafkaAdminClient, clients: int, rate: int, periods: int, tolerance: float
) -> None:
    topic = f"shared-{clients}"
    admin.alter_client_quotas([({"client-id": topic}, {"producer_byte_rate": rate})])
    with (
        Producers(broker.bootstrap, topic, [topic] * clients) as bounded,
        Producers(broker.bootstrap, f"free-{clients}", ["free"]) as free,
    ):
        achieved = measured(lambda: bounded.acknowledged, periods)
        neighbour = free.acknowledged
    admin.alter_client_quotas([({"client-id": topic}, {"producer_byte_rate": None})])
    assert not bounded.failed and not free.failed
    # The quota counts whole requests; their values are the most of them.
    overhead = 1.02
    assert achieved * overhead == pytest.approx(rate, rel=tolerance)
    assert neighbour > rate  # it is not held up by them


@pytest.mark.timeout(180)
def test_consumers_of_kafka_python_have_their_quota(broker: Any, admin: KafkaAdminClient) -> None:
    rate, topic = 500_000, "consumed"
    with Producers(broker.bootstrap, topic, ["filler"]) as filler:
        while filler.acknowledged < 40 * rate:
            time.sleep(0.05)
    admin.alter_client_quotas([({"client-id": "eater"}, {"consumer_byte_rate": rate})])
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap, client_id="eater", auto_offset_reset="earliest",
        enable_auto_commit=False, max_partition_fetch_bytes=50_000, fetch_max_bytes=100_000,
    )  # fmt: skip
    consumer.assign([kafka.TopicPartition(topic, number) for number in range(4)])
    read, stop = [0], threading.Event()

    def run() -> None:
        while not stop.is_set():
            for records in consumer.poll(timeout_ms=200).values():
                read[0] += sum(len(record.value) for record in records)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    achieved = measured(lambda: read[0])
    stop.set()
    thread.join(60)
    consumer.close()
    assert achieved * 1.02 == pytest.approx(rate, rel=BUSY)
