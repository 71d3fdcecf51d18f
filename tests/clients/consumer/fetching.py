"""What tests of fetching share: a partition, and to wait for what comes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kafkapy import KafkaConsumer
from kafkapy.types import TopicPartition

T0 = TopicPartition("t", 0)
WAIT_MS = 20_000


def read(consumer: KafkaConsumer, count: int) -> list[tuple[str, int, int]]:
    """(topic, partition, offset) of so many records."""
    got: list[tuple[str, int, int]] = []
    deadline = time.monotonic() + WAIT_MS / 1000
    while len(got) < count and time.monotonic() < deadline:
        got += [(r.topic, r.partition, r.offset) for r in consumer.poll_batch(count - len(got), 200)]
    return got


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT_MS / 1000
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)
    return found
