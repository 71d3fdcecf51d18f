"""The store over ZooKeeper."""

from __future__ import annotations

import asyncio
import socket
import uuid

import pytest
from metadata.store_contract import StoreContract, Test, wait_for

from kafkapy.metadata.store import (
    MetadataStore,
    SessionState,
    StoreUnavailableError,
    WatchEvent,
    WatchEventType,
)
from kafkapy.metadata.zookeeper import ZooKeeperStore


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
