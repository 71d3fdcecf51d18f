"""Limits on changes of thread counts of a running broker.

A change at most halves or doubles a count.

A typing error must not start a million threads. Source: kafka.server.DynamicThreadPool.validateReconfiguration.
"""

from __future__ import annotations

from typing import Final

from kafkapy.config.broker import BrokerConfig
from kafkapy.errors import ErrorCode, error_for

NETWORK: Final = "num.network.threads"

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
    """INVALID_REQUEST for a count below 1, below half, or above double the current one."""
    for key in THREAD_COUNTS:
        _check(key, old.get_int(key), new.get_int(key))
    for endpoint in new.listeners:
        listener = endpoint.listener_name
        _check(NETWORK, int(old.for_listener(listener, NETWORK)), int(new.for_listener(listener, NETWORK)))


def _check(key: str, current: int, wanted: int) -> None:
    if wanted == current:
        return
    if wanted < 1:
        limit = "value should be at least 1"
    elif wanted < current // 2:
        limit = f"value should be at least half the current value {current}"
    elif wanted > 2 * current:
        limit = f"value should not be greater than double the current value {current}"
    else:
        return
    text = f"Dynamic thread count update validation failed for {key}={wanted}, {limit}"
    raise error_for(ErrorCode.INVALID_REQUEST, text)
