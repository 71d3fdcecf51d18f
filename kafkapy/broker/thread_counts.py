"""Numbers of threads that a running broker is told to change: at most by half, or to double, at a time.

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
"""Those that may change while the broker runs, but for the cleaner's, which may also be none."""


def check_thread_counts(old: BrokerConfig, new: BrokerConfig) -> None:
    """ConfigError for a number that is less than half or more than double of what it is."""
    for key in THREAD_COUNTS:
        current, wanted = old.get_int(key), new.get_int(key)
        if wanted == current:
            continue
        if wanted < current // 2:
            raise ConfigError(key, wanted, f"value should be at least half the current value {current}")
        if wanted > 2 * current:
            raise ConfigError(key, wanted, f"value should not be greater than double the current value {current}")
