"""Clients push their metrics (KIP-714): what a broker shows of ours and of librdkafka's."""

from __future__ import annotations

import asyncio
import threading
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, cast
from uuid import UUID

import pytest
from broker.conftest import Client, config
from broker.telemetry_pushes import subscribe
from prometheus_client.parser import text_string_to_metric_families
from waiting import until, wait_until

from kafkapy import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafkapy.aio import AIOKafkaConsumer, AIOKafkaProducer
from kafkapy.aio.admin import AIOKafkaAdminClient
from kafkapy.broker.server import KafkaServer
from kafkapy.clients import telemetry
from kafkapy.clients.consumer.metrics import PollMetrics
from kafkapy.clients.telemetry import Number, TelemetryReporter, chosen, encode, numbers_of
from kafkapy.errors import IllegalStateError, UnsupportedVersionError
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
        "producer_produce_throttle_time_avg",
        "producer_produce_throttle_time_max",
    },
    "consumer": {
        "consumer_connection_creation_total",
        "consumer_connection_creation_rate",
        "consumer_node_request_latency_avg",
        "consumer_node_request_latency_max",
        "consumer_poll_idle_ratio_avg",
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
"""All metrics that KIP-714 requires of clients."""


class Pushes:
    """A receiver that keeps client ids and whether they are still there."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.metrics: dict[str, list[Any]] = {}
        self.instances: dict[str, UUID] = {}

    def receive(self, client: Any, metrics: Any) -> None:
        with self.lock:
            self.metrics.setdefault(client.client_id, []).append(metrics)
            self.instances[client.client_id] = client.instance_id

    def close(self) -> None: ...

    def of(self, client_id: str) -> int:
        with self.lock:
            return len(self.metrics.get(client_id, ()))

    def ids(self, client_ids: Iterable[str]) -> dict[str, UUID | None]:
        with self.lock:
            return {name: self.instances.get(name) for name in client_ids}

    def resource(self, client_id: str) -> dict[str, str]:
        """The attributes of the newest push."""
        with self.lock:
            found = self.metrics.get(client_id)
            if not found:
                return {}
            attributes = found[-1].resource_metrics[0].resource.attributes
            return {each.key: each.value.string_value for each in attributes}


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


def test_clients_know_their_instance_ids(subscribed: KafkaServer, pushes: Pushes) -> None:
    producer = KafkaProducer(bootstrap_servers=address(subscribed), client_id="id-producer")
    consumer = KafkaConsumer("t", bootstrap_servers=address(subscribed), client_id="id-consumer", group_id="ids")
    found = {"id-producer": producer.client_instance_id(30), "id-consumer": consumer.client_instance_id(30_000)}

    async def work() -> None:
        aio_producer = AIOKafkaProducer(bootstrap_servers=address(subscribed), client_id="id-aio-producer")
        aio_consumer = AIOKafkaConsumer("t", bootstrap_servers=address(subscribed), client_id="id-aio-consumer")
        async with aio_producer, aio_consumer:
            found["id-aio-producer"] = await aio_producer.client_instance_id(30_000)
            found["id-aio-consumer"] = await aio_consumer.client_instance_id(30_000)
            for name in ("id-aio-producer", "id-aio-consumer"):
                await until(lambda name=name: pushes.of(name), f"{name} pushes")

    asyncio.run(work())
    for name in ("id-producer", "id-consumer"):
        wait_until(lambda name=name: pushes.of(name), f"{name} pushes")
    assert found == pushes.ids(found)
    assert len(set(found.values())) == 4 and None not in found.values()
    assert producer.client_instance_id(0) == found["id-producer"], "known: no wait"
    for call in (producer.client_instance_id, consumer.client_instance_id):
        with pytest.raises(ValueError, match="The timeout cannot be negative"):
            call(-1)
    consumer.close()
    producer.close()
    for call in (producer.client_instance_id, consumer.client_instance_id):
        with pytest.raises(IllegalStateError):
            call(0)


def test_an_admin_client_asks_for_its_id_where_it_may(subscribed: KafkaServer) -> None:
    with KafkaAdminClient(bootstrap_servers=address(subscribed), enable_metrics_push=True) as admin:
        found = admin.client_instance_id(30_000)
        assert found.int and admin.client_instance_id(0) == found
        with pytest.raises(ValueError, match="The timeout cannot be negative"):
            admin.client_instance_id(-1)
    quiet = KafkaAdminClient(bootstrap_servers=address(subscribed))
    with quiet, pytest.raises(IllegalStateError, match="Telemetry is not enabled"):
        quiet.client_instance_id(0)

    async def work() -> None:
        async with AIOKafkaAdminClient(bootstrap_servers=address(subscribed), enable_metrics_push=True) as admin:
            assert (await admin.client_instance_id(30_000)).int

    asyncio.run(work())


def test_a_broker_without_telemetry_gives_no_id(tmp_path: Path) -> None:
    with KafkaServer(config(tmp_path)) as server:
        producer = KafkaProducer(bootstrap_servers=address(server))
        assert producer.client_instance_id(3600) is None, "known at once"
        producer.close()
        admin = KafkaAdminClient(bootstrap_servers=address(server), enable_metrics_push=True)
        with admin, pytest.raises(UnsupportedVersionError):
            admin.client_instance_id(30_000)


def test_an_id_that_is_not_there_in_time_is_none() -> None:
    class Silent:
        config: ClassVar = {"enable.metrics.push": True}
        closed = False

        async def send_any(self, request: Any) -> Any:
            await asyncio.Event().wait()

    async def work() -> None:
        reporter = TelemetryReporter(cast("Any", Silent()), dict, dict)
        reporter.start()
        assert await reporter.client_instance_id(0) is None
        assert await reporter.client_instance_id(0.01) is None
        await reporter.close()
        assert await reporter.client_instance_id(3600) is None, "it is closed"

    asyncio.run(work())


def test_without_the_extra_there_is_no_id(subscribed: KafkaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "can_encode", lambda: False)
    producer = KafkaProducer(bootstrap_servers=address(subscribed))
    with producer, pytest.raises(IllegalStateError, match="needs the extra `telemetry`"):
        producer.client_instance_id(0)


def test_a_member_pushes_its_group_and_its_id(subscribed: KafkaServer, pushes: Pushes) -> None:
    consumer = KafkaConsumer(
        "t", bootstrap_servers=address(subscribed), client_id="member", group_id="g2", group_instance_id="static-1"
    )

    def known() -> bool:
        consumer.poll(10)
        return pushes.resource("member").get("group_member_id", "").startswith("static-1-")

    wait_until(known, "the member id arrives")
    assert pushes.resource("member") | {"group_member_id": ""} == {
        "group_id": "g2",
        "group_instance_id": "static-1",
        "group_member_id": "",
    }
    consumer.close()


def test_the_idle_ratio_is_the_share_of_time_in_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("kafkapy.clients.consumer.metrics.time.monotonic", lambda: now)
    polls = PollMetrics()
    assert polls.read()["last-poll-seconds-ago"] == -1
    for inside, outside in ((3.0, 9.0), (1.0, 1.0), (3.0, 0.0)):
        polls.begin()
        now += inside
        polls.end()
        now += outside
    assert polls.read() == {
        "last-poll-seconds-ago": 3,
        "time-between-poll-avg": pytest.approx(14_000 / 3),
        "time-between-poll-max": 12_000,
        "poll-idle-ratio-avg": pytest.approx((1 + 0.1 + 0.75) / 3),
    }


def test_a_client_that_may_not_push_does_not(subscribed: KafkaServer, pushes: Pushes) -> None:
    quiet = KafkaProducer(bootstrap_servers=address(subscribed), client_id="quiet", enable_metrics_push=False)
    loud = KafkaProducer(bootstrap_servers=address(subscribed), client_id="loud")
    for producer in (quiet, loud):
        producer.send("t", b"x").get(30)
    wait_until(lambda: pushes.of("loud") >= 2, "the other one pushes")
    with pytest.raises(IllegalStateError, match="Telemetry is not enabled. Set config `enable.metrics.push` to `true`"):
        quiet.client_instance_id(0)
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
        "producer-metrics": {"record-queue-time-avg": 1.5, "w": float("nan"), "none": None},
        "producer-node-metrics.node-7": {"request-latency-avg": 3.0},
        "consumer-fetch-manager-metrics.a_b-c-5": {"records-lag": 4, "text": "x"},
        "consumer-coordinator-metrics": {"commit-total": 6},
    }
    prefix = "org.apache.kafka."
    assert list(numbers_of(groups)) == [
        Number(f"{prefix}producer.record.queue.time.avg", (), 1.5, False),
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
