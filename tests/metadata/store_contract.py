"""The contract of every metadata store, as tests. A test module derives a class for each store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kafkapy.metadata.store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SetData,
    WatchEvent,
    WatchEventType,
)

Test = Callable[[MetadataStore], Awaitable[None]]


async def settle() -> None:
    """Let callbacks run that were queued on the loop."""
    for _ in range(5):
        await asyncio.sleep(0.002)


class StoreContract:
    """What every store does. A subclass says how one is opened."""

    def run(self, test: Test) -> None:
        raise NotImplementedError

    def test_a_node_keeps_its_value_and_counts_its_changes(self) -> None:
        async def test(store: MetadataStore) -> None:
            assert await store.create("/a", b"one") == "/a"
            value, stat = await store.get("/a")
            assert (value, stat.version, stat.ephemeral_owner) == (b"one", 0, 0)
            changed = await store.set("/a", b"two")
            assert changed.version == 1
            assert changed.created_transaction == stat.created_transaction
            assert changed.modified_transaction > stat.modified_transaction
            assert await store.get("/a") == (b"two", changed)

        self.run(test)

    def test_the_last_transaction_is_that_of_the_last_change(self) -> None:
        async def test(store: MetadataStore) -> None:
            await store.create("/a")
            first = await store.last_transaction()
            assert first == (await store.get("/a"))[1].created_transaction
            assert await store.last_transaction() == first
            changed = await store.set("/a", b"x")
            assert await store.last_transaction() == changed.modified_transaction > first

        self.run(test)

    def test_a_create_needs_the_parent_and_a_free_name(self) -> None:
        async def test(store: MetadataStore) -> None:
            with pytest.raises(NoNodeError):
                await store.create("/a/b")
            assert await store.create("/a/b", b"x", make_parents=True) == "/a/b"
            assert (await store.get("/a"))[0] == b""
            with pytest.raises(NodeExistsError):
                await store.create("/a/b")

        self.run(test)

    def test_a_write_with_another_version_is_refused(self) -> None:
        async def test(store: MetadataStore) -> None:
            await store.create("/a", b"0")
            await store.set("/a", b"1", 0)
            with pytest.raises(BadVersionError):
                await store.set("/a", b"2", 0)
            with pytest.raises(BadVersionError):
                await store.delete("/a", 0)
            assert (await store.get("/a"))[0] == b"1"
            await store.delete("/a", 1)
            assert await store.exists("/a") is None

        self.run(test)

    def test_missing_nodes_are_reported(self) -> None:
        async def test(store: MetadataStore) -> None:
            for attempt in (store.get("/no"), store.set("/no", b""), store.delete("/no"), store.children("/no")):
                with pytest.raises(NoNodeError):
                    await attempt
            assert await store.exists("/no") is None
            assert await store.get_many(["/no", "/no/no"]) == [None, None]

        self.run(test)

    @pytest.mark.parametrize("path", ["a", "/", "/a/", "//a", "", "/a\x00"])
    def test_malformed_paths_are_refused(self, path: str) -> None:
        async def test(store: MetadataStore) -> None:
            calls = [
                lambda: store.create(path),
                lambda: store.set(path, b""),
                lambda: store.delete(path),
                lambda: store.commit([Check(path, 0)]),
                lambda: store.get(path),
                lambda: store.exists(path),
                lambda: store.get_many(["/ok", path]),
                lambda: store.get_many([*["/ok"] * 100, path]),
                lambda: store.watch_node(path, lambda event: None),
            ]
            if path != "/":
                calls += [lambda: store.children(path), lambda: store.watch_children(path, lambda event: None)]
            for call in calls:
                with pytest.raises(ValueError, match="not a path"):
                    await call()

        self.run(test)

    def test_a_node_with_children_is_not_deleted(self) -> None:
        async def test(store: MetadataStore) -> None:
            await store.create("/a/b", make_parents=True)
            with pytest.raises(NotEmptyError):
                await store.delete("/a")
            assert await store.subtree("/a") == ["/a/b", "/a"]
            await store.commit([Delete(path) for path in await store.subtree("/a")])
            assert await store.exists("/a") is None

        self.run(test)

    def test_children_are_names_in_order_and_only_the_next_level(self) -> None:
        async def test(store: MetadataStore) -> None:
            for name in ("b", "a-1", "a", "a.b"):
                await store.create(f"/top/{name}", make_parents=True)
            await store.create("/top/a/deep")
            await store.create("/topmost")
            assert await store.children("/top") == sorted(["b", "a-1", "a", "a.b"])
            assert await store.children("/top/b") == []

        self.run(test)

    def test_paths_are_made_with_their_parents_whoever_else_makes_them(self) -> None:
        async def test(store: MetadataStore) -> None:
            await store.create("/a", b"kept")
            paths = ["/a/b/c", "/a/b", "/x/y", "/a"]
            await asyncio.gather(*(store.ensure_paths(paths) for _ in range(4)))
            assert None not in await store.get_many([*paths, "/x"])
            assert (await store.get("/a"))[0] == b"kept"

        self.run(test)

    def test_sequential_nodes_are_numbered_upwards_for_ever(self) -> None:
        async def test(store: MetadataStore) -> None:
            await store.create("/q")
            first = await store.create("/q/n_", sequential=True)
            second = await store.create("/q/n_", b"v", sequential=True)
            assert len(first) == len("/q/n_") + 10
            assert first < second
            await store.delete(second)
            assert await store.create("/q/n_", sequential=True) > second

        self.run(test)

    def test_a_commit_applies_everything_or_nothing(self) -> None:
        async def test(store: MetadataStore) -> None:
            await store.create("/a", b"0")
            with pytest.raises(BadVersionError) as error:
                await store.commit([Create("/b"), SetData("/a", b"1"), Check("/a", 7)])
            assert error.value.path == "/a"
            assert await store.exists("/b") is None
            assert (await store.get("/a"))[1].version == 0
            with pytest.raises(NodeExistsError):
                await store.commit([Delete("/a"), Create("/c"), Create("/c")])
            assert await store.exists("/a") is not None
            results = await store.commit(
                [Check("/a", 0), Create("/b"), Create("/b/c"), SetData("/a", b"1"), Delete("/b/c")]
            )
            assert results[0] is None
            assert results[1:3] == ["/b", "/b/c"]
            assert results[4] is None
            assert (await store.get("/a"))[0] == b"1"

        self.run(test)

    def test_watches_tell_of_every_kind_of_change_until_cancelled(self) -> None:
        async def test(store: MetadataStore) -> None:
            await store.create("/w")
            seen: list[WatchEvent] = []
            node = await store.watch_node("/w/x", seen.append)
            children = await store.watch_children("/w", seen.append)
            await store.create("/w/x")
            await wait_for(lambda: len(seen) >= 2)
            assert set(seen) == {WatchEvent(WatchEventType.CREATED, "/w/x"), WatchEvent(WatchEventType.CHILDREN, "/w")}
            seen.clear()
            await store.set("/w/x", b"1")
            await wait_for(lambda: bool(seen))
            assert seen == [WatchEvent(WatchEventType.CHANGED, "/w/x")]
            seen.clear()
            children.cancel()
            await store.delete("/w/x")
            await wait_for(lambda: bool(seen))
            assert seen == [WatchEvent(WatchEventType.DELETED, "/w/x")]
            seen.clear()
            node.cancel()
            await store.create("/w/x")
            await settle()
            assert seen == []
            with pytest.raises(NoNodeError):
                await store.watch_children("/nowhere", seen.append)

        self.run(test)

    def test_concurrent_conditional_writes_lose_no_update(self) -> None:
        async def test(store: MetadataStore) -> None:
            await store.create("/n", b"0")

            async def add() -> None:
                while True:
                    value, stat = await store.get("/n")
                    try:
                        await store.set("/n", str(int(value) + 1).encode(), stat.version)
                        return
                    except BadVersionError:
                        continue

            await asyncio.gather(*(add() for _ in range(10)))
            value, stat = await store.get("/n")
            assert (value, stat.version) == (b"10", 10)

        self.run(test)


async def wait_for(condition: Callable[[], bool]) -> None:
    """Return when the condition holds; the test's own timeout is the limit."""
    while not condition():
        await asyncio.sleep(0.005)
    await settle()
