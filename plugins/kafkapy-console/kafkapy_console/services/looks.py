"""The last look at each of several clusters, for the list of clusters."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kafkapy.errors import KafkaError
from kafkapy_console.errors import UNEXPECTED, cluster_is_away, sentence
from kafkapy_console.services.clients import Clients
from kafkapy_console.services.topics import Topic, Topics

__all__ = ["Look", "Looks", "described_cluster"]

WAIT_S = 3.0
"""A page waits so long for the first looks; later ones go on in the background."""

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
    ended: float = field(default_factory=time.monotonic)
    """When the look ended, in seconds of the monotonic clock."""


class Looks:
    """The last looks by the name of the cluster. Each cluster has one look at a time. Used on one loop."""

    def __init__(self) -> None:
        self._last: dict[str, Look] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    async def at(self, clusters: Mapping[str, Clients]) -> dict[str, Look | None]:
        """The last look at each cluster; None for one that has not answered yet, nor failed.

        Each call begins new looks. It waits only for clusters that have none: one that is away delays nobody.
        """
        for name, clients in clusters.items():
            if name not in self._running:
                task = asyncio.ensure_future(self._look(name, clients))
                self._running[name] = task
                task.add_done_callback(partial(self._ended, name))
        first = [self._running[name] for name in clusters if name not in self._last and name in self._running]
        if first:
            await asyncio.wait(first, timeout=WAIT_S)
        return {name: self._last.get(name) for name in clusters}

    async def _look(self, name: str, clients: Clients) -> None:
        try:
            cluster, topics = await asyncio.gather(described_cluster(clients), Topics(clients).all())
            self._last[name] = Look(len(cluster["brokers"]), topics)
        except KafkaError as error:
            self._last[name] = Look(error=sentence(error), away=cluster_is_away(error))
        except Exception:
            logger.exception("Look at cluster %s failed", name)
            self._last[name] = Look(error=UNEXPECTED)

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        del task
        self._running.pop(name, None)

    async def close(self) -> None:
        """Ends the looks."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
