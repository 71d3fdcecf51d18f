"""The configuration of the transaction coordinator, from the broker's transaction keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig


class TransactionConfig(NamedTuple):
    """The broker's transaction keys.

    Immutable; the defaults are Kafka's. Times in ms.
    """

    max_timeout_ms: int = 900_000
    """transaction.max.timeout.ms"""
    expiration_ms: int = 604_800_000
    """transactional.id.expiration.ms"""
    abort_interval_ms: int = 10_000
    """transaction.abort.timed.out.transaction.cleanup.interval.ms"""
    expiry_interval_ms: int = 3_600_000
    """transaction.remove.expired.transaction.cleanup.interval.ms"""
    add_backoff_ms: int = 20
    """add.partitions.to.txn.retry.backoff.ms"""
    add_backoff_max_ms: int = 100
    """add.partitions.to.txn.retry.backoff.max.ms"""
    two_phase_commit: bool = False
    """transaction.two.phase.commit.enable"""
    request_timeout_ms: int = 30_000
    """request.timeout.ms: how long a marker, or a change of state, waits for replicas."""

    @classmethod
    def from_broker_config(cls, config: BrokerConfig) -> Self:
        """The configuration with the keys of a broker's configuration."""
        return cls(
            max_timeout_ms=config.get_int("transaction.max.timeout.ms"),
            expiration_ms=config.get_int("transactional.id.expiration.ms"),
            abort_interval_ms=config.get_int("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            expiry_interval_ms=config.get_int("transaction.remove.expired.transaction.cleanup.interval.ms"),
            add_backoff_ms=config.get_int("add.partitions.to.txn.retry.backoff.ms"),
            add_backoff_max_ms=config.get_int("add.partitions.to.txn.retry.backoff.max.ms"),
            two_phase_commit=config.get_bool("transaction.two.phase.commit.enable"),
            request_timeout_ms=config.get_int("request.timeout.ms"),
        )
