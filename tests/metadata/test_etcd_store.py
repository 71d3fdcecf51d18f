"""The store over etcd."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from metadata.store_contract import StoreContract, Test

from kafkapy.metadata.etcd import EtcdStore


class TestEtcdStore(StoreContract):
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
