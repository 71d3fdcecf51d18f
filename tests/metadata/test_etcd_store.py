"""The store over etcd."""

from __future__ import annotations

import uuid

import pytest
from metadata.shared_store_contract import SharedStoreContract

from kafkapy.metadata.etcd import EtcdStore
from kafkapy.metadata.etcd_client import EtcdClient
from kafkapy.metadata.store import MetadataStore


class TestEtcdStore(SharedStoreContract):
    @pytest.fixture(autouse=True)
    def _address(self, etcd: str) -> None:
        self.endpoint = etcd
        self.prefix = f"/{uuid.uuid4().hex}"

    def store(self) -> MetadataStore:
        return EtcdStore([self.endpoint], prefix=self.prefix, session_timeout_ms=9_000)

    async def expire(self, store: MetadataStore) -> None:
        client = EtcdClient([self.endpoint], 10.0)
        await client.call("/v3/lease/revoke", {"ID": str(store.session_id)}, timeout_s=10.0, repeatable=False)
        client.close()
