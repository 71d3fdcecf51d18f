"""A controller over a real embedded store, with brokers that only record what they are told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.properties import Properties
from kafkapy.controller.broker_channel import LocalBrokerChannel
from kafkapy.controller.controller import KafkaController
from kafkapy.controller.topic_admin import TopicAdmin
from kafkapy.errors import ErrorCode
from kafkapy.metadata.broker_requests import BrokerResponse, LeaderAndIsr, StopReplica, UpdateMetadata
from kafkapy.metadata.cache import MetadataCache
from kafkapy.metadata.config_repository import ConfigRepository
from kafkapy.metadata.embedded import EmbeddedStore
from kafkapy.metadata.store import MetadataStore
from kafkapy.metadata.znodes import BrokerRegistration
from kafkapy.types import Endpoint, TopicPartition


class RecordingBroker:
    """What a broker hosts after what it was told. Its disk outlives it, so that a restart finds it again."""

    def __init__(self, cache: MetadataCache | None = None) -> None:
        self.cache = cache or MetadataCache()
        self.logs: dict[TopicPartition, Any] = {}
        self.leading: dict[TopicPartition, int] = {}
        self.requests: list[LeaderAndIsr | UpdateMetadata | StopReplica] = []
        self.failing: set[TopicPartition] = set()
        self.refuse_deletes = False

    async def become_leader_or_follower(self, request: LeaderAndIsr) -> BrokerResponse:
        self.requests.append(request)
        errors = {}
        for partition, each in request.partitions.items():
            if partition in self.failing:
                errors[partition] = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            self.logs[partition] = request.topic_ids[partition.topic]
            self.leading[partition] = each.state.leader
        return BrokerResponse(partition_errors=errors)

    async def update_metadata(self, request: UpdateMetadata) -> BrokerResponse:
        self.requests.append(request)
        self.cache.update(request)
        return BrokerResponse()

    async def stop_replicas(self, request: StopReplica) -> BrokerResponse:
        self.requests.append(request)
        errors = {}
        for partition, each in request.partitions.items():
            self.leading.pop(partition, None)
            if each.delete:
                if self.refuse_deletes:
                    errors[partition] = ErrorCode.KAFKA_STORAGE_ERROR
                else:
                    self.logs.pop(partition, None)
        return BrokerResponse(partition_errors=errors)


class Cluster:
    """One controller with its store; further brokers are registered through a store session of their own."""

    def __init__(
        self, directory: Path, overrides: Mapping[str, str], wrap: Callable[[MetadataStore], MetadataStore] | None
    ) -> None:
        self.directory = directory
        properties = Properties("test")
        for key, value in {"broker.id": "0", **overrides}.items():
            properties.set(key, value)
        self.config = BrokerConfig.from_properties(properties)
        self.wrap = wrap or (lambda store: store)
        self.cache = MetadataCache()
        self.brokers: dict[int, RecordingBroker] = {0: RecordingBroker(self.cache)}
        self.embedded = EmbeddedStore(directory)
        self.store: MetadataStore = self.wrap(self.embedded)

    async def start(self) -> KafkaController:
        await self.embedded.start()
        self.configs = ConfigRepository(self.store)
        await self.configs.start()
        self.controller = KafkaController(
            self.config,
            0,
            self.store,
            self.cache,
            self.configs,
            lambda broker: LocalBrokerChannel(self.brokers.setdefault(broker.id, RecordingBroker())),
        )
        self.topic_admin = TopicAdmin(self.controller)
        await self.controller.start(BrokerRegistration(0, (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)))
        return self.controller

    async def stop(self) -> None:
        await self.controller.stop()
        await self.configs.stop()
        await self.embedded.close()

    async def add_broker(self, broker_id: int, rack: str | None = None) -> None:
        registration = BrokerRegistration(broker_id, (Endpoint("PLAINTEXT", "127.0.0.1", 9000 + broker_id),), rack)
        await self.controller.store.register_broker(registration)
        await until(lambda: broker_id in self.controller.context.live_brokers, f"broker {broker_id} is alive")
        await self.idle()

    async def remove_broker(self, broker_id: int) -> None:
        await self.store.delete(f"/brokers/ids/{broker_id}")
        await until(lambda: broker_id not in self.controller.context.live_brokers, f"broker {broker_id} is gone")
        await self.idle()

    async def idle(self) -> None:
        """Return when events, and what they have told brokers, and what followed from that, are done."""

        async def nothing() -> None:
            return

        for _ in range(4):
            await self.controller.submit("Idle", nothing)
            for broker_id in list(self.controller.context.live_brokers):
                await self.controller.current.channels.drain(broker_id)
            await asyncio.sleep(0.002)


ClusterTest = Callable[[Cluster], Awaitable[None]]
ClusterRunner = Callable[..., None]


@pytest.fixture
def make_cluster(tmp_path: Path) -> Callable[..., Cluster]:
    """A cluster on this test's directory; call it again for a restart."""

    def make(
        overrides: Mapping[str, str] | None = None, wrap: Callable[[MetadataStore], MetadataStore] | None = None
    ) -> Cluster:
        return Cluster(tmp_path, overrides or {}, wrap)

    return make


@pytest.fixture
def with_cluster(make_cluster: Callable[..., Cluster]) -> ClusterRunner:
    """Run a test against a started cluster."""

    def run(test: ClusterTest, **overrides: str) -> None:
        async def started() -> None:
            cluster = make_cluster({key.replace("_", "."): value for key, value in overrides.items()})
            await cluster.start()
            try:
                await test(cluster)
            finally:
                await cluster.stop()

        asyncio.run(started())

    return run
