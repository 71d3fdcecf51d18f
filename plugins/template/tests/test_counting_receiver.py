"""The receiver of clients' metrics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kafkapy_template.telemetry import CountingReceiver

from kafkapy.broker.client_telemetry.instances import Client
from kafkapy.config.broker import BrokerConfig


def push(*metrics: str) -> Any:
    scope = SimpleNamespace(metrics=list(metrics))
    return SimpleNamespace(resource_metrics=[SimpleNamespace(scope_metrics=[scope])])


def test_metrics_are_counted_by_client() -> None:
    receiver = CountingReceiver(BrokerConfig({}))
    client = Client(UUID(int=5), "orders", "librdkafka", "2.5.0", "127.0.0.1", 50_000)
    receiver.receive(client, push("a", "b"))
    receiver.receive(client, push("c"))
    assert receiver.metrics == {"orders": 3}
    receiver.close()
