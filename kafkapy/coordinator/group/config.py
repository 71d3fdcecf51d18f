"""What the group coordinator may be told: the group and offset keys of the broker's configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Immutable; the defaults are Kafka's. Times in ms. Keys of other protocols' groups are read by their own code."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 5 * 60 * 1000
    """After that a member that never got an answer to its first JoinGroup is given up; not configurable."""
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    offsets_retention_check_interval_ms: int = 600_000
    offset_commit_timeout_ms: int = 5_000

    @classmethod
    def from_broker_config(cls, config: BrokerConfig) -> Self:
        """The keys as they stand in a broker's configuration."""
        return cls(
            min_session_timeout_ms=config.get_int("group.min.session.timeout.ms"),
            max_session_timeout_ms=config.get_int("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
            max_size=config.get_int("group.max.size"),
            offset_metadata_max_bytes=config.get_int("offset.metadata.max.bytes"),
            offsets_retention_ms=config.get_int("offsets.retention.minutes") * 60_000,
            offsets_retention_check_interval_ms=config.get_int("offsets.retention.check.interval.ms"),
            offset_commit_timeout_ms=config.get_int("offsets.commit.timeout.ms"),
        )
