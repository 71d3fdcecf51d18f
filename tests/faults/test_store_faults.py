"""Each operation of the metadata store goes wrong once, in each way, while topics come, change and go and the
controllership moves: afterwards every partition is led or there is none, deletions are complete, and what was
acknowledged holds.

The operations are enumerated. `make test` spoils each in one way, `make soak` in all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from faults.faulty_store import KINDS, FaultyStore
from replica.conftest import Broker

from kafkapy.controller import controller, topic_deletion
from kafkapy.controller.admin_requests import CreatedTopic, NewPartitions, NewTopic
from kafkapy.errors import KafkaError
from kafkapy.metadata import change_notifications
from kafkapy.metadata.memory import MemoryStore
from kafkapy.metadata.store import Delete, MetadataStoreError
from kafkapy.metadata.znodes import CONFIG_TOPICS, CONTROLLER
from kafkapy.replica import replica_manager
from kafkapy.types import TopicPartition

WAIT_S = 30
TIMEOUT_MS = 150
"""Of requests whose outcome may be lost: nothing depends on it but how long the tests take."""


class Run:
    """One run of the scenario, with what was acknowledged in it."""

    def __init__(self, directory: Path) -> None:
        self.broker = Broker(directory, {"num.recovery.threads.per.data.dir": "1"})
        self.store = FaultyStore()
        self.broker.store = self.store
        self.partitions: dict[str, set[int]] = {}
        """What may be, by topic: numbers of partitions, 0 for no topic."""
        self.settings: dict[str, set[str | None]] = {}

    async def create(self, topic: str, partitions: int) -> None:
        before = self.partitions.get(topic, {0})
        self.partitions[topic] = before | {partitions}
        new = NewTopic(topic, partitions, 1, configs={"retention.ms": "1000"})
        answer = await self.ask(lambda: self.broker.topic_admin.create_topics([new], timeout_ms=TIMEOUT_MS))
        if answer is not None and isinstance(answer[topic], CreatedTopic):
            self.partitions[topic] = {partitions}
            self.settings[topic] = {"1000"}
        else:
            self.settings.setdefault(topic, set()).add("1000")

    async def grow(self, topic: str, partitions: int) -> None:
        before = self.partitions[topic]
        self.partitions[topic] = before | {partitions}
        ask = NewPartitions(topic, partitions)
        answer = await self.ask(lambda: self.broker.topic_admin.create_partitions([ask], timeout_ms=TIMEOUT_MS))
        if answer is not None and answer[topic] is None:
            self.partitions[topic] = {partitions}

    async def delete(self, topic: str) -> None:
        self.partitions[topic] = self.partitions[topic] | {0}
        answer = await self.ask(lambda: self.broker.topic_admin.delete_topics([topic], timeout_ms=TIMEOUT_MS))
        if answer is not None and answer[topic] is None:
            self.partitions[topic] = {0}

    async def configure(self, topic: str, value: str) -> None:
        self.settings[topic] = self.settings.get(topic, set()) | {value}
        change = self.broker.configs.change

        async def run() -> bool:
            await change(CONFIG_TOPICS, topic, lambda _: {"retention.ms": value})
            return True

        if await self.ask(run):
            self.settings[topic] = {value}

    async def elect(self) -> None:
        """The controllership is lost, as with a session that has ended."""
        epoch = self.broker.controller.epoch
        await MemoryStore.commit(self.store, [Delete(CONTROLLER)])
        await until(lambda: self.broker.controller.is_active and self.broker.controller.epoch > epoch)

    async def ask(self, request: Callable[[], Awaitable[Any]]) -> Any:
        """The answer; None when there is none, or an error."""
        try:
            return await request()
        except (MetadataStoreError, KafkaError, TimeoutError):
            return None

    async def scenario(self) -> None:
        await self.create("a", 2)
        await self.create("b", 1)
        await self.configure("a", "2000")
        await self.grow("a", 3)
        await self.elect()
        await self.delete("b")
        await self.create("b", 2)
        await self.create("c", 1)
        await self.delete("a")
        await self.elect()
        await self.create("d", 1)

    # --- looking ----------------------------------------------------------------------------------------------------

    def problem(self) -> str | None:
        """What is not in order yet; None when all is."""
        nodes, cache, broker = self.store._nodes, self.broker.cache, self.broker
        if CONTROLLER not in nodes or not broker.controller.is_active:
            return "no controller"
        marks = [path for path in nodes if path.startswith("/admin/delete_topics/")]
        if marks:
            return f"deletions are not complete: {marks}"
        context = broker.controller.context
        stored = set(self.store._names["/brokers/topics"])
        if stored != set(cache.topics()) or stored != set(context.assignments):
            return f"topics: {stored} in the store, {set(cache.topics())} for clients, {set(context.assignments)}"
        logs = {(each.topic, each.partition) for each in broker.log_manager.logs()}
        led = {tuple(each) for each, partition in broker.replicas.partitions.items() if partition.is_leader}
        for topic in stored:
            numbers = set(context.assignments[topic])
            leaders = {number: each.leader for number, each in cache.topic(topic).partitions.items()}
            if leaders != dict.fromkeys(numbers, 0):
                return f"{topic}: leaders {leaders} of {numbers}"
            if not {(topic, number) for number in numbers} <= logs & led:
                return f"{topic}: not hosted"
        if {topic for topic, _ in logs} != stored:
            return f"logs of { ({topic for topic, _ in logs} - stored) }"
        return None

    def check_acknowledged(self) -> None:
        for topic, possible in self.partitions.items():
            known = self.broker.cache.topic(topic)
            assert (0 if known is None else known.partition_count) in possible, topic
            if known is not None:
                found = self.broker.configs.topic(topic).get("retention.ms")
                assert found in self.settings[topic], (topic, found, self.settings[topic])
                assert self.broker.log_manager.logs()[TopicPartition(topic, 0)].config.retention_ms == int(found)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.001)


async def run_once(directory: Path, at: int, kind: str) -> tuple[int, str]:
    """The scenario with one operation spoiled: how many operations there were, and which went wrong."""
    run = Run(directory)
    await run.broker.start()
    try:
        run.store.arm(at, kind)
        try:
            await run.scenario()
        except TimeoutError:
            raise AssertionError(f"{kind}, {run.store.spoiled}: no controller: {run.problem()}") from None
        count = run.store.count
        run.store.disarm()
        spoiled = "; ".join(run.store.spoiled) or "nothing"
        try:
            await until(lambda: run.problem() is None)
        except TimeoutError:
            raise AssertionError(f"{kind}, {spoiled}: {run.problem()}") from None
        try:
            run.check_acknowledged()
        except AssertionError as error:
            raise AssertionError(f"{kind}, {spoiled}: {error}") from error
        return count, spoiled
    finally:
        run.store.disarm()
        await run.broker.stop()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Pauses before another try are as short as can be."""
    monkeypatch.setattr(controller, "RETRY_MS", 1)
    monkeypatch.setattr(topic_deletion, "RETRY_S", 0.001)
    monkeypatch.setattr(replica_manager, "STORE_RETRY_S", 0.001)
    monkeypatch.setattr(change_notifications, "RETRY_S", 0.001)
    caplog.set_level(logging.CRITICAL)


def sweep(directory: Path, kinds_of: Callable[[int], tuple[str, ...]]) -> None:
    async def run() -> None:
        count, _ = await run_once(directory / "none", -1, "unavailable")
        assert count > 60
        failures = []
        for at in range(count):
            for kind in kinds_of(at):
                try:
                    await run_once(directory / f"{at}-{kind}", at, kind)
                except AssertionError as error:
                    failures.append(str(error))
        assert not failures, f"{len(failures)} of {count}:\n" + "\n".join(failures[:10])

    asyncio.run(run())


def test_each_operation_of_the_store_goes_wrong_once(fast_directory: Path) -> None:
    sweep(fast_directory, lambda at: (KINDS[at % len(KINDS)],))


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_each_operation_of_the_store_goes_wrong_in_each_way(fast_directory: Path, kind: str) -> None:
    sweep(fast_directory, lambda _: (kind,))
