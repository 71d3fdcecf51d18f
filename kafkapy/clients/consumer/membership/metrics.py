"""A consumer's group metrics, under Kafka's names.

Source: GroupCoordinatorMetrics of AbstractCoordinator, ConsumerCoordinatorMetrics (4.1).
"""

from __future__ import annotations

import time

from kafkapy.clients.metrics import Meter
from kafkapy.protocol.registry import ApiKeys

__all__ = ["CoordinatorMetrics"]

GROUP = "consumer-coordinator-metrics"
HOUR_S = 3600.0


class CoordinatorMetrics:
    """The metrics of one consumer since its creation. On the loop's thread.

    Rates are per second, times in ms.
    """

    def __init__(self) -> None:
        heartbeats = Meter()
        self._latencies_ms = {
            ApiKeys.HEARTBEAT: heartbeats,
            ApiKeys.CONSUMER_GROUP_HEARTBEAT: heartbeats,
            ApiKeys.SHARE_GROUP_HEARTBEAT: heartbeats,
            ApiKeys.JOIN_GROUP: Meter(),
            ApiKeys.SYNC_GROUP: Meter(),
            ApiKeys.OFFSET_COMMIT: Meter(),
        }
        self._rebalances_ms = Meter()
        self._failed_rebalances = 0
        self._rebalance_began: float | None = None
        self._rebalance_ended: float | None = None
        self._heartbeat_came: float | None = None

    def answered(self, api_key: int, latency_s: float) -> None:
        """Counts a response of the coordinator."""
        now = time.monotonic()
        meter = self._latencies_ms.get(ApiKeys(api_key))
        if meter is not None:
            meter.record(latency_s * 1000, now)
        if meter is self._latencies_ms[ApiKeys.HEARTBEAT]:
            self._heartbeat_came = now

    def rebalance_begins(self) -> None:
        """Starts a rebalance; a retry after a failure continues it."""
        if self._rebalance_began is None:
            self._rebalance_began = time.monotonic()

    def rebalance_ends(self) -> None:
        """Ends a rebalance: the member has its assignment."""
        now = time.monotonic()
        if self._rebalance_began is not None:
            self._rebalances_ms.record((now - self._rebalance_began) * 1000, now)
        self._rebalance_began = None
        self._rebalance_ended = now

    def rebalance_fails(self) -> None:
        """Counts a failed rebalance."""
        self._failed_rebalances += 1

    def read(self, assigned_partitions: int) -> dict[str, dict[str, float]]:
        """Values by group and name.

        Values without a measurement are NaN, ages of events that never happened are -1.
        """
        now = time.monotonic()
        values: dict[str, float] = {}
        for name, key in (
            ("heartbeat", ApiKeys.HEARTBEAT),
            ("join", ApiKeys.JOIN_GROUP),
            ("sync", ApiKeys.SYNC_GROUP),
            ("commit", ApiKeys.OFFSET_COMMIT),
        ):
            meter = self._latencies_ms[key]
            values[f"{name}-rate"] = meter.count_rate(now)
            values[f"{name}-total"] = meter.count
            longest = {"heartbeat": "heartbeat-response-time", "commit": "commit-latency"}.get(name, f"{name}-time")
            values[f"{longest}-max"] = meter.maximum(now)
            if name != "heartbeat":
                values[f"{longest}-avg"] = meter.average(now)
        rebalances = self._rebalances_ms
        values |= {
            "assigned-partitions": assigned_partitions,
            "rebalance-total": rebalances.count,
            "rebalance-rate-per-hour": rebalances.count_rate(now) * HOUR_S,
            "rebalance-latency-avg": rebalances.average(now),
            "rebalance-latency-max": rebalances.maximum(now),
            "rebalance-latency-total": rebalances.total,
            "failed-rebalance-total": self._failed_rebalances,
            "last-rebalance-seconds-ago": -1 if self._rebalance_ended is None else int(now - self._rebalance_ended),
            "last-heartbeat-seconds-ago": -1 if self._heartbeat_came is None else int(now - self._heartbeat_came),
        }
        return {GROUP: values}
