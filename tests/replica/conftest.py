"""A broker without sockets: real store, controller, log manager and partition table in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kafkapy._speedups.base.event_queue import EventQueue
from kafkapy._speedups.requests.partition_table import PartitionTable
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.properties import Properties
from kafkapy.controller.broker_channel import LocalBrokerChannel
from kafkapy.controller.controller import KafkaController
from kafkapy.controller.topic_admin import TopicAdmin
from kafkapy.log.log_manager import LogManager
from kafkapy.metadata.cache import MetadataCache
from kafkapy.metadata.config_repository import ConfigRepository
from kafkapy.metadata.embedded import EmbeddedStore
from kafkapy.metadata.znodes import BrokerRegistration
from kafkapy.replica.log_configs import effective_log_config
from kafkapy.replica.replica_manager import ReplicaManager
from kafkapy.types import Endpoint


class Broker:
    """One broker on one directory; made again on the same directory it is the same broker after a restart."""

    def __init__(self, directory: Path, overrides: Mapping[str, str]) -> None:
        properties = Properties("test")
        values = {
            "broker.id": "0",
            "log.dirs": str(directory / "logs"),
            "log.segment.delete.delay.ms": "0",
            **overrides,
        }
        for key, value in values.items():
            properties.set(key, value)
        self.config = BrokerConfig.from_properties(properties)
        self.store = EmbeddedStore(directory)
        self.cache = MetadataCache()
        self.table = PartitionTable()
        self.events = EventQueue()

    async def start(self) -> None:
        await self.store.start()
        self.configs = ConfigRepository(self.store)
        await self.configs.start()
        self.log_manager = LogManager(
            self.config,
            events=self.events,
            topic_config=lambda topic: effective_log_config(topic, self.configs.topic(topic), self.config),
            on_log_dir_failure=lambda path, partitions: self.replicas.log_dir_failed(path, partitions),
        )
        self.replicas = ReplicaManager(
            self.config, 0, self.store, self.log_manager, self.table, self.cache, self.configs
        )
        await asyncio.to_thread(self.log_manager.acquire)
        await asyncio.to_thread(self.log_manager.load)
        self.controller = KafkaController(
            self.config, 0, self.store, self.cache, self.configs, lambda broker: LocalBrokerChannel(self.replicas)
        )
        self.topic_admin = TopicAdmin(self.controller)
        await self.controller.start(BrokerRegistration(0, (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)))

    async def stop(self) -> None:
        await self.controller.stop()
        await self.replicas.stop()
        await self.configs.stop()
        await asyncio.to_thread(self.log_manager.shutdown)
        await self.store.close()


@pytest.fixture
def make_broker(tmp_path: Path) -> Callable[..., Broker]:
    """A broker on this test's directory."""

    def make(**overrides: str) -> Broker:
        return Broker(tmp_path, {key.replace("_", "."): value for key, value in overrides.items()})

    return make


@pytest.fixture
def with_broker(make_broker: Callable[..., Broker]) -> Callable[..., None]:
    """Run a test against a started broker."""

    def run(test: Callable[[Any], Awaitable[None]], **overrides: str) -> None:
        async def started() -> None:
            broker = make_broker(**overrides)
            await broker.start()
            try:
                await test(broker)
            finally:
                await broker.stop()

        asyncio.run(started())

    return run


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long whoever sleeps wanted to."""
    found: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        if seconds:
            found.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", noted)
    return found
