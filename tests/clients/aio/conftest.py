"""A broker, a topic, and either event loop for the tests of the asyncio clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
import uvloop

from kafkapy.testing import Broker

Main = Callable[[], Awaitable[None]]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    # How often members of the consumer protocol report is the broker's to say.
    heartbeats = {"group_consumer_heartbeat_interval_ms": 100, "group_consumer_min_heartbeat_interval_ms": 100}
    with Broker(**heartbeats) as running:
        yield running


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Main], None]:
    """Runs a test's coroutine on either loop, with a limit."""

    def on(main: Main) -> None:
        async def limited() -> None:
            async with asyncio.timeout(60):
                await main()

        factory = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(limited())

    return on


@pytest.fixture
def topic(request: pytest.FixtureRequest, broker: Broker) -> Iterator[str]:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    broker.create_topic(name, 2)
    yield name
    broker.delete_topic(name)
