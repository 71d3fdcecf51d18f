"""Two brokers on one ZooKeeper: one controls, and the other takes over when its session ends."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from waiting import until

from kafkapy.broker.identity import broker_id, cluster_id
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.properties import Properties
from kafkapy.controller.admin_requests import CreatedTopic, NewTopic
from kafkapy.controller.broker_channel import LocalBrokerChannel
from kafkapy.controller.controller import KafkaController
from kafkapy.controller.topic_admin import TopicAdmin
from kafkapy.metadata.broker_requests import BrokerResponse, LeaderAndIsr, StopReplica, UpdateMetadata
from kafkapy.metadata.cache import MetadataCache
from kafkapy.metadata.config_repository import ConfigRepository
from kafkapy.metadata.znodes import BrokerRegistration
from kafkapy.metadata.zookeeper import ZooKeeperStore
from kafkapy.types import Endpoint


class Broker:
    """A broker that only keeps the metadata cache. `brokers` stands for the network between them."""

    def __init__(self, broker_id: int, connect: str, brokers: dict[int, Broker]) -> None:
        self.id = broker_id
        self.store = ZooKeeperStore(connect)
        self.cache = MetadataCache()
        self.brokers = brokers
        brokers[broker_id] = self

    async def start(self) -> None:
        properties = Properties("test")
        properties.set("broker.id", str(self.id))
        await self.store.start()
        configs = ConfigRepository(self.store)
        await configs.start()
        self.controller = KafkaController(
            BrokerConfig.from_properties(properties),
            self.id,
            self.store,
            self.cache,
            configs,
            lambda broker: LocalBrokerChannel(self.brokers[broker.id]),
        )
        self.topic_admin = TopicAdmin(self.controller)
        await self.controller.start(BrokerRegistration(self.id, (Endpoint("PLAINTEXT", "h", 9092 + self.id),)))

    async def become_leader_or_follower(self, request: LeaderAndIsr) -> BrokerResponse:
        return BrokerResponse()

    async def stop_replicas(self, request: StopReplica) -> BrokerResponse:
        return BrokerResponse()

    async def update_metadata(self, request: UpdateMetadata) -> BrokerResponse:
        self.cache.update(request)
        return BrokerResponse()


@pytest.mark.filterwarnings("ignore:No chroot path exists")  # the store makes it
def test_the_second_broker_takes_over_topics_and_leaders(zookeeper: str) -> None:
    async def test() -> None:
        connect = f"{zookeeper}/{uuid.uuid4().hex}"
        brokers: dict[int, Broker] = {}
        first, second = Broker(0, connect, brokers), Broker(1, connect, brokers)
        await first.start()
        await second.start()
        assert first.controller.is_active
        assert not second.controller.is_active
        assert second.controller.active_controller_id == 0
        await until(lambda: len(second.cache.snapshot.brokers) == 2, "both brokers are known")
        wanted = [NewTopic("both", 20, 2), NewTopic("gone", 1, 1)]
        assert all(isinstance(each, CreatedTopic) for each in (await first.topic_admin.create_topics(wanted)).values())
        assert await first.topic_admin.delete_topics(["gone"]) == {"gone": None}
        epoch = first.controller.epoch
        # The first one's session ends as it does when the process dies.
        await first.controller.stop()
        await first.store.close()
        await until(lambda: second.controller.is_active, "the second broker is the controller")
        await until(lambda: 0 not in second.cache.snapshot.brokers, "the first broker is gone")
        assert second.controller.epoch == epoch + 1
        await until(
            lambda: {p.leader for p in second.cache.topics()["both"].partitions.values()} == {1},
            "the second broker leads everything",
        )
        assert set(second.cache.topics()) == {"both"}
        await second.controller.stop()
        await second.store.close()

    asyncio.run(test())


@pytest.mark.filterwarnings("ignore:No chroot path exists")  # the store makes it
def test_brokers_agree_on_the_cluster_id_and_share_no_generated_id(zookeeper: str) -> None:
    async def test() -> None:
        connect = f"{zookeeper}/{uuid.uuid4().hex}"
        stores = [ZooKeeperStore(connect) for _ in range(2)]
        for store in stores:
            await store.start()
        ids = await asyncio.gather(*(cluster_id(store, None) for store in stores))
        assert len(set(ids)) == 1
        unnumbered = BrokerConfig({"broker.id": "-1"})
        numbers = await asyncio.gather(*(broker_id(unnumbered, store, None) for store in stores * 3))
        assert sorted(numbers) == [1001, 1002, 1003, 1004, 1005, 1006]
        for store in stores:
            await store.close()

    asyncio.run(test())
