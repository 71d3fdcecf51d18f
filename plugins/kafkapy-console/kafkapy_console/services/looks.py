"""The last look at each of several clusters, for the list of clusters."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kafkapy.errors import KafkaError
from kafkapy_console.errors import cluster_is_away, sentence
from kafkapy_console.services.clients import Clients
from kafkapy_console.services.topics import Topic, Topics

__all__ = ["Look", "Looks", "described_cluster"]

WAIT_S = 3.0
"""A page waits so long for new looks; then it shows the last ones."""

logger = logging.getLogger("kafkapy.console")


async def described_cluster(clients: Clients) -> dict[str, Any]:
    """The cluster: brokers, controller, id; a few seconds old at most."""

    async def read() -> dict[str, Any]:
        return await (await clients.admin()).describe_cluster()

    return await clients.cache.get("cluster", 3, read)


@dataclass(frozen=True)
class Look:
    """What a cluster answered, or why it did not."""

    brokers: int = 0
    topics: Mapping[str, Topic] = field(default_factory=dict)
    error: str | None = None
    away: bool = False
    """Whether no broker answered; else a broker refused."""


class Looks:
    """The last looks by the name of the cluster. Each cluster has one look at a time. Used on one loop."""

    def __init__(self) -> None:
        self._last: dict[str, Look] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    async def at(self, clusters: Mapping[str, Clients]) -> dict[str, Look | None]:
        """A look at each cluster; None for one that has not answered yet, nor failed."""
        for name, clients in clusters.items():
            if name not in self._running:
                task = asyncio.ensure_future(self._look(name, clients))
                self._running[name] = task
                task.add_done_callback(partial(self._ended, name))
        running: Sequence[asyncio.Task[None]] = [self._running[name] for name in clusters if name in self._running]
        if running:
            await asyncio.wait(running, timeout=WAIT_S)
        return {name: self._last.get(name) for name in clusters}

    async def _look(self, name: str, clients: Clients) -> None:
        try:
            cluster, topics = await asyncio.gather(described_cluster(clients), Topics(clients).all())
            self._last[name] = Look(len(cluster["brokers"]), topics)
        except KafkaError as error:
            self._last[name] = Look(error=sentence(error), away=cluster_is_away(error))

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        self._running.pop(name, None)
        if not task.cancelled() and task.exception() is not None:
            logger.error("Look at cluster %s failed", name, exc_info=task.exception())

    async def close(self) -> None:
        """Ends the looks."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
