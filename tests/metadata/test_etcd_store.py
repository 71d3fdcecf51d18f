"""The store over etcd."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from metadata.shared_store_contract import SharedStoreContract

from kafkapy.metadata.etcd import EtcdStore
from kafkapy.metadata.etcd_client import EtcdClient
from kafkapy.metadata.store import MetadataStore, StoreUnavailableError


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


@pytest.mark.parametrize(
    ("session_ms", "request_s", "attempt_s"),
    [(18_000, 12.0, 3.0), (9_000, 6.0, 1.5), (7_000, 14 / 3, 7 / 6), (1_500, 2.0, 1.0)],
)
def test_requests_end_before_the_session_and_leave_time_for_three_members(
    monkeypatch: pytest.MonkeyPatch, session_ms: int, request_s: float, attempt_s: float
) -> None:
    asked: list[tuple[str, float, float | None]] = []

    async def call(
        self: EtcdClient, path: str, message: Any, *, timeout_s: float, repeatable: bool, attempt_s: float | None = None
    ) -> dict[str, Any]:
        asked.append((path, timeout_s, attempt_s))
        return {"ID": "7", "result": {"TTL": "9"}, "kvs": [{"mod_revision": "5"}]}

    monkeypatch.setattr(EtcdClient, "call", call)

    async def scenario() -> None:
        store = EtcdStore(["http://127.0.0.1:1"], session_timeout_ms=session_ms, connection_timeout_ms=25_000)
        assert store.session_timeout_s == -(-session_ms // 1000)
        assert (store.session_id, store.is_connected, store.is_shared) == (0, False, True)
        await store.start()
        assert (store.session_id, store.is_connected) == (7, True)
        assert await store.last_transaction() == 5
        await store.close()
        await store.close()
        assert store.session_id == 0

    asyncio.run(scenario())
    calls = {path: (timeout_s, one_s) for path, timeout_s, one_s in asked}
    assert [path for path, *_ in asked].count("/v3/lease/revoke") == 1
    assert calls["/v3/lease/grant"] == (25.0, pytest.approx(attempt_s))
    assert calls["/v3/kv/put"][0] <= 25.0
    assert calls["/v3/kv/range"] == (pytest.approx(request_s), None)


def test_requests_of_a_session_that_is_not_open_are_refused() -> None:
    async def scenario() -> None:
        store = EtcdStore(["http://127.0.0.1:1"])
        with pytest.raises(StoreUnavailableError, match="is not open"):
            await store.last_transaction()

    asyncio.run(scenario())
