"""kafka-python's partitioners, for programs that name or extend them.

A producer without a partitioner partitions in C. The producer calls `partition(topic, key, serialized_key, value,
serialized_value, cluster)`. DefaultPartitioner is also aiokafka's: a callable `(key, all_partitions, available)`.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from kafkapy._speedups.base.murmur2 import partition_for_key

__all__ = ["DefaultPartitioner", "Partitioner", "StickyPartitioner"]


class Partitioner(ABC):
    """Base of partitioners.

    The producer calls it on the thread of send(), or on the loop of an asyncio producer.
    """

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
        """The partition number of a record. send() raises its errors.

        `cluster` has partitions_for_topic(topic) and available_partitions_for_topic(topic), sets of numbers.
        """


class DefaultPartitioner(Partitioner):
    """murmur2 of the key, as in Java's producer.

    A record without a key goes to a random partition with a leader.
    """

    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: Any,
    ) -> int:
        """See Partitioner. ValueError for an unknown topic."""
        partitions, available = _numbers(topic, cluster)
        return self(serialized_key, partitions, available)

    def __call__(self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:
        """The partition of a key, out of `all_partitions` in order.

        None: a random one of `available`, or of all partitions when none is available.
        """
        if key is None:
            return random.choice(available or all_partitions)
        return all_partitions[partition_for_key(key, len(all_partitions))]


class StickyPartitioner(DefaultPartitioner):
    """DefaultPartitioner, with sticky partitions for records without a key (KIP-480).

    Such records stay with one partition until its batch is full.
    """

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
        """See Partitioner. ValueError for an unknown topic."""
        partitions, available = _numbers(topic, cluster)
        if serialized_key is not None:
            return self(serialized_key, partitions, available)
        chosen = self._chosen.get(topic)
        if chosen is None or chosen not in (available or partitions):
            chosen = self._chosen[topic] = self(None, partitions, available)
        return chosen

    def on_new_batch(self, topic: str, cluster: Any, prev_partition: int) -> None:
        """Chooses another partition, if possible, before a new batch of `prev_partition`."""
        if self._chosen.get(topic) == prev_partition:
            partitions, available = _numbers(topic, cluster)
            others = [number for number in available or partitions if number != prev_partition]
            self._chosen[topic] = random.choice(others) if others else prev_partition


def _numbers(topic: str, cluster: Any) -> tuple[list[int], list[int]]:
    """The numbers of all partitions, and of those with a leader."""
    partitions = cluster.partitions_for_topic(topic)
    if not partitions:
        raise ValueError(f"topic {topic} is unknown")
    return sorted(partitions), sorted(cluster.available_partitions_for_topic(topic) or ())
