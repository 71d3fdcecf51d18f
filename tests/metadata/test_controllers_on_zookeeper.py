"""Three controllers on a real ZooKeeper: failover, an expired session, a move, an old tool's nodes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable

import pytest
from controller.several import SeveralBrokers
from kazoo.client import KazooClient  # type: ignore[import-untyped]
from waiting import until

from kafkapy.controller.admin_requests import CreatedTopic, NewTopic
from kafkapy.metadata.metadata_version import LATEST
from kafkapy.metadata.znodes import (
    ReplicaAssignment,
    decode_topic,
    encode_preferred_elections,
    encode_reassignments,
    encode_topic,
    topic_path,
)
from kafkapy.metadata.zookeeper import ZooKeeperStore
from kafkapy.types import TopicPartition

pytestmark = pytest.mark.filterwarnings("ignore:No chroot path exists")  # the store makes it

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def run_on(zookeeper: str, test: Callable[[SeveralBrokers], Awaitable[None]], brokers: int = 3) -> None:
    async def started() -> None:
        connect = f"{zookeeper}/{uuid.uuid4().hex}"
        cluster = SeveralBrokers(lambda: ZooKeeperStore(connect), {}, LATEST)
        try:
            for broker_id in range(brokers):
                await cluster.add(broker_id)
            await until(lambda: len(cluster.context.live_brokers) == brokers, "all brokers are alive")
            await test(cluster)
        finally:
            for member in cluster.members.values():
                if member.host.reachable:
                    await member.stop()

    asyncio.run(started())


async def create(cluster: SeveralBrokers, assignments: dict[int, list[int]]) -> None:
    made = await cluster.active.admin.create_topics([NewTopic("t", assignments=assignments)])
    assert isinstance(made["t"], CreatedTopic), made
    await cluster.settled()


async def expire(store: ZooKeeperStore) -> None:
    """End the session at the ensemble, as when the broker does not answer for too long."""
    session = store._client.client_id
    twin = KazooClient(hosts=store.connect.partition("/")[0], client_id=session)
    await asyncio.to_thread(twin.start)
    await asyncio.to_thread(twin.stop)
    twin.close()


def test_leaders_and_controller_move_when_the_controller_dies(zookeeper: str) -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [0, 1, 2], 1: [1, 2, 0]})
        epoch = cluster.active.controller.epoch
        await cluster[0].die()
        await cluster.controlled()
        assert cluster.active.controller.epoch == epoch + 1
        await until(lambda: cluster.context.live_brokers.keys() == {1, 2}, "two brokers are left")
        await until(lambda: T0 in cluster.context.leadership and cluster.state(T0).leader == 1, "broker 1 leads")
        await cluster.settled()
        assert [cluster.state(each).isr for each in (T0, T1)] == [(1, 2), (1, 2)]
        await cluster.restart(0)
        await until(lambda: 0 in cluster.context.live_brokers, "broker 0 is back")
        await cluster.settled()
        await cluster.catch_up(T0, 0)
        await cluster.catch_up(T1, 0)
        assert await cluster.active.controller.elect_leaders([T0], unclean=False) == {T0: None}
        assert cluster.state(T0).leader == 0
        assert await cluster.active.admin.delete_topics(["t"]) == {"t": None}
        assert await cluster[0].store.children("/brokers/topics") == []

    run_on(zookeeper, test)


@pytest.mark.parametrize("which", ["controller", "another broker"])
def test_a_broker_whose_session_expires_joins_again(zookeeper: str, which: str) -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [0, 1], 1: [1, 0]})
        member = cluster[0 if which == "controller" else 1]
        epoch, controller_epoch = member.controller.broker_epoch, cluster.active.controller.epoch
        assert isinstance(member.store, ZooKeeperStore)
        await expire(member.store)
        await until(lambda: member.controller.broker_epoch > epoch, "the broker is registered again")
        member.host.epoch = member.controller.broker_epoch
        await cluster.controlled()
        await until(lambda: len(cluster.context.live_brokers) == 3, "all brokers are alive")
        await until(
            lambda: cluster.context.live_brokers[member.id].epoch == member.controller.broker_epoch,
            "the controller knows the new registration",
        )
        await cluster.settled()
        if which == "controller":
            assert cluster.active.controller.epoch > controller_epoch
        # Nobody has died, yet leaderships have moved: the others are in sync, and the broker follows again.
        for partition in (T0, T1):
            await cluster.catch_up(partition, 0, 1)
            assert set(cluster.state(partition).isr) == {0, 1}
        assert not member.replaced

    run_on(zookeeper, test)


def test_a_partition_moves_and_tools_of_old_releases_are_served(zookeeper: str) -> None:
    async def test(cluster: SeveralBrokers) -> None:
        await create(cluster, {0: [0, 1], 1: [0, 1]})
        outcome = await cluster.active.controller.alter_reassignments({T0: [2, 1]})
        assert outcome == {T0: None}
        await cluster.catch_up(T0, 2)

        async def stored(partition: TopicPartition) -> ReplicaAssignment:
            data, _ = await cluster[1].store.get(topic_path("t"))
            return decode_topic("t", data).partitions[partition.partition]

        async def is_moved() -> bool:
            return await stored(T0) == ReplicaAssignment((2, 1))

        await until(is_moved, "the partition has moved")
        await cluster.settled()
        assert cluster.state(T0).leader == 2

        store = cluster[1].store
        await store.create("/admin/reassign_partitions", encode_reassignments({T1: [1, 2]}))
        await until(lambda: T1 in cluster.context.reassigning, "the move has begun")
        await cluster.settled()
        await cluster.catch_up(T1, 2)

        async def gone(path: str) -> bool:
            return await store.exists(path) is None

        await until(lambda: gone("/admin/reassign_partitions"), "the tool's node is gone")
        await cluster.settled()
        assert await stored(T1) == ReplicaAssignment((1, 2))
        await store.create("/admin/preferred_replica_election", encode_preferred_elections([T1]))
        await until(lambda: gone("/admin/preferred_replica_election"), "the tool's node is gone")
        assert cluster.state(T1).leader == 1

        data, stat = await store.get(topic_path("t"))
        topic = decode_topic("t", data)
        more = topic._replace(partitions={**topic.partitions, 2: ReplicaAssignment((2, 0))})
        await store.set(topic_path("t"), encode_topic(more), stat.version)
        added = TopicPartition("t", 2)
        await until(lambda: added in cluster.context.leadership, "the added partition has a leader")
        assert cluster.state(added).leader == 2

    run_on(zookeeper, test)
