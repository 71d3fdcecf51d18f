"""kafka-python's partitioners, for programs that name or extend them. A producer without one partitions in C.

They are asked with the record and the cluster's metadata: `partition(topic, key, serialized_key, value,
serialized_value, cluster)`. DefaultPartitioner is aiokafka's, too: a callable `(key, all_partitions, available)`.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from kafkapy._speedups.base.murmur2 import partition_for_key

__all__ = ["DefaultPartitioner", "Partitioner", "StickyPartitioner"]


class Partitioner(ABC):
    """Base of partitioners. The producer calls it on the thread of send(), or on the loop of an asyncio producer."""

    @abstractmethod
    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: Any,
    ) -> int:
        """The number of the record's partition. What it raises, send() raises.

        `cluster` has partitions_for_topic(topic) and available_partitions_for_topic(topic), sets of numbers.
        """


class DefaultPartitioner(Partitioner):
    """murmur2 of the key, as Java's producer; a random partition with a leader for a record without a key."""

    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: Any,
    ) -> int:
        """See Partitioner. ValueError for a topic that is not known."""
        partitions, available = _numbers(topic, cluster)
        return self(serialized_key, partitions, available)

    def __call__(self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:
        """One of `all_partitions`, which are in order; of `available` for None, where there are any."""
        if key is None:
            return random.choice(available or all_partitions)
        return all_partitions[partition_for_key(key, len(all_partitions))]


class StickyPartitioner(DefaultPartitioner):
    """As DefaultPartitioner, but records without a key stay with one partition until its batch is full (KIP-480)."""

    def __init__(self) -> None:
        self._chosen: dict[str, int] = {}

    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: Any,
    ) -> int:
        """See Partitioner. ValueError for a topic that is not known."""
        partitions, available = _numbers(topic, cluster)
        if serialized_key is not None:
            return self(serialized_key, partitions, available)
        chosen = self._chosen.get(topic)
        if chosen is None or chosen not in (available or partitions):
            chosen = self._chosen[topic] = self(None, partitions, available)
        return chosen

    def on_new_batch(self, topic: str, cluster: Any, prev_partition: int) -> None:
        """The producer is about to begin a batch of `prev_partition`: the next record goes elsewhere, where it can."""
        if self._chosen.get(topic) == prev_partition:
            partitions, available = _numbers(topic, cluster)
            others = [number for number in available or partitions if number != prev_partition]
            self._chosen[topic] = random.choice(others) if others else prev_partition


def _numbers(topic: str, cluster: Any) -> tuple[list[int], list[int]]:
    """All partitions, and those with a leader."""
    partitions = cluster.partitions_for_topic(topic)
    if not partitions:
        raise ValueError(f"Topic {topic} is not known")
    return sorted(partitions), sorted(cluster.available_partitions_for_topic(topic) or ())
