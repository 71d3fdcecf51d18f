"""The metadata store fails once at any moment: partitions are led or absent in the end, never neither."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.controller import controller
from kafkapy.controller.admin_requests import CreatedTopic, NewPartitions, NewTopic
from kafkapy.errors import ErrorCode, KafkaError
from kafkapy.metadata.broker_requests import StopReplica
from kafkapy.metadata.embedded import EmbeddedStore
from kafkapy.metadata.store import STORE_FAILED, MetadataStoreError, Operation, Stat, StoreUnavailableError
from kafkapy.replica import replica_manager

WAIT_S = 60


class FailingStore(EmbeddedStore):
    """Fails the n-th call after `arm`, before it is done or, with `late`, after that: its answer is lost."""

    left = -1
    late = False
    error: type[MetadataStoreError] = StoreUnavailableError

    def arm(self, number: int, late: bool, error: type[MetadataStoreError] = StoreUnavailableError) -> None:
        self.left, self.late, self.error = number, late, error

    def _is_due(self) -> bool:
        self.left -= 1
        return self.left == -1

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        if self._is_due():
            raise self.error("/", "the read failed")
        return await super().get_many(paths)

    async def children(self, path: str) -> list[str]:
        if self._is_due():
            raise self.error(path, "the read failed")
        return await super().children(path)

    async def commit(self, operations: Sequence[Operation]) -> list[str | Stat | None]:
        if not self._is_due():
            return await super().commit(operations)
        if self.late:
            await super().commit(operations)
        raise self.error(operations[0].path, "the write failed")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.005)


def leaders(broker: Any, topic: str) -> list[int]:
    known = broker.cache.topic(topic)
    return [] if known is None else [each.leader for each in known.partitions.values()]


@pytest.mark.parametrize("error", STORE_FAILED)
@pytest.mark.parametrize("late", [False, True])
def test_a_call_that_fails_once_leaves_no_partition_without_a_leader(
    make_broker: Any, monkeypatch: pytest.MonkeyPatch, late: bool, error: type[MetadataStoreError]
) -> None:
    monkeypatch.setattr(controller, "RETRY_MS", 20)
    monkeypatch.setattr(replica_manager, "STORE_RETRY_S", 0.01)

    async def settled(broker: Any, topic: str) -> None:
        """Whatever was answered: the topic's partitions have leaders that have logs, or there is no topic."""
        broker.store.left = -1
        in_store = {
            name: len(found[0].partitions)
            for name, found in (
                await broker.controller.store.topic_assignments(
                    [name for name in await broker.controller.store.topics() if name == topic]
                )
            ).items()
        }
        if topic not in in_store:
            assert leaders(broker, topic) == []
            return
        await until(lambda: leaders(broker, topic) == [0] * in_store[topic])
        await until(lambda: sum(tp.topic == topic for tp in broker.log_manager.logs()) == in_store[topic])

    async def run() -> None:
        broker = make_broker()
        broker.store = FailingStore(broker.store.path.parent)
        await broker.start()
        failed = 0
        try:
            for number in range(25):
                topic = f"t{number}"
                broker.store.arm(number, late, error)
                for ask in (
                    lambda topic=topic: broker.topic_admin.create_topics([NewTopic(topic, 2, 1)], timeout_ms=200),
                    lambda topic=topic: broker.topic_admin.create_partitions([NewPartitions(topic, 3)], timeout_ms=200),
                ):
                    try:
                        await ask()
                    except (*STORE_FAILED, KafkaError):
                        failed += 1
                await settled(broker, topic)
        finally:
            broker.store.left = -1
            await broker.stop()
        assert failed >= 2

    asyncio.run(run())


def test_what_others_do_on_worker_threads_does_not_delay_an_election(make_broker: Any) -> None:
    """Logs are opened and deleted on threads of their own: the loop's own ones may all be held by a slow disk."""

    async def run() -> None:
        broker = make_broker()
        await broker.start()
        loop, release = asyncio.get_running_loop(), threading.Event()
        loop.set_default_executor(ThreadPoolExecutor(2))
        held = [loop.run_in_executor(None, release.wait) for _ in range(4)]
        try:
            created = await broker.topic_admin.create_topics([NewTopic("t", 2, 1)], timeout_ms=WAIT_S * 1000)
            assert isinstance(created["t"], CreatedTopic)
            assert await broker.topic_admin.delete_topics(["t"], timeout_ms=WAIT_S * 1000) == {"t": None}
        finally:
            release.set()
            await asyncio.gather(*held)
            await broker.stop()

    asyncio.run(run())


@pytest.mark.parametrize("error", STORE_FAILED)
def test_the_controller_hears_of_a_failed_directory_when_the_store_answers_again(
    make_broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[MetadataStoreError]
) -> None:
    monkeypatch.setattr(replica_manager, "STORE_RETRY_S", 0.01)

    async def run() -> None:
        broker = make_broker(log_dirs=f"{tmp_path / 'a'},{tmp_path / 'b'}")
        broker.store = FailingStore(broker.store.path.parent)
        await broker.start()
        try:
            await broker.topic_admin.create_topics([NewTopic("t", 4, 1)])
            failed = broker.log_manager.dirs[0].path
            broker.store.arm(0, False, error)
            broker.log_manager.table.fail_dir(failed, OSError(5, "broken"))
            await until(lambda: sorted(leaders(broker, "t")) == [-1, -1, 0, 0])
        finally:
            broker.store.left = -1
            await broker.stop()

    asyncio.run(run())


def test_the_operator_is_told_while_the_controller_cannot_hear_of_a_failed_directory(
    make_broker: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The store's failures end; any other is a mistake, which is not made again and again."""
    monkeypatch.setattr(replica_manager, "STORE_RETRY_S", 0)

    async def run() -> None:
        broker = make_broker()
        await broker.start()
        replicas = broker.replicas
        failures = [*(each("/", "no answer") for each in STORE_FAILED), ValueError("a mistake")]
        tried = len(failures)

        async def create(*_: Any, **how: Any) -> None:
            raise failures.pop(0)

        known, replicas._store = replicas._store, SimpleNamespace(create=create)
        try:
            await replicas._tell_controller()
        finally:
            replicas._store = known
            await broker.stop()
        told = [each for each in caplog.records if "cannot learn of the failed log directory" in each.getMessage()]
        assert [each.levelname for each in told] == ["WARNING"] * (tried - 1) + ["ERROR"]
        assert (
            told[0]
            .getMessage()
            .startswith("The controller cannot learn of the failed log directory yet; the broker retries: ")
        )
        assert "no answer" in told[0].getMessage()
        assert told[-1].exc_info is not None

    asyncio.run(run())


def test_settings_of_topics_are_read_until_the_store_answers(
    make_broker: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(replica_manager, "STORE_RETRY_S", 0)

    async def run() -> None:
        broker = make_broker()
        await broker.start()
        failures = [each("/", "no answer") for each in STORE_FAILED]
        asked: list[tuple[str, set[str]]] = []

        async def reload_topics(topics: set[str]) -> None:
            asked.append(("reload", topics))
            if failures:
                raise failures.pop(0)

        async def load_topics(topics: set[str]) -> None:
            asked.append(("load", topics))

        monkeypatch.setattr(broker.configs, "reload_topics", reload_topics)
        monkeypatch.setattr(broker.configs, "load_topics", load_topics)
        try:
            await broker.replicas._read_configs({"fresh"}, {"other"})
        finally:
            monkeypatch.undo()
            await broker.stop()
        assert asked == [("reload", {"fresh"})] * (len(STORE_FAILED) + 1) + [("load", {"other"})]
        told = [each for each in caplog.records if "Topic configurations cannot be read" in each.getMessage()]
        assert [each.levelname for each in told] == ["WARNING"] * len(STORE_FAILED)
        assert "the broker retries: " in told[0].getMessage() and "no answer" in told[0].getMessage()

    asyncio.run(run())


def test_the_operator_is_told_of_a_controller_that_is_none_any_more(
    make_broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        broker = make_broker()
        await broker.start()
        latest = broker.controller.epoch
        try:
            answer = await broker.replicas.stop_replicas(StopReplica(7, latest - 1, 1, {}))
        finally:
            await broker.stop()
        assert answer.error is ErrorCode.STALE_CONTROLLER_EPOCH
        message = f"The broker refused StopReplica of controller 7 with epoch {latest - 1}: the latest controller has "
        assert ("WARNING", f"{message}epoch {latest}") in [(e.levelname, e.getMessage()) for e in caplog.records]

    asyncio.run(run())
