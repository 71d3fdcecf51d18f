"""The controller's watches on single nodes: one for each topic and each broker.

A store that only this process uses changes by the controller alone, so it needs no such watches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from itertools import islice
from typing import Final

from kafkapy.metadata.store import MetadataStore, Watch, WatchEvent

AT_ONCE: Final = 100
"""Watches that are set at the same time."""


class NodeWatches:
    """Owns the watches of one controllership.

    Used within the controller's events on the control loop. `changed` is called with the path of a node that has
    changed.
    """

    def __init__(self, store: MetadataStore, changed: Callable[[str], None]) -> None:
        self._store = store
        self._changed = changed
        self._watches: dict[str, Watch] = {}

    async def follow(self, paths: Collection[str]) -> None:
        """Watch more nodes; they need not exist."""
        if not self._store.is_shared:
            return
        missing = iter([path for path in paths if path not in self._watches])
        while chunk := list(islice(missing, AT_ONCE)):
            await asyncio.gather(*(self._watch(path) for path in chunk))

    def forget(self, paths: Collection[str]) -> None:
        """Watch nodes no more."""
        for path in paths:
            watch = self._watches.pop(path, None)
            if watch is not None:
                watch.cancel()

    def close(self) -> None:
        """End all watches."""
        self.forget(list(self._watches))

    async def _watch(self, path: str) -> None:
        self._watches[path] = await self._store.watch_node(path, self._told)

    def _told(self, event: WatchEvent) -> None:
        self._changed(event.path)
