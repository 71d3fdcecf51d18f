"""The broker's resources: memory, descriptors, background threads and its loop's lag."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from kafkapy._speedups.base import memory_reserve
from kafkapy._speedups.base.event_queue import EventQueue
from kafkapy.broker import descriptors
from kafkapy.broker.parts.part import Broker, Part
from kafkapy.broker.scheduler import KafkaScheduler

__all__ = ["ControlLoopLag", "Imports", "Resources", "Scheduler"]

logger = logging.getLogger("kafka.server.KafkaServer")

IMPORTS_AFTER_S: Final = 1.0
IMPORTS_EVERY_S: Final = 0.02
"""When a broker that has started imports what its start did without, and the pause between two handlers."""


class _MemoryWatch:
    """Takes the data plane's reserve of memory again when there is some, and says that it was needed."""

    def __init__(self) -> None:
        self._taken = 0

    def __call__(self) -> None:
        short = memory_reserve.is_short()
        taken = memory_reserve.counters()["taken"]
        if taken > self._taken:
            self._taken = taken
            state = "it refuses large requests until memory is free" if short else "it has free memory again"
            logger.warning("The broker ran out of memory: %s", state)


class Resources(Part):
    """Claims the memory reserve and the descriptors; makes the event queue.

    The process keeps the reserve and the descriptors. The queue is the data plane's.
    """

    name = "resources"

    async def start(self, broker: Broker) -> None:
        """Claim them."""
        memory_reserve.install()
        broker.budget = descriptors.claim()
        broker.events = EventQueue()

    async def stop(self, broker: Broker) -> None:
        """Let go of the queue: it has a descriptor."""
        if hasattr(broker, "events"):
            del broker.events


class Scheduler(Part):
    """Owns the background threads."""

    name = "scheduler"

    async def start(self, broker: Broker) -> None:
        """Make the threads' pool, and give it the watch over the memory reserve."""
        threads = broker.config.get_int("background.threads")
        broker.scheduler = KafkaScheduler(threads, asyncio.get_running_loop())
        broker.scheduler.schedule("memory-reserve", _MemoryWatch(), 1_000, 1_000)

    async def stop(self, broker: Broker) -> None:
        """End them."""
        if hasattr(broker, "scheduler"):
            await broker.scheduler.shutdown()


class ControlLoopLag(Part):
    """Measures how late the control loop is."""

    name = "loop lag"

    async def start(self, broker: Broker) -> None:
        """Begin to beat."""
        broker.loop_lag.start()

    async def stop(self, broker: Broker) -> None:
        """Beat no more."""
        broker.loop_lag.stop()


class Imports(Part):
    """Imports the remaining handlers and coordinators in the background.

    The first request shall not wait for them, and files that an upgrade puts in the place of ours must not become part
    of this process.
    """

    name = "imports"

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    async def start(self, broker: Broker) -> None:
        """Begin, a while after the start of the broker."""
        self._task = asyncio.get_running_loop().create_task(self._complete(broker), name="imports")

    async def stop(self, broker: Broker) -> None:
        """Stop between two imports."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _complete(self, broker: Broker) -> None:
        await asyncio.sleep(IMPORTS_AFTER_S)
        for key in broker.apis.served:
            try:
                broker.apis.handler(key)
            except Exception:  # its requests are refused; the others shall not wait for their modules
                logger.exception("The handler of API key %d cannot be imported; the broker refuses its requests", key)
            await asyncio.sleep(IMPORTS_EVERY_S)
        broker.context.coordinators.make_all()
