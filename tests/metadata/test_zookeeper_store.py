"""The store over ZooKeeper."""

from __future__ import annotations

import asyncio
import socket
import uuid

import pytest
from kazoo.client import KazooClient
from metadata.shared_store_contract import SharedStoreContract

from kafkapy.metadata.store import (
    MetadataStore,
    StoreUnavailableError,
)
from kafkapy.metadata.zookeeper import ZooKeeperStore


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
