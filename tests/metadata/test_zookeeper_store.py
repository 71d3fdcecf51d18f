"""The store over ZooKeeper."""

from __future__ import annotations

import asyncio
import socket
import uuid

import pytest
from kazoo.client import KazooClient
from metadata.shared_store_contract import SharedStoreContract

from kafkapy.metadata.store import (
    Create,
    MetadataStore,
    StoreUnavailableError,
)
from kafkapy.metadata.zookeeper import ZooKeeperStore
from kafkapy.metadata.zookeeper_multi_read import MultiRead

UNKNOWN_TO_THE_SERVER = 97
"""The code of no request."""


@pytest.mark.filterwarnings("ignore:No chroot path exists")  # the store makes it
class TestZooKeeperStore(SharedStoreContract):
    @pytest.fixture(autouse=True)
    def _address(self, zookeeper: str) -> None:
        self.connect = f"{zookeeper}/{uuid.uuid4().hex}"

    def store(self) -> MetadataStore:
        return ZooKeeperStore(self.connect)

    async def expire(self, store: MetadataStore) -> None:
        assert isinstance(store, ZooKeeperStore)
        # A second connection that takes over the session and closes it: the server calls the first one expired.
        client = KazooClient(hosts=self.connect, client_id=store._client.client_id)
        await asyncio.to_thread(client.start)
        await asyncio.to_thread(client.stop)

    def test_a_server_that_is_not_there_is_reported(self) -> None:
        async def start() -> None:
            with socket.socket() as unused:
                unused.bind(("127.0.0.1", 0))
                port = unused.getsockname()[1]
                await ZooKeeperStore(f"127.0.0.1:{port}", connection_timeout_ms=300).start()

        with pytest.raises(StoreUnavailableError, match="cannot be reached"):
            asyncio.run(start())

    def test_a_node_without_value_has_no_data_as_apache_kafka_makes_it(self) -> None:
        """Its brokers would parse an empty value, such as that of /latest_producer_id_block, as JSON."""

        async def test(store: MetadataStore) -> None:
            await store.create("/none")
            await store.create("/parent/child", b"x", make_parents=True)
            client = KazooClient(hosts=self.connect)
            await asyncio.to_thread(client.start)
            try:
                assert [client.get(path)[0] for path in ("/none", "/parent", "/parent/child")] == [None, None, b"x"]
            finally:
                await asyncio.to_thread(client.stop)
                client.close()
            assert (await store.get("/none"))[0] == b""

        self.run(test)

    @pytest.mark.parametrize("knows_multi_read", [True, False])
    def test_thousands_of_nodes_are_read_in_order(
        self, knows_multi_read: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also from servers before 3.6, which refuse the request for many nodes."""
        if not knows_multi_read:
            monkeypatch.setattr(MultiRead, "type", UNKNOWN_TO_THE_SERVER)

        async def test(store: MetadataStore) -> None:
            assert isinstance(store, ZooKeeperStore)
            paths = [f"/many-{number}" for number in range(1000)]
            await store.commit([Create(path, path.encode()) for path in paths[::2]])
            await store.set(paths[0], b"again")
            found = await store.get_many(paths)
            values = [None if node is None else node[0] for node in found]
            assert values == [b"again", *(None if n % 2 else paths[n].encode() for n in range(1, 1000))]
            versions = [None if node is None else node[1].version for node in found]
            assert versions == [1, *(None if n % 2 else 0 for n in range(1, 1000))]
            assert found[0] == await store.get(paths[0])
            assert store._reads_many is knows_multi_read

        self.run(test)
