"""PushTelemetry as a client and Prometheus see it."""

from __future__ import annotations

import random
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker.telemetry_pushes import CUMULATIVE, get, otlp, push, subscribe
from prometheus_client.parser import text_string_to_metric_families
from waiting import wait_until

from kafkapy.broker.server import KafkaServer
from kafkapy.errors import ErrorCode
from kafkapy.plugins import PluginManager, hookimpl
from kafkapy.records.compression import compress
from kafkapy.types import CompressionType

pytest.importorskip("opentelemetry.proto", reason="the extra telemetry is not installed")


class Receiver:
    """Keeps what it gets; refuses metrics named `bad`."""

    def __init__(self) -> None:
        self.got: list[tuple[str, list[str]]] = []
        self.closed = False

    def receive(self, client: Any, metrics: Any) -> None:
        names = [metric.name for metric in metrics.resource_metrics[0].scope_metrics[0].metrics]
        if "bad" in names:
            raise RuntimeError("no such metric")
        self.got.append((client.client_id, names))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def pushing(tmp_path: Path, make_config: Any, connect: Any, receiver: Receiver) -> Iterator[tuple[Any, str]]:
    """A client with a subscription to everything, and the address of the metrics."""

    class Plugin:
        @hookimpl
        def register_client_telemetry_receivers(self) -> Any:
            return {"mine": lambda config: receiver}

    plugins = PluginManager.load()
    plugins.register(Plugin(), "mine")
    keys = {"metrics_listeners": "127.0.0.1:0", "kafkapy_client_telemetry_receivers": "mine"}
    config = make_config(tmp_path, telemetry_max_bytes="5000", **keys)
    with KafkaServer(config, plugins=plugins) as server:
        assert server.metrics_listener is not None
        host, port = server.metrics_listener.bound[0]
        client = connect(server)
        subscribe(client, "all", metrics="*", interval_ms="100")
        wait_until(lambda: get(client).requested_metrics == ["*"], "the subscription is known")
        yield client, f"http://{host}:{port}/metrics"
    assert receiver.closed


def pushed(client: Any, metrics: bytes, **others: Any) -> int:
    """The error code of a new client's first push."""
    found = get(client)
    return push(client, found.client_instance_id, found.subscription_id, metrics, **others)


def counted(address: str) -> dict[str, float]:
    """The broker's own numbers of client telemetry."""
    with urllib.request.urlopen(address, timeout=30) as response:
        families = list(text_string_to_metric_families(response.read().decode()))
    return {
        sample.name.removeprefix("kafka_server_client_metrics_").removeprefix("kafkapy_clienttelemetry_"): sample.value
        for family in families
        for sample in family.samples
        if sample.name.startswith(("kafka_server_client_metrics_", "kafkapy_clienttelemetry_"))
    }


def scraped(address: str, accept: str = "") -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    request = urllib.request.Request(address, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=30) as response:
        text = response.read().decode()
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("kafka_client_"):
                found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


@pytest.mark.parametrize("codec", list(CompressionType), ids=lambda codec: codec.config_name)
def test_pushed_metrics_reach_prometheus_and_the_receiver_in_every_compression(
    pushing: Any, receiver: Receiver, codec: CompressionType
) -> None:
    client, address = pushing
    metrics = otlp(
        {"org.apache.kafka.producer.record.queue.time.avg": 2.5},
        {"org.apache.kafka.producer.connection.creation.total": 3},
        attributes={"node_id": "1"},
        resource={"group_id": "g", "secret": "s"},
    )
    assert pushed(client, bytes(compress(codec, metrics)), compression=int(codec)) == ErrorCode.NONE
    found = scraped(address)
    (labels,) = found["kafka_client_producer_record_queue_time_avg"]
    assert dict(labels) | {"client_instance_id": ""} == {
        "client_id": "test",
        "client_instance_id": "",
        "client_software_name": "",
        "client_software_version": "",
        "group_id": "g",
        "node_id": "1",
    }
    assert found["kafka_client_producer_record_queue_time_avg"][labels] == 2.5
    assert list(found["kafka_client_producer_connection_creation_total"].values()) == [3]
    assert receiver.got[-1][0] == "test"


def test_deltas_are_added_up_and_totals_replace(pushing: Any) -> None:
    client, address = pushing
    found = get(client)
    for total, temporality in ((5, CUMULATIVE), (7, CUMULATIVE), (2, 1)):
        metrics = otlp({}, {"a.total": total}, temporality=temporality)
        wait_until(
            lambda metrics=metrics: (
                push(client, found.client_instance_id, found.subscription_id, metrics)
                != ErrorCode.THROTTLING_QUOTA_EXCEEDED
            ),
            "the push is due",
        )
    assert list(scraped(address)["kafka_client_a_total"].values()) == [9]


def test_openmetrics_shows_the_same(pushing: Any) -> None:
    client, address = pushing
    assert pushed(client, otlp({"x": 1})) == ErrorCode.NONE
    request = urllib.request.Request(address, headers={"Accept": "application/openmetrics-text;version=1.0.0"})
    with urllib.request.urlopen(request, timeout=30) as response:
        text = response.read().decode()
    assert text.endswith("# EOF\n") and text.count("# EOF") == 1
    assert "kafka_client_x{" in text


def test_a_receiver_that_fails_makes_the_push_invalid(pushing: Any) -> None:
    client, _ = pushing
    assert pushed(client, otlp({"bad": 1})) == ErrorCode.INVALID_RECORD


def test_hostile_payloads_are_refused_and_the_broker_goes_on(pushing: Any) -> None:
    client, address = pushing
    bomb = bytes(compress(CompressionType.ZSTD, bytes(50_000_000)))
    assert len(bomb) < 5000
    labels = {"le\n": "a\nb", "__name__": "up", "0": "x"}
    good = otlp({"x": 1.0, "nan": float("nan"), "1 0\n{}": 5.0}, attributes=labels)
    assert pushed(client, bomb, compression=4) == ErrorCode.INVALID_RECORD
    assert pushed(client, good + b"\xff", compression=0) == ErrorCode.INVALID_RECORD
    assert pushed(client, good, compression=4) == ErrorCode.INVALID_RECORD
    assert pushed(client, bytes(5001)) == ErrorCode.TELEMETRY_TOO_LARGE
    assert pushed(client, good, compression=5) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    for end in range(len(good)):
        assert pushed(client, good[:end]) in (ErrorCode.NONE, ErrorCode.INVALID_RECORD)
    chance = random.Random(5)
    for _ in range(100):
        flipped = bytearray(good)
        flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
        assert pushed(client, bytes(flipped)) in (ErrorCode.NONE, ErrorCode.INVALID_RECORD)
    assert pushed(client, good) == ErrorCode.NONE
    found = scraped(address)
    assert "kafka_client_x" in found and "kafka_client_1_0___" in found
    assert all("up" not in labels for labels in found["kafka_client_x"])


def test_the_broker_counts_clients_pushes_and_series(pushing: Any, receiver: Receiver) -> None:
    client, address = pushing
    before = counted(address)
    assert pushed(client, otlp({"a": 1, "a.b": 2})) == ErrorCode.NONE
    assert pushed(client, otlp({"bad": 1})) == ErrorCode.INVALID_RECORD
    found = get(client)
    assert push(client, found.client_instance_id, found.subscription_id + 1) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    clash = otlp({"c_total": 1}, {"c": 1})
    assert push(client, found.client_instance_id, found.subscription_id, clash, terminating=True) == ErrorCode.NONE
    after = counted(address)
    assert after.pop("plugin_export_timems_total") > before.pop("plugin_export_timems_total")
    assert {name: after[name] - before[name] for name in after} == {
        "instance_count": 3,
        "unknown_subscription_request_total": 1,
        "throttle_total": 0,
        "plugin_export_total": 2,
        "plugin_error_total": 1,
        "series": 4,
        "pointsdropped_total": 1,
    }

    def throttled() -> bool:
        return bool(get(client, found.client_instance_id).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED)

    wait_until(throttled, "one of two requests is early")
    assert counted(address)["throttle_total"] == before["throttle_total"] + 1
