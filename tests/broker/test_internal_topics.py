"""Coordinators of one broker of a cluster: the internal topics may be created, grown, moved and deleted by others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

from broker.conftest import config as broker_config

from kafkapy.broker.coordinators import Coordinators
from kafkapy.broker.internal_topics import InternalTopics
from kafkapy.config.broker import BrokerConfig
from kafkapy.coordinator.group.assignors.simple import SimpleAssignor
from kafkapy.coordinator.hosted import ShardState
from kafkapy.coordinator.partitioning import partition_of
from kafkapy.metadata.broker_requests import UpdateMetadata, UpdateMetadataPartition
from kafkapy.metadata.cache import MetadataCache
from kafkapy.metadata.memory import MemoryStore
from kafkapy.metadata.store import StoreUnavailableError
from kafkapy.metadata.znodes import (
    BrokerRegistration,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    encode_topic,
    topic_path,
)
from kafkapy.types import ZERO_UUID, Endpoint, TopicPartition

OFFSETS = "__consumer_offsets"
STATE = "__transaction_state"
ME, OTHER = 1, 2


def config() -> BrokerConfig:
    return broker_config(Path("/nowhere"), offsets_topic_num_partitions="50")


async def create(store: MemoryStore, topic: str, partitions: int) -> None:
    """What the controller, on whichever broker, writes for a new topic."""
    assignment = TopicAssignment(uuid4(), dict.fromkeys(range(partitions), ReplicaAssignment((ME, OTHER))))
    await store.create(topic_path(topic), encode_topic(assignment), make_parents=True)


def known(topic: str, leaders: dict[int, int], *, brokers: tuple[int, ...] = (ME, OTHER)) -> UpdateMetadata:
    return UpdateMetadata(
        OTHER,
        1,
        1,
        {topic: UUID(int=7)},
        {
            TopicPartition(topic, number): UpdateMetadataPartition(
                PartitionState(leader, 0, (ME, OTHER), 1), (ME, OTHER)
            )
            for number, leader in leaders.items()
        },
        {each: BrokerRegistration(each, (Endpoint("PLAINTEXT", "h", 1),)) for each in brokers},
    )


class Bench:
    """The Coordinators of broker 1, without logs: a shard that it loads fails, and shows that it was begun."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.cache = MetadataCache()
        self.replicas = SimpleNamespace(
            broker_id=ME, leadership_listeners=[], deletion_listeners=[], log=lambda partition: None
        )
        self.coordinators = Coordinators(
            config(),
            store,
            self.replicas,  # type: ignore[arg-type]
            self.cache,
            self._no_ids,
            lambda *_, **__: None,
            (),
            SimpleAssignor(),
            self._connect,
        )

    async def _no_ids(self) -> int:
        raise AssertionError("no producer asked")

    def _connect(self, purpose: str) -> Any:
        raise AssertionError(f"nothing is sent: {purpose}")

    def lead(self, topic: str, number: int, epoch: int, leads: bool = True) -> None:
        for listener in self.replicas.leadership_listeners:
            listener(TopicPartition(topic, number), epoch, leads)

    @property
    def led(self) -> dict[int, ShardState]:
        return self.coordinators.group.runtime.states()


def run(test: Callable[[Bench], Coroutine[Any, Any, None]], store: MemoryStore | None = None) -> None:
    async def body() -> None:
        opened = store or MemoryStore()
        await opened.start()
        bench = Bench(opened)
        await bench.coordinators.start()
        try:
            await test(bench)
        finally:
            bench.coordinators.stop()
            await bench.coordinators.close()

    asyncio.run(body())


async def until(condition: Callable[[], Any]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came")


def test_the_number_of_an_existing_topic_counts_and_not_the_configuration() -> None:
    async def test() -> None:
        store = MemoryStore()
        await store.start()
        topics = InternalTopics(config(), store)
        await topics.start()
        assert (topics.count(OFFSETS), topics.is_known(OFFSETS)) == (50, False)
        assert not await topics.look_for(OFFSETS)
        await create(store, OFFSETS, 7)
        assert await topics.look_for(OFFSETS)
        assert (topics.count(OFFSETS), topics.is_known(OFFSETS)) == (7, True)
        topics.forget(OFFSETS)
        assert topics.count(OFFSETS) == 50
        again = InternalTopics(config(), store)
        await again.start()
        assert again.count(OFFSETS) == 7

    asyncio.run(test())


def test_a_topic_that_another_broker_created_is_coordinated_with_its_number() -> None:
    async def test(bench: Bench) -> None:
        bench.lead(OFFSETS, 3, 0)
        assert bench.led == {}, "not before it is known how groups are spread"
        await create(bench.store, OFFSETS, 7)
        await until(lambda: 3 in bench.led)
        assert bench.coordinators.group.partition_for("group") == partition_of("group", 7)

    run(test)


def test_changes_of_leadership_keep_their_order_while_the_number_is_read() -> None:
    async def test(bench: Bench) -> None:
        await create(bench.store, OFFSETS, 7)
        bench.lead(OFFSETS, 3, 5)
        bench.lead(OFFSETS, 4, 5)
        # The metadata tell of the topic at the same time.
        bench.cache.update(known(OFFSETS, {3: ME, 4: ME}))
        bench.lead(OFFSETS, 3, 6, False)
        await until(lambda: 4 in bench.led)
        await asyncio.sleep(0)
        assert set(bench.led) == {4}

    run(test)


def test_a_store_that_fails_is_asked_again() -> None:
    class Failing(MemoryStore):
        failures = 0

        async def get_many(self, paths: Any, *more: Any, **named: Any) -> Any:
            if self.failures:
                self.failures -= 1
                raise StoreUnavailableError("memory", "away")
            return await super().get_many(paths, *more, **named)

    store = Failing()

    async def test(bench: Bench) -> None:
        await create(bench.store, OFFSETS, 7)
        store.failures = 1
        bench.lead(OFFSETS, 3, 0)
        await until(lambda: 3 in bench.led)
        assert bench.coordinators.partition_count(OFFSETS) == 7

    run(test, store)


def test_the_metadata_tell_of_a_topic_that_is_led_elsewhere_only() -> None:
    async def test(bench: Bench) -> None:
        await create(bench.store, STATE, 3)
        coordinator_of = bench.coordinators._coordinator_of
        assert coordinator_of("t") is None
        bench.cache.update(known(STATE, dict.fromkeys(range(3), OTHER)))
        assert coordinator_of("t") == -1, "not known how ids are spread"
        await until(lambda: coordinator_of("t") == OTHER)
        assert bench.coordinators.partition_count(STATE) == 3
        bench.cache.update(known(STATE, dict.fromkeys(range(3), OTHER), brokers=(ME,)))
        assert coordinator_of("t") == -1, "its broker has gone"

    run(test)


def test_a_deleted_topic_may_come_back_with_another_number() -> None:
    async def test(bench: Bench) -> None:
        await create(bench.store, OFFSETS, 7)
        bench.lead(OFFSETS, 3, 0)
        await until(lambda: 3 in bench.led)
        for listener in bench.replicas.deletion_listeners:
            listener({OFFSETS: ZERO_UUID})
        bench.lead(OFFSETS, 3, 0, False)
        assert bench.led == {}
        await bench.store.delete(topic_path(OFFSETS))
        await create(bench.store, OFFSETS, 2)
        bench.lead(OFFSETS, 1, 0)
        await until(lambda: 1 in bench.led)
        assert bench.coordinators.partition_count(OFFSETS) == 2

    run(test)


# --- offsets of deleted topics ---------------------------------------------------------------------------------------


def test_the_controller_waits_for_the_offsets_that_it_coordinates_only() -> None:
    async def test(bench: Bench) -> None:
        await create(bench.store, OFFSETS, 2)
        bench.cache.update(known(OFFSETS, {0: OTHER, 1: OTHER}))
        await asyncio.wait_for(bench.coordinators.forget_offsets({"gone"}, 2), 60)
        bench.cache.update(known(OFFSETS, {1: ME}))
        waiting = asyncio.ensure_future(bench.coordinators.forget_offsets({"gone"}, 2))
        await asyncio.sleep(0.05)
        assert not waiting.done(), "its partition cannot be written"
        # Another broker leads it from now on, and hears of the deletion by the metadata.
        bench.cache.update(known(OFFSETS, {1: OTHER}))
        await asyncio.wait_for(waiting, 60)

    run(test)


def test_a_partition_that_comes_later_is_swept_for_topics_deleted_before() -> None:
    async def test(bench: Bench) -> None:
        await create(bench.store, OFFSETS, 2)
        swept: list[Any] = []
        group = bench.coordinators.group
        group.topics_deleted = lambda topics, partitions=None: swept.append((sorted(topics), partitions))  # type: ignore[method-assign, assignment]
        bench.cache.update(known(OFFSETS, {0: OTHER, 1: OTHER}))
        bench.cache.update(known("again", {0: OTHER}))
        for listener in bench.replicas.deletion_listeners:
            listener(dict.fromkeys(("gone", "again"), ZERO_UUID))
        swept.clear()
        await until(lambda: bench.coordinators.internal_topics.is_known(OFFSETS))
        bench.lead(OFFSETS, 1, 4)
        assert swept == [(["gone"], [1])], "a topic that exists again keeps its offsets"
        bench.lead(OFFSETS, 1, 5)
        assert len(swept) == 1

    run(test)
