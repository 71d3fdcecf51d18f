"""Events that come late or twice: brokers that are back already, marks of topics that are gone, steps that stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from waiting import until, until_not

from kafkapy.controller import controller
from kafkapy.controller.admin_requests import NewTopic
from kafkapy.metadata.broker_requests import LeaderAndIsr, UpdateMetadata
from kafkapy.metadata.embedded import EmbeddedStore
from kafkapy.metadata.store import Create, Operation, Stat, StoreUnavailableError
from kafkapy.metadata.znodes import (
    LOG_DIR_EVENT_PREFIX,
    BrokerRegistration,
    delete_topic_path,
    encode_log_dir_event,
    partition_state_path,
)
from kafkapy.types import Endpoint, TopicPartition

Runner = Callable[..., None]
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def leader(cluster: Any, partition: TopicPartition = T0) -> tuple[int, tuple[int, ...]]:
    seen = cluster.cache.partition(*partition)
    return seen.leader, seen.isr


async def children_gone(cluster: Any, path: str) -> None:
    """Wait until the store has nothing below a path any more."""
    await until_not(lambda: cluster.store.children(path), f"{path} is empty")


# --- brokers ------------------------------------------------------------------------------------------------------


def test_a_broker_that_is_back_before_the_controller_looks_was_away(with_cluster: Runner) -> None:
    """Its process is another one: it leads nothing, knows nothing, and what it had not synced may be lost."""

    async def test(cluster: Any) -> None:
        await cluster.add_broker(1)
        await cluster.topic_admin.create_topics(
            [NewTopic("t", assignments={0: [1, 0]}), NewTopic("single", assignments={0: [1]})]
        )
        before = cluster.controller.context.live_brokers[1].epoch
        single = TopicPartition("single", 0)
        epoch = cluster.cache.partition(*single).leader_epoch
        reborn = cluster.brokers[1]
        reborn.leading.clear()
        reborn.requests.clear()

        async def bounce() -> None:
            await cluster.store.delete("/brokers/ids/1")
            registration = BrokerRegistration(1, (Endpoint("PLAINTEXT", "127.0.0.1", 9999),))
            await cluster.controller.store.register_broker(registration)

        # An event, so that the controller sees the broker before and after, and nothing in between.
        await cluster.controller.submit("Bounce", bounce)
        await until(lambda: cluster.controller.context.live_brokers.keys() == {0, 1}, "the broker is seen again")
        await cluster.idle()
        assert leader(cluster) == (0, (0,))
        assert leader(cluster, single) == (1, (1,))
        assert cluster.cache.partition(*single).leader_epoch > epoch
        assert reborn.leading == {single: 1, T0: 0}
        assert set(reborn.cache.topics()) == {"t", "single"}
        registered = cluster.controller.context.live_brokers[1].epoch
        assert registered > before
        told = [each for each in reborn.requests if isinstance(each, LeaderAndIsr | UpdateMetadata)]
        assert {each.broker_epoch for each in told} == {registered}
        assert [node.port for node in cluster.cache.snapshot.nodes("PLAINTEXT") if node.id == 1] == [9999]

    with_cluster(test)


def test_a_registration_that_did_not_change_moves_no_leader(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        await cluster.add_broker(1)
        await cluster.topic_admin.create_topics([NewTopic("t", assignments={0: [1, 0]})])
        told = len(cluster.brokers[1].requests)
        await cluster.add_broker(2)
        assert leader(cluster) == (1, (1, 0))
        assert cluster.cache.partition(*T0).leader_epoch == 0
        assert all(isinstance(each, UpdateMetadata) for each in cluster.brokers[1].requests[told:])

    with_cluster(test)


# --- deletion marks -----------------------------------------------------------------------------------------------


def test_a_mark_for_a_topic_that_is_not_there_does_not_wait_for_its_successor(with_cluster: Runner) -> None:
    async def test(cluster: Any) -> None:
        await cluster.store.create(delete_topic_path("t"))
        await children_gone(cluster, "/admin/delete_topics")
        await cluster.topic_admin.create_topics([NewTopic("t", 1, 1)])
        # Another mark has the controller read all of them.
        await cluster.store.create(delete_topic_path("unknown"))
        await children_gone(cluster, "/admin/delete_topics")
        await cluster.idle()
        assert leader(cluster) == (0, (0,))

    with_cluster(test)


def test_a_stale_mark_is_taken_away_at_a_start(make_cluster: Callable[..., Any]) -> None:
    async def test() -> None:
        cluster = make_cluster()
        await cluster.start()
        await cluster.topic_admin.create_topics([NewTopic("kept", 1, 1)])
        await cluster.stop()
        await cluster.embedded.start()
        await cluster.store.create(delete_topic_path("t"))
        await cluster.embedded.close()

        again = make_cluster()
        await again.start()
        assert await again.store.children("/admin/delete_topics") == []
        await again.topic_admin.create_topics([NewTopic("t", 1, 1)])
        topic_id = again.cache.topic("t").topic_id
        await again.stop()

        third = make_cluster()
        await third.start()
        await third.idle()
        assert sorted(third.cache.topics()) == ["kept", "t"]
        assert third.cache.topic("t").topic_id == topic_id
        await third.stop()

    asyncio.run(test())


# --- steps that stopped half way ------------------------------------------------------------------------------------


class NoStates(EmbeddedStore):
    """Once armed, the next creation of partition states fails."""

    armed = False

    async def commit(self, operations: Sequence[Operation]) -> list[str | Stat | None]:
        states = any(isinstance(each, Create) and each.path.endswith("/state") for each in operations)
        if self.armed and states:
            self.armed = False
            raise StoreUnavailableError(operations[0].path, "the write failed")
        return await super().commit(operations)


def test_replicas_of_partitions_whose_first_write_failed_are_like_others(
    make_cluster: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed log directory takes them offline too: that goes by asking the replicas that are online."""
    monkeypatch.setattr(controller, "RETRY_MS", 10)

    async def test() -> None:
        cluster = make_cluster()
        store = NoStates(Path(cluster.directory))
        cluster.embedded = cluster.store = store
        await cluster.start()
        try:
            store.armed = True
            with pytest.raises(StoreUnavailableError):
                await cluster.topic_admin.create_topics([NewTopic("t", 2, 1)])
            await until(
                lambda: cluster.cache.contains("t") and leader(cluster)[0] == 0 and leader(cluster, T1)[0] == 0,
                "both partitions have a leader",
            )
            await cluster.idle()
            assert await store.exists(partition_state_path(T0)) is not None
            cluster.brokers[0].failing.add(T1)
            await store.create(LOG_DIR_EVENT_PREFIX, encode_log_dir_event(0), sequential=True)
            await children_gone(cluster, "/log_dir_event_notification")
            await cluster.idle()
            assert (leader(cluster), leader(cluster, T1)[0]) == ((0, (0,)), -1)
        finally:
            await cluster.stop()

    asyncio.run(test())
