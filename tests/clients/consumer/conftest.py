"""Consumers of brokers that do as they are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from clients.consumer.scripted_cluster import ScriptedCluster

from kafkapy import KafkaConsumer
from kafkapy.types import TopicPartition


@pytest.fixture
def consume() -> Iterator[Callable[..., KafkaConsumer]]:
    """Makes consumers that are closed at the end."""
    made: list[KafkaConsumer] = []

    def make(cluster: ScriptedCluster, *partitions: TopicPartition, **configs: Any) -> KafkaConsumer:
        defaults: dict[str, Any] = {
            "bootstrap_servers": cluster.bootstrap,
            "auto_offset_reset": "earliest",
            "fetch_max_wait_ms": 100,
            "retry_backoff_ms": 10,
            "reconnect_backoff_ms": 10,
        }
        consumer = KafkaConsumer(**(defaults | configs))
        made.append(consumer)
        if partitions:
            consumer.assign(partitions)
        return consumer

    yield make
    for consumer in made:
        consumer.close(timeout_ms=1000)
