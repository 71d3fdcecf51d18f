"""The metadata store's contract, run over every implementation."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sqlite3
import threading
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kafkapy.metadata.embedded import FILE_NAME, EmbeddedStore
from kafkapy.metadata.memory import MemoryStore, MemoryTree
from kafkapy.metadata.store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionState,
    SetData,
    StoreCorruptError,
    StoreUnavailableError,
    WatchEvent,
    WatchEventType,
)
from kafkapy.metadata.zookeeper import ZooKeeperStore

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


class TestEmbeddedStore(StoreContract):
    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path: Path) -> None:
        self.directory = tmp_path

    def run(self, test: Test) -> None:
        async def opened() -> None:
            store = EmbeddedStore(self.directory)
            await store.start()
            try:
                await test(store)
            finally:
                await store.close()

        asyncio.run(opened())

    def test_persistent_nodes_outlive_the_process_and_ephemeral_ones_do_not(self) -> None:
        async def test() -> None:
            first = EmbeddedStore(self.directory)
            await first.start()
            await first.create("/ids/1", b"me", ephemeral=True, make_parents=True)
            await first.create("/kept", b"value")
            session = first.session_id
            assert (await first.get("/ids/1"))[1].ephemeral_owner == session
            # A copy of the files as they are now is what a crash leaves behind.
            crashed = self.directory / "crashed"
            crashed.mkdir()
            for path in self.directory.glob(FILE_NAME + "*"):
                shutil.copy(path, crashed)
            await first.close()
            for directory in (self.directory, crashed):
                second = EmbeddedStore(directory)
                await second.start()
                assert second.session_id > session
                assert (await second.get("/kept"))[0] == b"value"
                assert await second.children("/ids") == []
                await second.create("/ids/1", ephemeral=True)
                await second.close()

        asyncio.run(test())

    def test_transactions_are_numbered_upwards_across_restarts(self) -> None:
        numbers = []

        async def test(store: MetadataStore) -> None:
            await store.create(f"/n{len(numbers)}")
            numbers.append((await store.get(f"/n{len(numbers)}"))[1].created_transaction)

        for _ in range(3):
            self.run(test)
        assert numbers == sorted(set(numbers))

    def test_a_second_process_is_kept_out(self) -> None:
        async def test() -> None:
            first, second = EmbeddedStore(self.directory), EmbeddedStore(self.directory)
            await first.start()
            with pytest.raises(StoreUnavailableError, match="in use by another process"):
                await second.start()
            await first.close()
            await second.start()
            await second.close()

        asyncio.run(test())

    @pytest.mark.parametrize("damage", ["text", "middle", "other database"])
    def test_a_damaged_file_is_reported_with_its_name(self, damage: str) -> None:
        async def fill(store: MetadataStore) -> None:
            await store.create("/t")
            await store.commit([Create(f"/t/{i:04}", bytes(100)) for i in range(500)])

        path = self.directory / FILE_NAME
        if damage == "text":
            path.write_bytes(b"this is not a database" * 100)
        elif damage == "middle":
            self.run(fill)
            data = bytearray(path.read_bytes())
            data[8192:40000] = b"\xff" * (40000 - 8192)
            path.write_bytes(data)
        else:
            with sqlite3.connect(path) as connection:
                connection.execute("CREATE TABLE other (x)")

        async def start() -> None:
            await EmbeddedStore(self.directory).start()

        with pytest.raises(StoreCorruptError, match=FILE_NAME):
            asyncio.run(start())

    def test_a_directory_that_cannot_be_written_is_reported(self) -> None:
        async def start() -> None:
            await EmbeddedStore(self.directory / "missing").start()

        with pytest.raises(StoreUnavailableError, match="cannot be opened"):
            asyncio.run(start())

    def test_other_users_cannot_read_the_file(self) -> None:
        """It holds SCRAM credentials and encrypted passwords."""

        async def start_and_write(path: str) -> list[int]:
            store = EmbeddedStore(self.directory)
            await store.start()
            await store.create(path, b"x")
            modes = [each.stat().st_mode & 0o777 for each in sorted(self.directory.glob(f"{FILE_NAME}*"))]
            await store.close()
            return modes

        umask = os.umask(0o022)
        try:
            assert asyncio.run(start_and_write("/a")) == [0o600, 0o600]
            (self.directory / FILE_NAME).chmod(0o644)  # as an older version made it
            assert asyncio.run(start_and_write("/b")) == [0o640, 0o640]
        finally:
            os.umask(umask)

    def test_using_a_closed_store_is_an_error_not_a_hang(self) -> None:
        async def test() -> None:
            store = EmbeddedStore(self.directory)
            await store.start()
            await store.close()
            await store.close()
            with pytest.raises(StoreUnavailableError):
                await store.get("/a")

        asyncio.run(test())

    @pytest.mark.parametrize("path", ["a", "/", "/a/", "//a", "", "/a\x00"])
    def test_malformed_paths_are_refused(self, path: str) -> None:
        async def test(store: MetadataStore) -> None:
            with pytest.raises(ValueError, match="not a path"):
                await store.create(path)

        self.run(test)


@pytest.mark.filterwarnings("ignore:No chroot path exists")  # the store makes it
class TestZooKeeperStore(StoreContract):
    @pytest.fixture(autouse=True)
    def _address(self, zookeeper: str) -> None:
        self.connect = f"{zookeeper}/{uuid.uuid4().hex}"

    def run(self, test: Test) -> None:
        async def opened() -> None:
            store = ZooKeeperStore(self.connect)
            await store.start()
            try:
                await test(store)
            finally:
                await store.close()

        asyncio.run(opened())

    def test_ephemeral_nodes_go_with_their_session_and_others_hear_of_it(self) -> None:
        async def test(store: MetadataStore) -> None:
            other = ZooKeeperStore(self.connect)
            await other.start()
            await other.create("/ids/1", b"me", ephemeral=True, make_parents=True)
            assert (await store.get("/ids/1"))[1].ephemeral_owner == other.session_id != store.session_id
            seen: list[WatchEvent] = []
            await store.watch_children("/ids", seen.append)
            await other.close()
            await wait_for(lambda: bool(seen))
            assert await store.children("/ids") == []

        self.run(test)

    def test_an_expired_session_is_told_and_watches_live_on_in_the_next(self) -> None:
        async def test(store: MetadataStore) -> None:
            assert isinstance(store, ZooKeeperStore)
            await store.create("/mine", ephemeral=True)
            await store.create("/parent")
            states: list[SessionState] = []
            seen: list[WatchEvent] = []
            store.listen_session(states.append)
            await store.watch_children("/parent", seen.append)
            first = store.session_id
            # A second connection that takes over the session and closes it: the server calls the first one expired.
            client = type(store._client)(hosts=self.connect, client_id=store._client.client_id)
            await asyncio.to_thread(client.start)
            await asyncio.to_thread(client.stop)
            await wait_for(lambda: SessionState.EXPIRED in states and states[-1] is SessionState.CONNECTED)
            assert store.session_id != first
            assert await store.exists("/mine") is None
            await wait_for(lambda: bool(seen))
            seen.clear()
            await store.create("/parent/child")
            await wait_for(lambda: bool(seen))
            assert WatchEvent(WatchEventType.CHILDREN, "/parent") in seen

        self.run(test)

    def test_a_server_that_is_not_there_is_reported(self) -> None:
        async def start() -> None:
            with socket.socket() as unused:
                unused.bind(("127.0.0.1", 0))
                port = unused.getsockname()[1]
                await ZooKeeperStore(f"127.0.0.1:{port}", connection_timeout_ms=300).start()

        with pytest.raises(StoreUnavailableError, match="cannot be reached"):
            asyncio.run(start())


class TestMemoryStore(StoreContract):
    def run(self, test: Test) -> None:
        async def opened() -> None:
            store = MemoryStore()
            await store.start()
            try:
                await test(store)
            finally:
                await store.close()

        asyncio.run(opened())

    def test_a_commit_that_fails_leaves_numbers_and_deleted_nodes_as_they_were(self) -> None:
        async def test(store: MetadataStore) -> None:
            await store.create("/q")
            first = await store.create("/q/n_", b"1", sequential=True)
            stat = await store.exists(first)
            with pytest.raises(NoNodeError):
                await store.commit(
                    [
                        Create("/q/n_", sequential=True),
                        SetData(first, b"2"),
                        Delete(first),
                        Delete("/q/n_0000000001"),
                        Delete("/q"),
                        Check("/nowhere", 0),
                    ]
                )
            assert await store.children("/q") == ["n_0000000000"]
            assert await store.get(first) == (b"1", stat)
            assert await store.create("/q/n_", sequential=True) == "/q/n_0000000001"

        self.run(test)

    def test_a_watch_is_told_before_the_writer_goes_on(self) -> None:
        async def test(store: MetadataStore) -> None:
            seen: list[WatchEvent] = []
            await store.watch_node("/a", seen.append)
            await store.create("/a")
            assert seen == [WatchEvent(WatchEventType.CREATED, "/a")]

        self.run(test)

    def test_a_closed_store_has_forgotten_everything(self) -> None:
        async def test() -> None:
            store = MemoryStore()
            with pytest.raises(StoreUnavailableError):
                await store.get("/a")
            await store.start()
            await store.create("/a")
            assert await store.create("/n_", sequential=True) == "/n_0000000000"
            await store.close()
            await store.close()
            with pytest.raises(StoreUnavailableError):
                await store.create("/b")
            await store.start()
            assert await store.children("/") == []
            assert await store.create("/n_", sequential=True) == "/n_0000000000"
            await store.close()

        asyncio.run(test())


class TestMemoryStoreOfACluster(StoreContract):
    """Stores that share a tree, each on its own loop or on the same one."""

    def run(self, test: Test) -> None:
        async def opened() -> None:
            store = MemoryStore(MemoryTree())
            await store.start()
            try:
                await test(store)
            finally:
                await store.close()

        asyncio.run(opened())

    def run_with_two(self, test: Callable[[MemoryTree, MemoryStore, MemoryStore], Awaitable[None]]) -> None:
        async def opened() -> None:
            tree = MemoryTree()
            one, two = MemoryStore(tree), MemoryStore(tree)
            await one.start()
            await two.start()
            try:
                await test(tree, one, two)
            finally:
                await one.close()
                await two.close()

        asyncio.run(opened())

    def test_each_sees_what_the_other_wrote_and_hears_of_it(self) -> None:
        async def test(_: MemoryTree, one: MemoryStore, two: MemoryStore) -> None:
            seen: list[WatchEvent] = []
            await two.watch_node("/a", seen.append)
            await one.create("/a", b"x")
            assert await two.get("/a") == await one.get("/a")
            await asyncio.sleep(0)
            assert seen == [WatchEvent(WatchEventType.CREATED, "/a")]
            assert (one.is_shared, one.session_id != two.session_id) == (True, True)

        self.run_with_two(test)

    def test_a_closed_store_takes_its_ephemeral_nodes_and_nothing_else(self) -> None:
        async def test(_: MemoryTree, one: MemoryStore, two: MemoryStore) -> None:
            await one.create("/kept", b"x")
            await one.create("/kept/one", ephemeral=True)
            await two.create("/kept/two", ephemeral=True)
            seen: list[WatchEvent] = []
            await two.watch_children("/kept", seen.append)
            await one.close()
            assert await two.children("/kept") == ["two"]
            await asyncio.sleep(0)
            assert seen == [WatchEvent(WatchEventType.CHILDREN, "/kept")]

        self.run_with_two(test)

    def test_an_expired_session_loses_its_ephemeral_nodes_and_gets_a_successor(self) -> None:
        async def test(tree: MemoryTree, one: MemoryStore, two: MemoryStore) -> None:
            states: list[SessionState] = []
            one.listen_session(states.append)
            before = one.session_id
            await one.create("/kept")
            await one.create("/kept/one", ephemeral=True)
            tree.expire(before)
            with pytest.raises(StoreUnavailableError, match="has expired"):
                await one.create("/kept/late", ephemeral=True)
            await asyncio.sleep(0)
            assert (states, one.session_id != before) == ([SessionState.EXPIRED, SessionState.CONNECTED], True)
            assert await two.children("/kept") == []
            await one.create("/kept/one", ephemeral=True)
            assert (await two.get("/kept/one"))[1].ephemeral_owner == one.session_id

        self.run_with_two(test)

    def test_stores_of_two_threads_wait_for_each_other(self) -> None:
        """A sequential node of each of 2 x 200 creates, whichever thread makes it."""
        tree = MemoryTree()

        async def write() -> None:
            store = MemoryStore(tree)
            await store.start()
            for _ in range(200):
                await store.create("/n_", sequential=True)
            await store.close()

        threads = [threading.Thread(target=asyncio.run, args=(write(),)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(tree.names["/"]) == [f"n_{number:010d}" for number in range(400)]
