"""What one controller can do: the code of kafkapy/controller with as many brokers and partitions as wanted.

    PYTHONPATH=. .venv/bin/python perf/controller_bench.py [--sizes 10:10000,100:100000] [--latency-ms 1] [--replicas 3]

The metadata store is in memory and counts; brokers are simulated: they answer at once, and each gets its requests
encoded, as over the network. A size is brokers:partitions. For each step the table has the CPU time of the controller
until all brokers have answered, the longest piece of it that held the event loop, the requests and rounds of requests
to ZooKeeper (pipelined, ten at a time), the requests to brokers with their bytes, and the time that all this takes when
a round of ZooKeeper takes `--latency-ms`. At the end stands the memory that a partition takes.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import math
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from kafkapy._speedups.protocol.encoder import encode_message
from kafkapy.clients.connections import EncodedRequest
from kafkapy.config.broker import BrokerConfig
from kafkapy.config.properties import Properties
from kafkapy.controller.admin_requests import NewTopic
from kafkapy.controller.broker_channel import BrokerChannel, LocalBrokerChannel
from kafkapy.controller.controller import KafkaController
from kafkapy.controller.events import broker_change, leader_balance
from kafkapy.controller.events.alter_partition import IsrChange
from kafkapy.controller.remote_channel import RemoteBrokerChannel
from kafkapy.controller.topic_admin import TopicAdmin
from kafkapy.metadata.broker_requests import (
    BrokerResponse,
    LeaderAndIsr,
    StopReplica,
    UpdateMetadata,
    UpdateMetadataPartition,
)
from kafkapy.metadata.cache import MetadataCache
from kafkapy.metadata.config_repository import ConfigRepository
from kafkapy.metadata.memory import MemoryStore, MemoryTree
from kafkapy.metadata.metadata_version import LATEST
from kafkapy.metadata.store import Operation, Stat, Watch, WatchCallback
from kafkapy.metadata.znodes import (
    PERSISTENT_PATHS,
    BrokerRegistration,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    broker_path,
    encode_broker,
    encode_partition_state,
    encode_topic,
    partition_path,
    partition_state_path,
    partitions_path,
    topic_path,
)
from kafkapy.metadata.zookeeper import MULTI_READ
from kafkapy.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from kafkapy.protocol.messages.stop_replica import StopReplicaResponse
from kafkapy.protocol.messages.update_metadata import UpdateMetadataResponse
from kafkapy.types import Endpoint, TopicPartition

IN_FLIGHT = 10
"""zookeeper.max.in.flight.requests."""
PER_TOPIC = 100
MOVED = 1000
"""Partitions of one reassignment, and of one AlterPartition."""
TICK_S = 0.002
MEASURED = 20_000
"""Partitions whose memory is traced."""


class Counts(NamedTuple):
    """What the store and the brokers were asked."""

    store_requests: int = 0
    store_rounds: float = 0.0
    broker_requests: int = 0
    broker_bytes: int = 0


class CountingStore(MemoryStore):
    """The memory store, which counts what ZooKeeper would be asked."""

    def __init__(self, tree: MemoryTree) -> None:
        super().__init__(tree)
        self.requests = 0
        self.rounds = 0.0

    def count(self, requests: int, beside: int = 1) -> None:
        """Requests that go together, or that go beside others of their kind."""
        self.requests += requests
        self.rounds += math.ceil(requests / IN_FLIGHT) / beside

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """As in the memory store."""
        self.count(math.ceil(len(paths) / MULTI_READ))
        return await super().get_many(paths)

    async def get(self, path: str) -> tuple[bytes, Stat]:
        """As in the memory store."""
        self.count(1)
        return await super().get(path)

    async def children(self, path: str) -> list[str]:
        """As in the memory store."""
        self.count(1)
        return await super().children(path)

    async def commit(self, operations: Sequence[Operation]) -> list[str | Stat | None]:
        """As in the memory store."""
        self.count(1)
        return await super().commit(operations)

    async def watch_node(self, path: str, callback: WatchCallback) -> Watch:
        """As in the memory store."""
        self.count(1, beside=IN_FLIGHT)
        return await super().watch_node(path, callback)


class Brokers:
    """All brokers but the controller's own: they answer without an error. An InterBrokerSender."""

    def __init__(self) -> None:
        self.requests = self.bytes = 0

    async def send(self, broker_id: int, request: Any, *, timeout_ms: int | None = None, version: int = 0) -> Any:
        """The answer; the request is encoded, as for the network."""
        del broker_id, timeout_ms
        body = request.body if isinstance(request, EncodedRequest) else encode_message(request, version)
        self.requests += 1
        self.bytes += len(body)
        await asyncio.sleep(0)
        if isinstance(request, EncodedRequest):
            return UpdateMetadataResponse()
        return LeaderAndIsrResponse() if isinstance(request, LeaderAndIsrRequest) else StopReplicaResponse()

    def disconnect(self, broker_id: int) -> None:
        """Nothing is connected."""

    async def close(self) -> None:
        """Nothing is connected."""


class OwnBroker:
    """The controller's own broker: its metadata cache."""

    def __init__(self) -> None:
        self.cache = MetadataCache()

    async def become_leader_or_follower(self, request: LeaderAndIsr) -> BrokerResponse:
        """Nothing: logs are no part of this."""
        del request
        return BrokerResponse()

    async def update_metadata(self, request: UpdateMetadata) -> BrokerResponse:
        """The metadata for clients."""
        await self.cache.update_in_slices(request)
        return BrokerResponse()

    async def stop_replicas(self, request: StopReplica) -> BrokerResponse:
        """Nothing."""
        del request
        return BrokerResponse()


class Simulation:
    """A cluster of simulated brokers, and one real controller: broker 0."""

    def __init__(self, brokers: int, partitions: int, replicas: int) -> None:
        self.brokers, self.replicas = brokers, replicas
        self.topics = [f"topic-{number:07}" for number in range(max(1, partitions // PER_TOPIC))]
        self.tree = MemoryTree()
        self.store = CountingStore(self.tree)
        self.senders = Brokers()
        self.own = OwnBroker()
        self._longest = 0.0

    def channel(self, broker: BrokerRegistration) -> BrokerChannel:
        """A ChannelFactory."""
        if broker.id == 0:
            return LocalBrokerChannel(self.own)
        return RemoteBrokerChannel(broker.id, self.senders, LATEST, "PLAINTEXT")

    async def populate(self) -> None:
        """Write what an earlier controller has left: all partitions have leaders, and all replicas are in sync."""
        await self.store.start()
        await self.store.ensure_paths(PERSISTENT_PATHS)
        for broker in range(1, self.brokers):
            await self.store.create(broker_path(broker), encode_broker(registration(broker)))
        stat = await self.store.exists("/brokers/topics")
        assert stat is not None
        stat = stat._replace(version=0)
        put = self.tree.put
        for place, topic in enumerate(self.topics):
            assigned = {number: ReplicaAssignment(self.placed(place, number)) for number in range(PER_TOPIC)}
            put(topic_path(topic), (encode_topic(TopicAssignment(UUID(int=place + 1), assigned)), stat))
            put(partitions_path(topic), (b"", stat))
            for number, each in assigned.items():
                state = PartitionState(each.replicas[0], 0, each.replicas, 0)
                put(partition_path(TopicPartition(topic, number)), (b"", stat))
                put(partition_state_path(TopicPartition(topic, number)), (encode_partition_state(state), stat))

    def placed(self, topic: int, number: int) -> tuple[int, ...]:
        """The brokers of a partition."""
        first = topic * PER_TOPIC + number
        return tuple((first + each * (1 + number % 7)) % self.brokers for each in range(self.replicas))

    async def start(self) -> None:
        """Elect the controller, which reads all that."""
        properties = Properties("bench")
        for key, value in {"broker.id": "0", "auto.leader.rebalance.enable": "false"}.items():
            properties.set(key, value)
        configs = ConfigRepository(self.store)
        await configs.start()
        self.controller = KafkaController(
            BrokerConfig.from_properties(properties), 0, self.store, self.own.cache, configs, self.channel
        )
        self.admin = TopicAdmin(self.controller)
        await self.controller.start(registration(0))

    async def settled(self) -> None:
        """Return when all events are done and all requests are answered."""
        for _ in range(3):
            await self.controller.submit("Idle", _nothing)
            await self.controller.current.channels.drain_all()
            await asyncio.sleep(0.01)

    async def measured(self, step: Callable[[], Awaitable[Any]]) -> tuple[float, float, Counts]:
        """CPU seconds, the longest hold of the loop, and what was asked."""
        gc.collect()
        gc.freeze()
        before = self.counts()
        ticker = asyncio.create_task(self._tick())
        await asyncio.sleep(0)
        begun = time.process_time()
        await step()
        await self.settled()
        took = time.process_time() - begun
        ticker.cancel()
        after = self.counts()
        return took, self._longest, Counts(*(b - a for a, b in zip(before, after, strict=True)))

    async def _tick(self) -> None:
        self._longest = 0.0
        while True:
            before = time.thread_time()
            await asyncio.sleep(TICK_S)
            self._longest = max(self._longest, time.thread_time() - before)

    def counts(self) -> Counts:
        """So far."""
        return Counts(self.store.requests, self.store.rounds, self.senders.requests, self.senders.bytes)

    # --- steps --------------------------------------------------------------------------------------------------------

    async def broker_fails(self) -> None:
        """A broker's session ends."""
        await self.store.delete(broker_path(1))
        await self.controller.submit(broker_change.NAME, lambda: broker_change.run(self.controller.current))

    async def broker_starts(self) -> None:
        """It registers again."""
        await self.store.create(broker_path(1), encode_broker(registration(1)))
        await self.controller.submit(broker_change.NAME, lambda: broker_change.run(self.controller.current))

    async def replicas_join(self) -> None:
        """Leaders take a broker's replicas into 1,000 ISRs again."""
        context = self.controller.context
        by_leader: dict[int, list[IsrChange]] = {}
        for partition, state in context.leadership.items():
            replicas = context.replicas_of(partition)
            if len(state.isr) < len(replicas):
                change = IsrChange(*partition, state.leader_epoch, replicas, state.version)
                by_leader.setdefault(state.leader, []).append(change)
        left = MOVED
        for leader, changes in by_leader.items():
            by_leader[leader] = changes[: max(0, left)]
            left -= len(changes)
        await self._ask(by_leader)

    async def _ask(self, by_leader: dict[int, list[IsrChange]]) -> None:
        """Each leader asks for its changes, all at once."""
        live = self.controller.context.live_brokers
        asked = [
            self.controller.alter_partitions(leader, live[leader].epoch, changes)
            for leader, changes in by_leader.items()
            if changes and leader in live
        ]
        await asyncio.gather(*asked)

    async def balance(self) -> None:
        """The leader balance check, and what it moves."""
        await self.controller.submit(leader_balance.NAME, lambda: leader_balance.run(self.controller.current))

    async def shuts_down(self) -> None:
        """A broker stops in an orderly way."""
        await self.controller.controlled_shutdown(2 % self.brokers)

    async def create(self) -> None:
        """One topic more."""
        done = await self.admin.create_topics([NewTopic("new", PER_TOPIC, self.replicas)], timeout_ms=600_000)
        assert not isinstance(done["new"], Exception), done

    async def reassign(self) -> None:
        """Partitions of one topic move to other brokers, whose replicas are in sync at once."""
        context = self.controller.context
        wanted = {
            each: tuple((broker + 3) % self.brokers for broker in context.replicas_of(each))
            for topic in self.topics[: MOVED // PER_TOPIC]
            for each in context.partitions_of(topic)
        }
        wanted = {p: to for p, to in wanted.items() if all(map(context.is_eligible, to))}
        await self.controller.alter_reassignments(wanted)
        by_leader: dict[int, list[IsrChange]] = {}
        for partition in wanted:
            state = context.leadership[partition]
            isr = tuple(dict.fromkeys((*state.isr, *wanted[partition])))
            change = IsrChange(*partition, state.leader_epoch, isr, state.version)
            by_leader.setdefault(state.leader, []).append(change)
        await self._ask(by_leader)

    async def delete(self) -> None:
        """The topic goes."""
        done = await self.admin.delete_topics(["new"], timeout_ms=600_000)
        assert done == {"new": None}, done


async def _nothing() -> None:
    return


def registration(broker: int) -> BrokerRegistration:
    """A broker's registration."""
    return BrokerRegistration(
        broker, (Endpoint("PLAINTEXT", f"broker-{broker}.example.com", 9092),), f"rack-{broker % 3}"
    )


async def memory(brokers: int, partitions: int, replicas: int) -> None:
    """What a partition takes in the controller, and in the metadata cache of each broker."""
    simulation = Simulation(brokers, partitions, replicas)
    await simulation.populate()
    tracemalloc.start()
    await simulation.start()
    await simulation.settled()
    gc.collect()
    both, _ = tracemalloc.get_traced_memory()
    cache = await copied(simulation.own.cache)
    gc.collect()
    cached = tracemalloc.get_traced_memory()[0] - both
    tracemalloc.stop()
    count = len(cache.snapshot.topics) * PER_TOPIC
    print(f"\n{count:,} partitions: {(both - cached) / count:,.0f} bytes per partition in the controller,")
    print(f"{cached / count:,.0f} in the metadata cache of each broker.")
    await simulation.controller.stop()


async def run(brokers: int, partitions: int, replicas: int, latency_s: float) -> None:
    """One size."""
    simulation = Simulation(brokers, partitions, replicas)
    await simulation.populate()
    print(f"\n### {brokers:,} brokers, {len(simulation.topics) * PER_TOPIC:,} partitions\n")
    print("| step | time, s | CPU, s | longest hold, ms | ZooKeeper requests | rounds | broker requests | MB |")
    print("|---|---|---|---|---|---|---|---|")

    async def shown(name: str, step: Callable[[], Awaitable[Any]]) -> None:
        cpu, hold, counts = await simulation.measured(step)
        total = cpu + counts.store_rounds * latency_s
        print(
            f"| {name} | {total:.2f} | {cpu:.2f} | {hold * 1000:.0f} | {counts.store_requests:,} | "
            f"{counts.store_rounds:,.0f} | {counts.broker_requests:,} | {counts.broker_bytes / 1e6:,.1f} |",
            flush=True,
        )

    await shown("controller failover", simulation.start)
    for name, step in (
        ("a topic of 100 partitions is created", simulation.create),
        ("that topic is deleted", simulation.delete),
        ("a broker fails", simulation.broker_fails),
        ("that broker starts again", simulation.broker_starts),
        ("1,000 of its replicas join the ISR", simulation.replicas_join),
        ("leader balance", simulation.balance),
        ("1,000 partitions are reassigned", simulation.reassign),
        ("a broker shuts down", simulation.shuts_down),
    ):
        await shown(name, step)
    await simulation.controller.stop()


async def copied(cache: MetadataCache) -> MetadataCache:
    """A cache with the same contents, of objects of its own, as another broker has it."""
    snapshot, other = cache.snapshot, MetadataCache()
    for topic in snapshot.topics.values():
        partitions = {
            TopicPartition(topic.name, each.partition): UpdateMetadataPartition(
                PartitionState(each.leader, each.leader_epoch, _copy(each.isr), 1, False, each.partition_epoch),
                _copy(each.replicas),
                _copy(each.offline_replicas),
            )
            for each in topic.partitions.values()
        }
        other.update(UpdateMetadata(0, 1, 1, {topic.name: topic.topic_id}, partitions, snapshot.brokers))
    return other


def _copy(replicas: tuple[int, ...]) -> tuple[int, ...]:
    return (*list(replicas),)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10:10000,100:100000")
    parser.add_argument("--latency-ms", type=float, default=1.0)
    parser.add_argument("--replicas", type=int, default=3)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    for size in options.sizes.split(","):
        brokers, partitions = map(int, size.split(":"))
        asyncio.run(run(brokers, partitions, options.replicas, options.latency_ms / 1000))
    asyncio.run(memory(10, MEASURED, options.replicas))


if __name__ == "__main__":
    main()
