"""Several brokers with a controller each, on one store, and a network between them that a test can cut.

A broker keeps what it is told: its roles, its logs and its metadata cache. Leaders change their ISR through the
controller, as `in_sync` and `out_of_sync` ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from controller.sessions import Ensemble, Session
from waiting import until

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.properties import Properties
from kafkapy.controller.broker_channel import BrokerChannel, LocalBrokerChannel
from kafkapy.controller.controller import KafkaController
from kafkapy.controller.events.alter_partition import IsrChange
from kafkapy.controller.topic_admin import TopicAdmin
from kafkapy.errors import ErrorCode
from kafkapy.metadata.broker_requests import (
    EPOCH_DURING_DELETE,
    NO_EPOCH,
    BrokerRequest,
    BrokerResponse,
    LeaderAndIsr,
    LeaderAndIsrPartition,
    StopReplica,
    UpdateMetadata,
)
from kafkapy.metadata.cache import MetadataCache
from kafkapy.metadata.config_repository import ConfigRepository
from kafkapy.metadata.metadata_version import LATEST, MetadataVersion
from kafkapy.metadata.store import MetadataStore
from kafkapy.metadata.znodes import BrokerRegistration, PartitionState
from kafkapy.types import Endpoint, TopicPartition


class Host:
    """A broker's side of the controller's requests, with the checks that keep old requests out."""

    def __init__(self, broker_id: int) -> None:
        self.id = broker_id
        self.cache = MetadataCache()
        self.hosted: dict[TopicPartition, LeaderAndIsrPartition] = {}
        self.logs: set[TopicPartition] = set()
        """The disk: it outlives the process."""
        self.failed: set[TopicPartition] = set()
        """Partitions whose log directory has failed."""
        self.epoch = -1
        self.controller_epoch = 0
        self.requests: list[BrokerRequest] = []
        self.stopped: list[tuple[TopicPartition, bool]] = []
        self.reachable = True
        self.keeps_logs = False
        """Every deletion of a log fails."""

    def restart(self) -> None:
        """What the process knew is gone."""
        self.cache, self.hosted, self.controller_epoch = MetadataCache(), {}, 0
        self.requests, self.stopped = [], []
        self.reachable = True

    def leads(self, partition: TopicPartition) -> bool:
        return partition in self.hosted and self.hosted[partition].state.leader == self.id

    def _refused(self, request: BrokerRequest) -> BrokerResponse | None:
        self.requests.append(request)
        if request.broker_epoch < self.epoch:
            return BrokerResponse(ErrorCode.STALE_BROKER_EPOCH)
        if request.controller_epoch < self.controller_epoch:
            return BrokerResponse(ErrorCode.STALE_CONTROLLER_EPOCH)
        self.controller_epoch = request.controller_epoch
        return None

    async def become_leader_or_follower(self, request: LeaderAndIsr) -> BrokerResponse:
        refused = self._refused(request)
        if refused is not None:
            return refused
        errors = {}
        for partition, each in request.partitions.items():
            known = self.hosted.get(partition)
            if partition in self.failed:
                self.hosted.pop(partition, None)
                errors[partition] = ErrorCode.KAFKA_STORAGE_ERROR
            elif self.id not in each.replicas:
                errors[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif known is not None and each.state.leader_epoch <= known.state.leader_epoch:
                errors[partition] = ErrorCode.STALE_CONTROLLER_EPOCH
            else:
                self.hosted[partition] = each
                self.logs.add(partition)
        return BrokerResponse(partition_errors=errors)

    async def update_metadata(self, request: UpdateMetadata) -> BrokerResponse:
        refused = self._refused(request)
        if refused is None:
            self.cache.update(request)
        return refused or BrokerResponse()

    async def stop_replicas(self, request: StopReplica) -> BrokerResponse:
        refused = self._refused(request)
        if refused is not None:
            return refused
        errors = {}
        for partition, each in request.partitions.items():
            known = self.hosted.get(partition)
            unchecked = each.leader_epoch in (EPOCH_DURING_DELETE, NO_EPOCH)
            if partition in self.failed or (each.delete and self.keeps_logs):
                errors[partition] = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            if known is not None and not unchecked and each.leader_epoch < known.state.leader_epoch:
                errors[partition] = ErrorCode.FENCED_LEADER_EPOCH
                continue
            self.hosted.pop(partition, None)
            self.stopped.append((partition, each.delete))
            if each.delete:
                self.logs.discard(partition)
        return BrokerResponse(partition_errors=errors)


class Network(BrokerChannel):
    """The channel from one broker's controller to another broker: it waits while the other one is unreachable."""

    def __init__(self, target: Host) -> None:
        self._target = target
        self._call = LocalBrokerChannel(target)

    async def send(self, request: BrokerRequest) -> BrokerResponse:
        while not self._target.reachable:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        return await self._call.send(request)


class Member:
    """One broker of the cluster: its host, its session, its controller."""

    def __init__(self, cluster: SeveralBrokers, broker_id: int, rack: str | None) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.rack = rack
        self.host = Host(broker_id)
        self.replaced = False

    def config(self, **more: str) -> BrokerConfig:
        """The broker's configuration, with more keys."""
        properties = Properties("test")
        for key, value in {"broker.id": str(self.id), **self.cluster.keys, **more}.items():
            properties.set(key.replace("_", "."), value)
        return BrokerConfig.from_properties(properties)

    async def start(self) -> None:
        cluster = self.cluster
        self.store = cluster.new_store()
        await self.store.start()
        self.configs = ConfigRepository(self.store)
        await self.configs.start()
        self.controller = KafkaController(
            self.config(),
            self.id,
            self.store,
            self.host.cache,
            self.configs,
            lambda broker: Network(cluster.members[broker.id].host),
            replaced=self._was_replaced,
            metadata_version=cluster.version,
        )
        self.admin = TopicAdmin(self.controller)
        await self.controller.start(
            BrokerRegistration(self.id, (Endpoint("PLAINTEXT", "h", 9000 + self.id),), self.rack)
        )
        self.host.epoch = self.controller.broker_epoch

    def _was_replaced(self) -> None:
        self.replaced = True

    async def stop(self) -> None:
        """End as a process does that closes its session."""
        await self.controller.stop()
        await self.configs.stop()
        await self.store.close()

    async def die(self) -> None:
        """End without a word; the session goes with it."""
        self.host.reachable = False
        await self.stop()


class SeveralBrokers:
    """Brokers 0, 1, 2, ... on one store. `new_store` gives each its session."""

    def __init__(
        self, new_store: Callable[[], MetadataStore], keys: Mapping[str, str], version: MetadataVersion
    ) -> None:
        self.new_store = new_store
        self.keys = keys
        self.version = version
        self.members: dict[int, Member] = {}

    def __getitem__(self, broker_id: int) -> Member:
        return self.members[broker_id]

    async def add(self, broker_id: int, rack: str | None = None) -> Member:
        member = self.members[broker_id] = Member(self, broker_id, rack)
        await member.start()
        await self.settled()
        return member

    async def restart(self, broker_id: int) -> None:
        """Start a broker again that has died, with its disk."""
        self[broker_id].host.restart()
        await self[broker_id].start()
        await self.settled()

    async def kill(self, broker_id: int) -> None:
        await self[broker_id].die()
        await self.controlled()
        await until(lambda: broker_id not in self.context.live_brokers, f"broker {broker_id} is gone")
        await self.settled()

    @property
    def active(self) -> Member:
        """The broker that controls."""
        found = [each for each in self.members.values() if each.host.reachable and each.controller.is_active]
        assert len(found) == 1, [each.id for each in found]
        return found[0]

    @property
    def context(self) -> Any:
        return self.active.controller.context

    async def controlled(self) -> None:
        """Return when exactly one reachable broker controls."""

        def one() -> bool:
            return sum(each.host.reachable and each.controller.is_active for each in self.members.values()) == 1

        await until(one, "one broker controls")

    async def settled(self) -> None:
        """Return when the controller's events, its requests, and what followed from them are done."""

        async def nothing() -> None:
            return

        await self.controlled()
        for _ in range(4):
            controller = self.active.controller
            await controller.submit("Idle", nothing)
            for broker_id in list(controller.context.live_brokers):
                if self[broker_id].host.reachable:
                    await controller.current.channels.drain(broker_id)
            await asyncio.sleep(0.002)

    # --- what the brokers do ------------------------------------------------------------------------------------------

    def state(self, partition: TopicPartition) -> PartitionState:
        """As the controller knows it."""
        state: PartitionState = self.context.leadership[partition]
        return state

    async def alter_isr(
        self, partition: TopicPartition, /, isr: tuple[int, ...], version: int = 3, **fields: Any
    ) -> Any:
        """The leader asks for an ISR, in a version of the request; the controller's answer."""
        state = self.state(partition)
        leader = self[state.leader]
        change = IsrChange(
            **{
                "topic": partition.topic,
                "partition": partition.partition,
                "leader_epoch": state.leader_epoch,
                "isr": isr,
                "partition_epoch": state.version,
                **fields,
            }
        )
        epoch = leader.controller.broker_epoch
        answers = await self.active.controller.alter_partitions(leader.id, epoch, [change], version)
        (answer,) = answers.values()
        await self.settled()
        return answer

    async def catch_up(self, partition: TopicPartition, *brokers: int) -> None:
        """Followers reach the leader's end, so the leader takes them into the ISR, one by one."""
        for broker in brokers:
            isr = self.state(partition).isr
            if broker not in isr:
                assert isinstance(await self.alter_isr(partition, (*isr, broker)), PartitionState)


ClusterTest = Callable[[SeveralBrokers], Awaitable[None]]


def run_several(test: ClusterTest, brokers: int = 3, version: MetadataVersion = LATEST, **keys: str) -> None:
    """Run a test on brokers 0 to `brokers` - 1; broker 0 controls."""

    async def started() -> None:
        ensemble = Ensemble()
        await ensemble.start()
        overrides = {key.replace("_", "."): value for key, value in keys.items()}
        cluster = SeveralBrokers(ensemble.session, overrides, version)
        for broker_id in range(brokers):
            await cluster.add(broker_id)
        try:
            await test(cluster)
        finally:
            for member in cluster.members.values():
                if member.host.reachable:
                    await member.stop()

    asyncio.run(started())


def session_of(member: Member) -> Session:
    """The session of a broker on the memory store."""
    store = member.store
    assert isinstance(store, Session)
    return store
