"""ConsumerCore on a loop that goes on after it, as the asyncio consumer's does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from clients.fake_broker import eventually

from kafkapy.clients.consumer.core import ConsumerCore
from kafkapy.config.clients import ClientConfig
from kafkapy.config.consumer import CONSUMER
from kafkapy.testing import Broker


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize(("leaves", "timeout_ms"), [(True, 5000), (False, 5000), (True, 0)])
def test_nothing_runs_on_after_close(run: Callable[[Any], Any], protocol: str, leaves: bool, timeout_ms: int) -> None:
    async def scenario(bootstrap_servers: str) -> None:
        config = ClientConfig(
            CONSUMER,
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": f"g-{protocol}-{leaves}-{timeout_ms}",
                "group.protocol": protocol,
                "internal.leave.group.on.close": leaves,
            },
        )
        loop = asyncio.get_running_loop()
        core = ConsumerCore(config, post=loop.call_soon, ring=lambda: None, attended=False)
        await core.start()
        core.subscribe(["t"], None, None)
        core.enter_poll()
        await eventually(lambda: core.membership is not None and core.membership.ready)
        await core.close(True, timeout_ms)
        await eventually(lambda: asyncio.all_tasks() == {asyncio.current_task()})

    with Broker() as broker:
        broker.create_topic("t")
        run(scenario(broker.bootstrap_servers))
