"""Limits on changes of thread counts of a running broker.

A change at most halves or doubles a count.

A typing error must not start a million threads. Source: kafka.server.DynamicThreadPool.validateReconfiguration.
"""

from __future__ import annotations

from typing import Final

from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import ConfigError

THREAD_COUNTS: Final = (
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
"""Thread counts that may change while the broker runs, without log.cleaner.threads (kafkapy/log/cleaner.py)."""


def check_thread_counts(old: BrokerConfig, new: BrokerConfig) -> None:
    """ConfigError for a count below 1, below half, or above double the current one."""
    for key in THREAD_COUNTS:
        current, wanted = old.get_int(key), new.get_int(key)
        if wanted == current:
            continue
        if wanted < 1:
            raise ConfigError(key, wanted, "value should be at least 1")
        if wanted < current // 2:
            raise ConfigError(key, wanted, f"value should be at least half the current value {current}")
        if wanted > 2 * current:
            raise ConfigError(key, wanted, f"value should not be greater than double the current value {current}")
