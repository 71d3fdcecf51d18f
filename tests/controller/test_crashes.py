"""A crash between any two writes to the store: the next start finishes what had begun."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kafkapy.controller.admin_requests import NewPartitions, NewTopic
from kafkapy.metadata.broker_requests import StopReplica
from kafkapy.metadata.embedded import EmbeddedStore
from kafkapy.metadata.store import Operation, Stat
from kafkapy.metadata.znodes import decode_topic, partition_state_path, topic_path
from kafkapy.types import TopicPartition


class PowerCutError(Exception):
    """The process ends here."""


class CrashingStore(EmbeddedStore):
    """Does `writes` more commits after `arm`, then nothing any more, as if the process had ended."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.remaining: int | None = None
        self.dead = asyncio.Event()
        self.done = 0

    def arm(self, writes: int) -> None:
        self.remaining = writes

    async def commit(self, operations: Sequence[Operation]) -> list[str | Stat | None]:
        if self.remaining is not None:
            if self.remaining == 0:
                self.dead.set()
                await asyncio.Event().wait()
            self.remaining -= 1
        self.done += 1
        return await super().commit(operations)


def run_with_crash(
    make_cluster: Callable[..., Any], writes: int, prepare: Callable[[Any], Any], work: Callable[[Any], Any]
) -> tuple[bool, Any]:
    """Start, prepare, then work until the given number of writes; whether it crashed, and the broker."""

    async def run() -> tuple[bool, Any]:
        cluster = make_cluster()
        store = CrashingStore(cluster.directory)
        cluster.embedded = cluster.store = store
        await cluster.start()
        await prepare(cluster)
        await cluster.idle()
        store.arm(writes)
        working = asyncio.create_task(work(cluster))
        dying = asyncio.create_task(store.dead.wait())
        await asyncio.wait({working, dying}, return_when=asyncio.FIRST_COMPLETED)
        crashed = store.dead.is_set()
        if not crashed:
            await working
            await cluster.idle()
            crashed = store.dead.is_set()
        working.cancel()
        dying.cancel()
        # The process is gone: nothing of it is closed but what keeps the next one out.
        store.remaining = None
        await cluster.stop()
        return crashed, cluster.brokers[0]

    return asyncio.run(run())


def restarted(make_cluster: Callable[..., Any], broker: Any, check: Callable[[Any], Any]) -> None:
    """Start again on the same store and disk."""

    async def run() -> None:
        cluster = make_cluster()
        again = cluster.brokers[0]
        again.logs = dict(broker.logs)
        await cluster.start()
        await cluster.idle()
        try:
            await check(cluster)
        finally:
            await cluster.stop()

    asyncio.run(run())


async def check_consistent(cluster: Any, allowed: dict[str, set[int]]) -> None:
    """Store, controller, cache and broker agree, on topics that have one of the allowed numbers of partitions."""
    store, cache, broker = cluster.store, cluster.cache, cluster.brokers[0]
    topics = await store.children("/brokers/topics")
    assert topics == sorted(cache.topics())
    assert set(topics) <= set(allowed)
    assert await store.children("/admin/delete_topics") == []
    assert set(await store.children("/config/topics")) <= set(topics)
    hosted: set[TopicPartition] = set()
    for name in topics:
        assignment = decode_topic(name, (await store.get(topic_path(name)))[0])
        seen = cache.topic(name)
        assert seen.topic_id == assignment.topic_id
        assert seen.partition_count in allowed[name]
        for number in assignment.partitions:
            partition = TopicPartition(name, number)
            assert await store.exists(partition_state_path(partition)) is not None
            assert seen.partitions[number].leader == 0
            hosted.add(partition)
    assert set(broker.leading) == set(broker.logs) == hosted


def all_crash_points(
    make_cluster: Callable[..., Any],
    tmp_path: Path,
    prepare: Callable[[Any], Any],
    work: Callable[[Any], Any],
    allowed: dict[str, set[int]],
) -> list[set[str]]:
    """Crash after 0, 1, 2, ... writes until the work gets through; the topics found after each restart."""
    found: list[set[str]] = []
    for writes in range(50):
        crashed, broker = run_with_crash(make_cluster, writes, prepare, work)

        async def check(cluster: Any) -> None:
            await check_consistent(cluster, allowed)
            found.append(set(cluster.cache.topics()))

        restarted(make_cluster, broker, check)
        for path in tmp_path.iterdir():
            path.unlink()
        if not crashed:
            return found
    raise AssertionError("the work never got through")


async def nothing(cluster: Any) -> None:
    return


def test_creating_a_topic(make_cluster: Callable[..., Any], tmp_path: Path) -> None:
    async def create(cluster: Any) -> None:
        await cluster.topic_admin.create_topics([NewTopic("t", 3, 1, configs={"retention.ms": "7"})])

    found = all_crash_points(make_cluster, tmp_path, nothing, create, {"t": {3}})
    # Before the first write there is no topic, after it there always is.
    assert found[0] == set()
    assert len(found) >= 3
    assert all(each == {"t"} for each in found[1:])


def test_adding_partitions(make_cluster: Callable[..., Any], tmp_path: Path) -> None:
    async def prepare(cluster: Any) -> None:
        await cluster.topic_admin.create_topics([NewTopic("t", 1, 1)])

    async def grow(cluster: Any) -> None:
        await cluster.topic_admin.create_partitions([NewPartitions("t", 4)])

    found = all_crash_points(make_cluster, tmp_path, prepare, grow, {"t": {1, 4}})
    assert len(found) >= 3


def test_deleting_topics(make_cluster: Callable[..., Any], tmp_path: Path) -> None:
    async def prepare(cluster: Any) -> None:
        await cluster.topic_admin.create_topics(
            [NewTopic("t", 2, 1, configs={"retention.ms": "7"}), NewTopic("u", 1, 1)]
        )

    async def delete(cluster: Any) -> None:
        await cluster.topic_admin.delete_topics(["t"])

    found = all_crash_points(make_cluster, tmp_path, prepare, delete, {"t": {2}, "u": {1}})
    assert found[0] == {"t", "u"}
    assert all(each == {"u"} for each in found[1:])
    assert len(found) >= 2


@pytest.mark.parametrize("delete_reached_the_disk", [False, True])
def test_a_crash_between_deleting_logs_and_saying_so(
    make_cluster: Callable[..., Any], delete_reached_the_disk: bool
) -> None:
    async def run() -> Any:
        cluster = make_cluster()
        await cluster.start()
        await cluster.topic_admin.create_topics([NewTopic("t", 2, 1)])
        broker = cluster.brokers[0]
        dead = asyncio.Event()
        stop_replicas = broker.stop_replicas

        async def dying(request: StopReplica) -> Any:
            if any(each.delete for each in request.partitions.values()):
                if delete_reached_the_disk:
                    await stop_replicas(request)
                dead.set()
                await asyncio.Event().wait()
            return await stop_replicas(request)

        broker.stop_replicas = dying
        deleting = asyncio.create_task(cluster.topic_admin.delete_topics(["t"]))
        await dead.wait()
        deleting.cancel()
        await cluster.stop()
        return broker

    broker = asyncio.run(run())
    assert bool(broker.logs) is not delete_reached_the_disk

    async def check(cluster: Any) -> None:
        await check_consistent(cluster, {})
        assert not cluster.brokers[0].logs

    restarted(make_cluster, broker, check)


def test_many_partitions_are_taken_up_at_a_restart(make_cluster: Callable[..., Any]) -> None:
    async def create() -> Any:
        cluster = make_cluster()
        await cluster.start()
        await cluster.topic_admin.create_topics([NewTopic("a", 1500, 1), NewTopic("b", 1500, 1)])
        await cluster.stop()
        return cluster.brokers[0]

    async def check(cluster: Any) -> None:
        assert [cluster.cache.topic(name).partition_count for name in "ab"] == [1500, 1500]
        first = cluster.brokers[0].requests[1]
        assert first.full
        assert len(first.partitions) == 3000

    restarted(make_cluster, asyncio.run(create()), check)
