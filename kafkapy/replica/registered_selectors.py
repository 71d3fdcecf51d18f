"""Registers the built-in replica selectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kafkapy.plugins import hookimpl
from kafkapy.replica.selectors import LeaderSelector, RackAwareReplicaSelector

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.replica.selectors import ReplicaSelector

__all__ = ["register_replica_selectors"]


@hookimpl
def register_replica_selectors() -> Mapping[str, Callable[[BrokerConfig], ReplicaSelector]]:
    """The built-in selectors."""
    return {"leader": lambda config: LeaderSelector(), "rack_aware": lambda config: RackAwareReplicaSelector()}
