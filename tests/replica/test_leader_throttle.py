"""The keys of the leader's replication throttle reach the logs and the quota."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkapy.controller.admin_requests import NewTopic
from kafkapy.metadata.znodes import CONFIG_TOPICS

REPLICAS = "leader.replication.throttled.replicas"
RATE = "leader.replication.throttled.rate"


def test_the_topics_key_names_the_throttled_partitions(with_broker: Callable[..., None]) -> None:
    async def test(broker: Any) -> None:
        def throttled() -> list[bool]:
            return [broker.table.log("t", number).leader_throttled for number in range(3)]

        created = await broker.topic_admin.create_topics([NewTopic("t", 3, 1, configs={REPLICAS: "0:0,1:7"})])
        assert not isinstance(created["t"], Exception), created
        assert throttled() == [True, False, False]
        for listed, expected in (("2:0, 1:0", [False, True, True]), ("*", [True] * 3), ("", [False] * 3)):
            await broker.configs.change(CONFIG_TOPICS, "t", lambda _, listed=listed: {REPLICAS: listed})
            assert throttled() == expected

    with_broker(test)


def test_the_brokers_keys_make_the_quota(with_broker: Callable[..., None]) -> None:
    async def test(broker: Any) -> None:
        replication = broker.replicas.replication
        assert (replication.leader_rate, replication.lag_time_ms) == (5000, 1234)
        broker.replicas.update_config(broker.config.with_dynamic({RATE: "77"}))
        assert replication.leader_rate == 77
        # Two windows of three seconds.
        replication.clock_ms = 60_000
        replication.record_leader_bytes(3000)
        assert replication.leader_throughput() == 1000.0
        replication.clock_ms = 65_999
        assert replication.leader_throughput() > 0.0
        replication.clock_ms = 66_000
        assert replication.leader_throughput() == 0.0

    with_broker(
        test,
        leader_replication_throttled_rate="5000",
        replica_lag_time_max_ms="1234",
        replication_quota_window_num="2",
        replication_quota_window_size_seconds="3",
    )
