"""The configuration of the share coordinator, from the broker's share.coordinator keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig


class ShareCoordinatorConfig(NamedTuple):
    """The broker's share.coordinator keys.

    Immutable; the defaults are Kafka's. Times in ms.
    """

    updates_per_snapshot: int = 500
    """share.coordinator.snapshot.update.records.per.snapshot"""
    write_timeout_ms: int = 5_000
    """share.coordinator.write.timeout.ms"""
    prune_interval_ms: int = 300_000
    """share.coordinator.state.topic.prune.interval.ms"""
    cold_interval_ms: int = 300_000
    """share.coordinator.cold.partition.snapshot.interval.ms"""
    compression: int = 0
    """share.coordinator.state.topic.compression.codec"""
    linger_ms: int = -1
    """share.coordinator.append.linger.ms; -1 and 0: to the end of the loop's turn."""

    @classmethod
    def from_broker_config(cls, config: BrokerConfig) -> Self:
        """The configuration with the keys of a broker's configuration."""
        return cls(
            updates_per_snapshot=config.get_int("share.coordinator.snapshot.update.records.per.snapshot"),
            write_timeout_ms=config.get_int("share.coordinator.write.timeout.ms"),
            prune_interval_ms=config.get_int("share.coordinator.state.topic.prune.interval.ms"),
            cold_interval_ms=config.get_int("share.coordinator.cold.partition.snapshot.interval.ms"),
            compression=config.get_int("share.coordinator.state.topic.compression.codec"),
            linger_ms=config.get_int("share.coordinator.append.linger.ms"),
        )
