"""Assignors of the classic protocol, and their lookup by partition.assignment.strategy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafkapy.clients.consumer.membership.assignors.api import ConsumerPartitionAssignor, RebalanceProtocol
from kafkapy.clients.consumer.membership.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafkapy.clients.consumer.membership.assignors.kafka_python import KafkaPythonAssignor, is_of_kafka_python
from kafkapy.clients.consumer.membership.assignors.range import RangeAssignor
from kafkapy.clients.consumer.membership.assignors.roundrobin import RoundRobinAssignor
from kafkapy.clients.consumer.membership.assignors.sticky import StickyAssignor
from kafkapy.errors import ConfigError

__all__ = ["BUILTIN", "create_assignors", "rebalance_protocol"]

KEY = "partition.assignment.strategy"

BUILTIN: Mapping[str, Callable[[], ConsumerPartitionAssignor]] = {
    assignor.name: assignor
    for assignor in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}

ALIASES: Mapping[str, str] = {
    f"org.apache.kafka.clients.consumer.{assignor.__name__}": assignor.name
    for assignor in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}
"""The assignors for Kafka's class names."""


def create_assignors(configured: str | Iterable[Any]) -> list[ConsumerPartitionAssignor]:
    """The configured assignors, the preferred one first. ConfigError.

    Each is a name (built in, Kafka's class name, or of a plugin), an assignor, its class, or an assignor of
    kafka-python. ConfigError for none, two with the same name, an unknown name, or an object that is not an assignor.
    """
    given = [each.strip() for each in configured.split(",")] if isinstance(configured, str) else list(configured)
    assignors = [_create(each) for each in given]
    names = [assignor.name for assignor in assignors]
    if not names or len(set(names)) < len(names):
        raise ConfigError(KEY, ",".join(names), "must name one assignor or several different ones")
    return assignors


def rebalance_protocol(assignors: Iterable[ConsumerPartitionAssignor]) -> RebalanceProtocol:
    """The best rebalance protocol that all assignors support.

    ConfigError when they have none in common. Source: the constructor of ConsumerCoordinator.
    """
    found = list(assignors)
    common = frozenset(RebalanceProtocol).intersection(*(frozenset(each.supported_protocols()) for each in found))
    if not common:
        names = ",".join(each.name for each in found)
        raise ConfigError(KEY, names, "must be assignors that have a rebalance protocol in common")
    return max(common)


def _create(given: Any) -> ConsumerPartitionAssignor:
    if isinstance(given, str):
        return _by_name(given)
    if is_of_kafka_python(given):
        return KafkaPythonAssignor(given() if isinstance(given, type) else given)
    assignor: ConsumerPartitionAssignor = given() if isinstance(given, type) else given
    if not isinstance(getattr(assignor, "name", None), str) or not callable(getattr(assignor, "assign", None)):
        raise ConfigError(KEY, given, "must be an assignor, the class of one, or a name")
    return assignor


def _by_name(configured: str) -> ConsumerPartitionAssignor:
    name = ALIASES.get(configured, configured)
    if name in BUILTIN:
        return BUILTIN[name]()
    # Loading plugins takes time; it happens only if the configuration names one.
    from kafkapy.plugins import PluginManager

    plugins = PluginManager.load(builtins=())
    known = {*BUILTIN, *plugins.partition_assignors}
    if name not in known:
        raise ConfigError(KEY, configured, f"must be one of {', '.join(sorted(known))}")
    return plugins.create_partition_assignor(KEY, name, configured)
