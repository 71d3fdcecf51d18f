"""Partitioners: the choice of a record's partition when the sender gives none.

The built-in one is in C (`_speedups/clients/producer/partition_queue`): murmur2 of the key; records without a key stay
with one partition until a batch is full. This module has the names for partitioner.class, and the function that calls a
user's partitioner:
- an object with ``partition(topic, key, value, partitions)``, from the hook register_partitioners: serialized key and
  value, and the number of partitions;
- kafka-python's: an object with ``partition(topic, key, serialized_key, value, serialized_value, cluster)`` and
  optionally ``on_new_batch``; or a callable ``(serialized_key, all_partitions, available_partitions)``.
"""

from __future__ import annotations

import inspect
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from kafkapy._speedups.base.murmur2 import partition_for_key
from kafkapy._speedups.clients.producer.record_accumulator import RecordAccumulator
from kafkapy.clients.cluster import ClusterMetadata
from kafkapy.clients.cluster_view import ClusterView
from kafkapy.config.producer import ProducerConfig
from kafkapy.errors import ConfigError
from kafkapy.plugins import PluginManager, hookimpl

__all__ = ["BuiltInPartitioner", "Choose", "RoundRobinPartitioner", "partitioner_for"]

Choose = Callable[[str, Any, Any, Any, Any], int]
"""(topic, key, serialized key, value, serialized value) -> partition."""

ALIASES: Final[Mapping[str, str]] = {
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round_robin",
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": "uniform_sticky",
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": "default",
}
"""The partitioners for Kafka's class names."""

_OBJECT_PARAMETERS: Final = 4
_CALLABLE_PARAMETERS: Final = 3


class BuiltInPartitioner:
    """Stands for the partitioner in C. Immutable.

    `ignore_keys` is partitioner.ignore.keys.
    """

    def __init__(self, ignore_keys: bool = False) -> None:
        self.ignore_keys = ignore_keys
        self._next = itertools.count()

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        """The partition of a key, as in C.

        Without a key, each partition in turn: there are no batches here to stay with.
        """
        if key is None or self.ignore_keys:
            return next(self._next) % partitions
        return partition_for_key(key, partitions)


class RoundRobinPartitioner:
    """Sends the records of a topic to its partitions in turn.

    It ignores keys. Any thread.
    """

    def __init__(self) -> None:
        self._next: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        """The next partition of the topic."""
        return next(self._next[topic]) % partitions


@hookimpl
def register_partitioners() -> Mapping[str, Callable[..., Any]]:
    """kafkapy's partitioners by name."""
    return {
        "default": lambda config: BuiltInPartitioner(),
        "uniform_sticky": lambda config: BuiltInPartitioner(ignore_keys=True),
        "round_robin": lambda config: RoundRobinPartitioner(),
    }


def partitioner_for(config: ProducerConfig) -> Any:
    """The partitioner of partitioner.class. ConfigError.

    An object, a callable, or a BuiltInPartitioner.
    """
    given = config["partitioner.class"]
    if given is None:
        return BuiltInPartitioner(config["partitioner.ignore.keys"])
    if isinstance(given, str):
        table = PluginManager.load(builtins=(__name__,)).partitioners
        factory = table.get(ALIASES.get(given, given))
        if factory is None:
            raise ConfigError("partitioner.class", given, f"must be one of {', '.join(sorted(table))}")
        return factory(config)
    if inspect.isclass(given):
        given = given()
    if not callable(given) and not callable(getattr(given, "partition", None)):
        raise ConfigError("partitioner.class", given, "must be a name, a callable, or an object with partition()")
    return given


def bound(partitioner: Any, accumulator: RecordAccumulator, cluster: ClusterMetadata) -> Choose:
    """One function for a partitioner of any of these kinds."""
    method = getattr(partitioner, "partition", None)
    if method is None:
        return _of_callable(partitioner, cluster)
    count = _parameters(method)
    if count == _OBJECT_PARAMETERS:

        def choose(topic: str, key: Any, raw_key: Any, value: Any, raw_value: Any) -> int:
            chosen: int = method(topic, raw_key, raw_value, len(accumulator.topics[topic].partitions))
            return chosen

        return choose
    if count == _CALLABLE_PARAMETERS:

        def choose_old(topic: str, key: Any, raw_key: Any, value: Any, raw_value: Any) -> int:
            chosen: int = method(topic, raw_key, cluster)
            return chosen

        return choose_old
    return _of_kafka_python(partitioner, accumulator, cluster)


def _of_callable(partitioner: Any, cluster: ClusterMetadata) -> Choose:
    def choose(topic: str, key: Any, raw_key: Any, value: Any, raw_value: Any) -> int:
        chosen: int = partitioner(
            raw_key,
            sorted(cluster.partitions_for_topic(topic) or ()),
            sorted(cluster.available_partitions_for_topic(topic) or ()),
        )
        return chosen

    return choose


def _of_kafka_python(partitioner: Any, accumulator: RecordAccumulator, cluster: ClusterMetadata) -> Choose:
    method = partitioner.partition
    on_new_batch = getattr(partitioner, "on_new_batch", None)
    view = ClusterView(cluster)

    def choose(topic: str, key: Any, raw_key: Any, value: Any, raw_value: Any) -> int:
        chosen: int = method(topic, key, raw_key, value, raw_value, view)
        if on_new_batch is not None and raw_key is None:
            queue = accumulator.queue(topic, chosen)
            if not queue.batches or queue.batches[-1].full:
                # The record would begin a batch: the partitioner may choose another partition for it and later records.
                on_new_batch(topic, view, chosen)
                chosen = method(topic, key, raw_key, value, raw_value, view)
        return chosen

    return choose


def _parameters(method: Any) -> int:
    try:
        return len(inspect.signature(method).parameters)
    except (TypeError, ValueError):
        return _OBJECT_PARAMETERS
