"""What the clients' tests share: a real broker, and event loops of both kinds to run coroutines on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop
from clients.transaction_protocol import protocol as protocol

from kafkapy.testing.broker_process import BrokerProcess


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Runs a coroutine on a new loop of either kind; it may take a minute."""

    def runner(coroutine: Coroutine[Any, Any, Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(60):
                return await coroutine

        factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as loop:
            return loop.run(bounded())

    return runner


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerProcess]:
    """One broker in a process of its own, for all tests that do not restart it."""
    with BrokerProcess() as running:
        yield running
