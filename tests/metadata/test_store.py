"""The stores of a single broker: the embedded file, and memory."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import threading
from pathlib import Path

import pytest
from metadata.shared_store_contract import SharedStoreContract
from metadata.store_contract import StoreContract, Test

from kafkapy.metadata.embedded import FILE_NAME, EmbeddedStore
from kafkapy.metadata.memory import MemoryStore, MemoryTree
from kafkapy.metadata.store import (
    Check,
    Create,
    Delete,
    MetadataStore,
    NoNodeError,
    SessionState,
    SetData,
    StoreCorruptError,
    StoreUnavailableError,
    WatchEvent,
    WatchEventType,
)


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


class TestMemoryStoreOfACluster(SharedStoreContract):
    """Stores that share a tree, each on its own loop or on the same one."""

    @pytest.fixture(autouse=True)
    def _tree(self) -> None:
        self.tree = MemoryTree()

    def store(self) -> MetadataStore:
        return MemoryStore(self.tree)

    async def expire(self, store: MetadataStore) -> None:
        self.tree.expire(store.session_id)

    def test_each_sees_what_the_other_wrote_and_hears_of_it(self) -> None:
        async def test(one: MetadataStore, two: MetadataStore) -> None:
            seen: list[WatchEvent] = []
            await two.watch_node("/a", seen.append)
            await one.create("/a", b"x")
            assert await two.get("/a") == await one.get("/a")
            await asyncio.sleep(0)
            assert seen == [WatchEvent(WatchEventType.CREATED, "/a")]
            assert (one.is_shared, one.session_id != two.session_id) == (True, True)

        self.run_with_two(test)

    def test_a_closed_store_takes_its_ephemeral_nodes_and_nothing_else(self) -> None:
        async def test(one: MetadataStore, two: MetadataStore) -> None:
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
        async def test(one: MetadataStore, two: MetadataStore) -> None:
            states: list[SessionState] = []
            one.listen_session(states.append)
            before = one.session_id
            await one.create("/kept")
            await one.create("/kept/one", ephemeral=True)
            self.tree.expire(before)
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
