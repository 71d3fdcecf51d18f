"""Clients push their metrics (KIP-714): what a broker shows of ours and of librdkafka's."""

from __future__ import annotations

import asyncio
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from broker.conftest import Client, config
from broker.telemetry_pushes import subscribe
from prometheus_client.parser import text_string_to_metric_families
from waiting import until, wait_until

from kafkapy import KafkaConsumer, KafkaProducer
from kafkapy.aio import AIOKafkaConsumer, AIOKafkaProducer
from kafkapy.broker.server import KafkaServer
from kafkapy.clients.telemetry import Number, chosen, encode, numbers_of
from kafkapy.plugins import PluginManager, hookimpl
from kafkapy.records.compression import decompress

otlp = pytest.importorskip(
    "opentelemetry.proto.metrics.v1.metrics_pb2", reason="the extra telemetry is not installed"
)

REQUIRED = {
    "producer": {
        "producer_connection_creation_total",
        "producer_connection_creation_rate",
        "producer_node_request_latency_avg",
        "producer_node_request_latency_max",
        "producer_record_queue_time_avg",
        "producer_record_queue_time_max",
    },
    "consumer": {
        "consumer_connection_creation_total",
        "consumer_connection_creation_rate",
        "consumer_node_request_latency_avg",
        "consumer_node_request_latency_max",
        "consumer_coordinator_commit_latency_avg",
        "consumer_coordinator_commit_latency_max",
        "consumer_coordinator_assigned_partitions",
        "consumer_coordinator_rebalance_latency_avg",
        "consumer_coordinator_rebalance_latency_max",
        "consumer_coordinator_rebalance_latency_total",
        "consumer_fetch_manager_fetch_latency_avg",
        "consumer_fetch_manager_fetch_latency_max",
    },
}
"""Standard metrics of KIP-714 that a client that has done its work has."""


class Pushes:
    """A receiver that keeps client ids and whether they are still there."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.metrics: dict[str, list[Any]] = {}

    def receive(self, client: Any, metrics: Any) -> None:
        with self.lock:
            self.metrics.setdefault(client.client_id, []).append(metrics)

    def close(self) -> None: ...

    def of(self, client_id: str) -> int:
        with self.lock:
            return len(self.metrics.get(client_id, ()))


@pytest.fixture(scope="module")
def pushes() -> Pushes:
    return Pushes()


@pytest.fixture(scope="module")
def subscribed(tmp_path_factory: pytest.TempPathFactory, pushes: Pushes) -> Iterator[KafkaServer]:
    """A broker that wants everything every 100 ms."""

    class Plugin:
        @hookimpl
        def register_client_telemetry_receivers(self) -> Any:
            return {"pushes": lambda config: pushes}

    plugins = PluginManager.load()
    plugins.register(Plugin(), "pushes")
    keys = {"metrics_listeners": "127.0.0.1:0", "kafkapy_client_telemetry_receivers": "pushes"}
    made = config(tmp_path_factory.mktemp("broker"), group_initial_rebalance_delay_ms="0", **keys)
    with KafkaServer(made, plugins=plugins) as server:
        client = Client(server.endpoints[0].host, server.endpoints[0].port)
        subscribe(client, "all", metrics="*", interval_ms="100")
        client.create_topic("t", 2)
        client.close()
        yield server


def address(server: KafkaServer) -> str:
    return f"{server.endpoints[0].host}:{server.endpoints[0].port}"


def shown(server: KafkaServer, client_id: str) -> set[str]:
    """The names of a client's metrics at metrics.listeners, without `kafka_client_`."""
    assert server.metrics_listener is not None
    host, port = server.metrics_listener.bound[0]
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=30) as response:
        families = list(text_string_to_metric_families(response.read().decode()))
    return {
        sample.name.removeprefix("kafka_client_")
        for family in families
        for sample in family.samples
        if sample.name.startswith("kafka_client_") and sample.labels["client_id"] == client_id
    }


def test_a_producer_and_a_consumer_push_the_standard_metrics(subscribed: KafkaServer, pushes: Pushes) -> None:
    producer = KafkaProducer(bootstrap_servers=address(subscribed), client_id="our-producer")
    consumer = KafkaConsumer(
        "t", bootstrap_servers=address(subscribed), client_id="our-consumer", group_id="g", auto_offset_reset="earliest"
    )
    for _ in range(10):
        producer.send("t", b"x").get(30)
    got: list[Any] = []

    def consumed() -> bool:
        got.extend(record for batch in consumer.poll(100).values() for record in batch)
        return len(got) >= 10

    wait_until(consumed, "the records are read")
    consumer.commit()

    def everything(kind: str) -> bool:
        if kind == "consumer":
            consumer.poll(0)
        return shown(subscribed, f"our-{kind}") >= REQUIRED[kind]

    for kind in REQUIRED:
        wait_until(lambda kind=kind: everything(kind), f"a {kind} shows {REQUIRED[kind]}")
    before = pushes.of("our-producer"), pushes.of("our-consumer")
    producer.close()
    consumer.close()
    assert pushes.of("our-producer") > before[0], "the last push"
    assert pushes.of("our-consumer") > before[1]


def test_asyncio_clients_push(subscribed: KafkaServer, pushes: Pushes) -> None:
    async def work() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=address(subscribed), client_id="aio-producer")
        consumer = AIOKafkaConsumer(
            "t", bootstrap_servers=address(subscribed), client_id="aio-consumer", auto_offset_reset="earliest"
        )
        async with producer, consumer:
            await producer.send_and_wait("t", b"x")
            await consumer.getone()
            await until(lambda: pushes.of("aio-producer") and pushes.of("aio-consumer"), "both push")

    asyncio.run(work())


def test_a_client_that_may_not_push_does_not(subscribed: KafkaServer, pushes: Pushes) -> None:
    quiet = KafkaProducer(bootstrap_servers=address(subscribed), client_id="quiet", enable_metrics_push=False)
    loud = KafkaProducer(bootstrap_servers=address(subscribed), client_id="loud")
    for producer in (quiet, loud):
        producer.send("t", b"x").get(30)
    wait_until(lambda: pushes.of("loud") >= 2, "the other one pushes")
    quiet.close()
    loud.close()
    assert pushes.of("quiet") == 0


def test_librdkafka_pushes(subscribed: KafkaServer, pushes: Pushes) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    producer = confluent.Producer({"bootstrap.servers": address(subscribed), "client.id": "rdkafka"})
    producer.produce("t", b"x")
    producer.flush(30)

    def arrived() -> bool:
        producer.poll(0.01)
        return shown(subscribed, "rdkafka") >= {
            "producer_connection_creation_total",
            "producer_node_request_latency_avg",
            "producer_record_queue_time_avg",
        }

    wait_until(arrived, "librdkafka's metrics arrive")


def test_names_and_attributes_are_those_of_kip_714() -> None:
    groups = {
        "producer-metrics": {"record-queue-time-avg": 1.5, "throttle-time-avg": 2, "w": float("nan"), "none": None},
        "producer-node-metrics.node-7": {"request-latency-avg": 3.0},
        "consumer-fetch-manager-metrics.a_b-c-5": {"records-lag": 4, "text": "x"},
        "consumer-coordinator-metrics": {"commit-total": 6},
    }
    prefix = "org.apache.kafka."
    assert list(numbers_of(groups)) == [
        Number(f"{prefix}producer.record.queue.time.avg", (), 1.5, False),
        Number(f"{prefix}producer.produce.throttle.time.avg", (), 2.0, False),
        Number(f"{prefix}producer.node.request.latency.avg", (("node_id", "7"),), 3.0, False),
        Number(f"{prefix}consumer.fetch.manager.records.lag", (("topic", "a_b-c"), ("partition", "5")), 4.0, False),
        Number(f"{prefix}consumer.coordinator.commit.total", (), 6.0, True),
    ]


def test_only_the_asked_metrics_are_chosen() -> None:
    numbers = [Number("a.b", (), 1.0, False), Number("a.c", (), 1.0, False), Number("b", (), 1.0, False)]
    assert list(chosen(numbers, ["*"])) == numbers
    assert list(chosen(numbers, ["a.b", "b"])) == [numbers[0], numbers[2]]
    assert list(chosen(numbers, [])) == []


@pytest.mark.parametrize("accepted", [[4, 3], [1], [2], [9, 3], [9], []])
def test_the_first_known_compression_is_taken(accepted: list[int]) -> None:
    numbers = [Number("a", (("k", "v"),), 1.5, False), Number("t", (), 3.0, True)]
    codec, payload = encode(numbers, {"group_id": "g"}, 5, 7, True, accepted)
    assert codec == next((each for each in accepted if each != 9), 0)
    data = otlp.MetricsData.FromString(bytes(decompress(codec, payload)))
    gauge, total = data.resource_metrics[0].scope_metrics[0].metrics
    assert (gauge.name, gauge.gauge.data_points[0].as_double) == ("a", 1.5)
    assert (total.sum.is_monotonic, total.sum.aggregation_temporality) == (True, 1)
    assert (total.sum.data_points[0].start_time_unix_nano, total.sum.data_points[0].time_unix_nano) == (5, 7)
