"""A broker's wait for the end of its own earlier session, which lasts as long as sessions of its store do."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from kafkapy.controller.controller_store import ControllerStore
from kafkapy.controller.register import wait_for_earlier_life
from kafkapy.errors import DuplicateBrokerRegistrationError
from kafkapy.metadata.embedded import EmbeddedStore
from kafkapy.metadata.etcd import EtcdStore
from kafkapy.metadata.etcd_client import EtcdClient
from kafkapy.metadata.znodes import BrokerRegistration
from kafkapy.metadata.zookeeper import ZooKeeperStore
from kafkapy.types import Endpoint


def test_stores_tell_how_long_a_session_outlives_its_process() -> None:
    assert EtcdStore(["http://127.0.0.1:1"], session_timeout_ms=2_500).session_timeout_s == 3
    assert ZooKeeperStore("127.0.0.1:1", 2_500).session_timeout_s == 2.5
    assert EmbeddedStore.session_timeout_s.fget(None) == 0


def test_the_wait_ends_with_the_earlier_session_or_after_two_session_timeouts(etcd: str) -> None:
    async def test() -> None:
        prefix = f"/{uuid.uuid4().hex}"
        first, second = (EtcdStore([etcd], prefix=prefix, session_timeout_ms=2_000) for _ in range(2))
        await first.start()
        await second.start()
        mine = BrokerRegistration(1, (Endpoint("PLAINTEXT", "h", 9092),))
        await ControllerStore(first).ensure_paths()
        await ControllerStore(first).register_broker(mine)
        # A living process keeps its session.
        with pytest.raises(DuplicateBrokerRegistrationError):
            await wait_for_earlier_life(ControllerStore(second), mine)
        waiting = asyncio.create_task(wait_for_earlier_life(ControllerStore(second), mine))
        client = EtcdClient([etcd], 10.0)
        await client.call("/v3/lease/revoke", {"ID": str(first.session_id)}, timeout_s=10.0, repeatable=True)
        client.close()
        await waiting
        await first.close()
        await second.close()

    asyncio.run(test())
