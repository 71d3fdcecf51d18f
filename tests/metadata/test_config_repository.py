"""Changes of configurations: none is lost, none costs more than the one before it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest

from kafkapy.errors import ErrorCode, code_of
from kafkapy.metadata import change_notifications
from kafkapy.metadata.config_repository import ConfigEdit, ConfigRepository, EntityChange
from kafkapy.metadata.memory import MemoryStore
from kafkapy.metadata.store import STORE_FAILED, MetadataStoreError, SetData, Stat, StoreUnavailableError
from kafkapy.metadata.znodes import CONFIG, CONFIG_CHANGES, CONFIG_GROUPS, config_path, encode_config

GROUP = "g"
WAIT_S = 60


class Store(MemoryStore):
    """Counts the nodes that are read, and fails as often as it is told."""

    def __init__(self, shared: bool = False) -> None:
        super().__init__()
        self.nodes_read = 0
        self.failures = 0
        self.error: type[MetadataStoreError] = StoreUnavailableError
        self.shared = shared

    @property
    def is_shared(self) -> bool:
        return self.shared

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        self.nodes_read += len(paths)
        if self.failures and any(CONFIG_CHANGES in path for path in paths):
            self.failures -= 1
            raise self.error(paths[0], "the read failed")
        found = await super().get_many(paths)
        await asyncio.sleep(0)  # others have their turn between a read and the write that follows
        return found


async def repository_on(store: Store) -> ConfigRepository:
    repository = ConfigRepository(store)
    await repository.start()
    return repository


def setting(key: str, value: str) -> Callable[[dict[str, str]], Mapping[str, str]]:
    return lambda current: {**current, key: value}


async def change_one(repository: ConfigRepository, edit: ConfigEdit) -> None:
    await repository.change(CONFIG_GROUPS, GROUP, edit)


async def change_two(repository: ConfigRepository, edit: ConfigEdit) -> None:
    await repository.change_entities([EntityChange(CONFIG_GROUPS, name, edit) for name in (GROUP, "other")])


Change = Callable[[ConfigRepository, ConfigEdit], Awaitable[None]]
WAYS = pytest.mark.parametrize("change", [change_one, change_two])


def run(work: Callable[[Store], Any], *, shared: bool = False) -> None:
    async def body() -> None:
        store = Store(shared)
        await store.start()
        await store.ensure_path(f"{CONFIG}/{CONFIG_GROUPS}")
        try:
            await asyncio.wait_for(work(store), WAIT_S)
        finally:
            await store.close()

    asyncio.run(body())


@WAYS
@pytest.mark.parametrize("brokers", [1, 3])
def test_concurrent_changes_of_an_entity_are_all_kept(brokers: int, change: Change) -> None:
    async def work(store: Store) -> None:
        repositories = [await repository_on(store) for _ in range(brokers)]
        await asyncio.gather(
            *(
                change(repository, setting(f"key-{index}-{number}", "1"))
                for index, repository in enumerate(repositories)
                for number in range(5)
            )
        )
        expected = {f"key-{index}-{number}" for index in range(brokers) for number in range(5)}
        assert (await repositories[0].fetch(CONFIG_GROUPS, GROUP)).keys() == expected
        for repository in repositories:
            await repository.process_changes()
            assert repository.entity(CONFIG_GROUPS, GROUP).keys() == expected
            await repository.stop()

    run(work, shared=brokers > 1)


def test_an_edit_that_refuses_changes_nothing() -> None:
    def refuse(current: dict[str, str]) -> dict[str, str]:
        raise ValueError(str(current))

    async def work(store: Store) -> None:
        repository = await repository_on(store)
        await repository.change(CONFIG_GROUPS, GROUP, setting("a", "1"))
        with pytest.raises(ValueError, match="'a': '1'"):
            await repository.change(CONFIG_GROUPS, GROUP, refuse)
        assert await repository.fetch(CONFIG_GROUPS, GROUP) == {"a": "1"}
        await repository.stop()

    run(work)


@pytest.mark.parametrize("shared", [False, True])
def test_a_change_reads_as_many_nodes_after_thousands_of_others(shared: bool) -> None:
    async def work(store: Store) -> None:
        repository = await repository_on(store)

        async def nodes_read(changes: int) -> float:
            before = store.nodes_read
            for number in range(changes):
                await repository.change(CONFIG_GROUPS, GROUP, setting("a", str(number)))
            return (store.nodes_read - before) / changes

        first = await nodes_read(20)
        await nodes_read(2_000)
        last = await nodes_read(20)
        assert last <= first + change_notifications.PURGED_AT_ONCE
        if not shared:
            assert last <= first
            assert await store.children(CONFIG_CHANGES) == []
        await repository.stop()

    run(work, shared=shared)


@pytest.mark.parametrize("error", STORE_FAILED)
def test_a_change_that_cannot_be_read_is_read_again(
    monkeypatch: pytest.MonkeyPatch, error: type[MetadataStoreError]
) -> None:
    monkeypatch.setattr(change_notifications, "RETRY_S", 0.01)

    async def work(store: Store) -> None:
        repository = await repository_on(store)
        heard: asyncio.Queue[Mapping[str, str]] = asyncio.Queue()

        async def listener(name: str, keys: Mapping[str, str]) -> None:
            heard.put_nowait(keys)

        repository.listen(CONFIG_GROUPS, listener)
        store.failures, store.error = 5, error
        with pytest.raises(error) as failure:
            await repository.change(CONFIG_GROUPS, GROUP, setting("a", "1"))
        if error is StoreUnavailableError:
            assert code_of(failure.value) is ErrorCode.REQUEST_TIMED_OUT
            assert code_of(failure.value).retriable
        assert await heard.get() == {"a": "1"}
        assert repository.entity(CONFIG_GROUPS, GROUP) == {"a": "1"}
        await repository.stop()

    run(work)


@WAYS
def test_a_change_that_others_always_overtake_can_be_asked_for_again(change: Change) -> None:
    async def work(store: Store) -> None:
        repository = await repository_on(store)
        await repository.change(CONFIG_GROUPS, GROUP, setting("a", "1"))
        path = config_path(CONFIG_GROUPS, GROUP)
        reads = store.get_many

        async def overtaken(paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
            found = await reads(paths)
            if path in paths:
                await store.commit([SetData(path, encode_config({"a": "others"}))])
            return found

        store.get_many = overtaken  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailableError) as failure:
            await change(repository, setting("a", "2"))
        assert code_of(failure.value) is ErrorCode.REQUEST_TIMED_OUT
        store.get_many = reads  # type: ignore[method-assign]
        assert await repository.fetch(CONFIG_GROUPS, GROUP) == {"a": "others"}
        await repository.stop()

    run(work)


def test_entities_that_change_together_are_told_and_removed_together() -> None:
    async def work(store: Store) -> None:
        repository = await repository_on(store)
        heard: list[tuple[str, Mapping[str, str]]] = []

        async def listener(name: str, keys: Mapping[str, str]) -> None:
            heard.append((name, keys))

        repository.listen(CONFIG_GROUPS, listener)
        await change_two(repository, setting("a", "1"))
        assert sorted(heard) == [(GROUP, {"a": "1"}), ("other", {"a": "1"})]
        await change_two(repository, setting("a", "1"))
        assert len(heard) == 2
        await change_two(repository, lambda keys: {})
        assert sorted(heard[2:]) == [(GROUP, {}), ("other", {})]
        assert await store.children(f"{CONFIG}/{CONFIG_GROUPS}") == []
        await repository.stop()

    run(work)
