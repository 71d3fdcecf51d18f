"""The configuration of one share group, as the leaders of its share-partitions need it."""

from __future__ import annotations

from typing import NamedTuple

from kafkapy.types import IsolationLevel


class ShareGroupConfigs(NamedTuple):
    """The effective keys of a share group. Immutable; times in ms.

    Source: ShareGroupConfigProvider.
    """

    record_lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2_000
    """The largest number of records in flight in one partition."""
    auto_offset_reset: str = "latest"
    """latest, earliest, or by_duration: with an ISO 8601 duration (see kafkapy.config.durations)."""
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    renew_acknowledge: bool = True
    """Whether members may renew the lock of a record."""
    dead_letter_topic: str = ""
    """The topic for dead letters; empty for none."""
    dead_letter_copy: bool = False
    """Whether a dead letter has the key and the value of its record."""
