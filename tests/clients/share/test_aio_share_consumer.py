"""AIOKafkaShareConsumer on a scripted cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from clients.share.share_cluster import ShareCluster
from waiting import until

from kafkapy.aio import AcknowledgeType, AIOKafkaShareConsumer, ConsumerStoppedError
from kafkapy.errors import ErrorCode, IllegalStateError, KafkaError, UnsupportedVersionError
from kafkapy.types import TopicPartition

Run = Callable[[Coroutine[Any, Any, Any]], Any]
JOBS = TopicPartition("jobs", 0)


def made(cluster: ShareCluster, *topics: str, **keywords: Any) -> AIOKafkaShareConsumer:
    wanted: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap,
        "group_id": "workers",
        "fetch_max_wait_ms": 50,
        "retry_backoff_ms": 20,
        "enable_metrics_push": False,
    }
    return AIOKafkaShareConsumer(*(topics or ("jobs",)), **(wanted | keywords))


def test_iteration_accepts_step_by_step(run: Run, cluster: ShareCluster) -> None:
    cluster.topics["jobs"][0].append(3)

    async def main() -> None:
        seen = []
        async with made(cluster) as consumer:
            async for record in consumer:
                seen.append((record.offset, record.value, record.delivery_count))
                if record.offset == 2:
                    break
            await until(lambda: cluster.state_of("jobs")[1] == "accepted", "acknowledgements")
            assert consumer.assignment() == {JOBS}
            assert consumer.subscription() == {"jobs"}
            assert consumer.acquisition_lock_timeout_ms() == 30_000
        assert seen == [(n, b"%d" % n, 1) for n in range(3)]
        assert cluster.state_of("jobs") == {0: "accepted", 1: "accepted", 2: "available"}
        assert cluster.members == {}

    run(main())


def test_explicit_outcomes(run: Run, cluster: ShareCluster) -> None:
    cluster.topics["jobs"][0].append(4)

    async def main() -> None:
        outcomes: list[Any] = []
        async with made(cluster, share_acknowledgement_mode="explicit") as consumer:
            consumer.set_acknowledgement_commit_callback(lambda offsets, error: outcomes.append((offsets, error)))
            records = (await consumer.getmany(timeout_ms=60_000))[JOBS]
            assert len(records) == 4
            with pytest.raises(IllegalStateError, match="All records must be acknowledged"):
                await consumer.getmany()
            consumer.acknowledge(records[0])
            consumer.acknowledge(records[1], AcknowledgeType.RELEASE)
            consumer.acknowledge(records[2], "renew")
            consumer.acknowledge_offset("jobs", 0, 3, AcknowledgeType.REJECT)
            assert await consumer.getmany(timeout_ms=60_000) == {JOBS: [records[2]]}
            consumer.acknowledge(records[2])
            assert await consumer.commit_sync() == {JOBS: None}
            again = await consumer.getone()
            assert (again.offset, again.delivery_count) == (1, 2)
            consumer.acknowledge(again)
            consumer.commit_async()
            await until(lambda: cluster.state_of("jobs")[1] == "accepted", "the commit")
        assert cluster.state_of("jobs") == {0: "accepted", 1: "accepted", 2: "accepted", 3: "rejected"}
        assert ({JOBS: [0, 1, 2, 3]}, None) in outcomes

    run(main())


def test_errors(run: Run, cluster: ShareCluster) -> None:
    cluster.topics["jobs"][0].append(1)

    async def main() -> None:
        async with made(cluster) as consumer:
            record = await consumer.getone()
            with pytest.raises(IllegalStateError, match="Implicit"):
                consumer.acknowledge(record)
            for delivery in cluster.deliveries["jobs", 0].values():
                delivery.owner = "another"
            error = (await consumer.commit_sync())[JOBS]
            assert isinstance(error, KafkaError)
            assert error.code is ErrorCode.INVALID_RECORD_STATE
            with pytest.raises(ValueError, match="positive"):
                await consumer.getmany(max_records=0)
            with pytest.raises(ValueError, match="negative"):
                await consumer.getmany(timeout_ms=-1)
            assert await consumer.getmany() == {}
            assert "consumer-share-metrics" in consumer.metrics()
            await consumer.unsubscribe()
            with pytest.raises(IllegalStateError, match="not subscribed"):
                await consumer.getmany()
            with pytest.raises(ValueError, match="names of topics"):
                consumer.subscribe([])
            consumer.subscribe(["jobs"])
            cluster.topics["jobs"][0].append(1)
            assert (await consumer.getone()).offset == 1
        with pytest.raises(ConsumerStoppedError):
            await consumer.getone()
        with pytest.raises(ConsumerStoppedError):
            await consumer.start()

    run(main())


def test_a_stop_ends_waiting_tasks(run: Run, cluster: ShareCluster) -> None:
    async def main() -> None:
        consumer = made(cluster)
        await consumer.start()

        async def steps() -> int:
            return len([record async for record in consumer])

        task = asyncio.create_task(steps())
        await until(lambda: cluster.members, "the member")
        await consumer.stop()
        assert await task == 0
        await consumer.stop()

    run(main())


def test_a_cluster_without_share_groups(run: Run) -> None:
    async def main() -> None:
        with ShareCluster(share_versions=0) as cluster:
            cluster.add_topic("jobs")
            async with made(cluster) as consumer:
                with pytest.raises(UnsupportedVersionError, match="Share groups are not available"):
                    await consumer.getone()

    run(main())
