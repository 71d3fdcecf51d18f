"""The store over etcd."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from metadata.shared_store_contract import SharedStoreContract, TwoStores
from metadata.store_contract import Test

from kafkapy.metadata.etcd import EtcdStore
from kafkapy.metadata.etcd_client import EtcdClient
from kafkapy.metadata.store import MetadataStore


class TestEtcdStore(SharedStoreContract):
    @pytest.fixture(autouse=True)
    def _address(self, etcd: str) -> None:
        self.endpoint = etcd
        self.prefix = f"/{uuid.uuid4().hex}"

    def run(self, test: Test) -> None:
        async def opened() -> None:
            store = EtcdStore([self.endpoint], prefix=self.prefix)
            await store.start()
            try:
                await test(store)
            finally:
                await store.close()

        asyncio.run(opened())

    def run_with_two(self, test: TwoStores) -> None:
        async def opened() -> None:
            one, two = (EtcdStore([self.endpoint], prefix=self.prefix, session_timeout_ms=9_000) for _ in range(2))
            await one.start()
            await two.start()
            try:
                await test(one, two)
            finally:
                await one.close()
                await two.close()

        asyncio.run(opened())

    async def expire(self, store: MetadataStore) -> None:
        client = EtcdClient([self.endpoint], 10.0)
        await client.call("/v3/lease/revoke", {"ID": str(store.session_id)}, timeout_s=10.0, repeatable=False)
        client.close()
