"""Notifications of changes to all brokers: sequential nodes below one path.

A writer creates a node in the transaction of its change. Every broker reads the nodes that it has not seen yet, and
old ones are removed. Configurations, ACLs and delegation tokens spread this way. Source:
kafka.common.ZkNodeChangeNotificationListener.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from kafkapy.metadata.store import (
    Create,
    Delete,
    MetadataStore,
    NoNodeError,
    StoreUnavailableError,
    Watch,
    WatchEvent,
)
from kafkapy.metadata.znodes import in_sequence, sequence_number

__all__ = ["ChangeNotifications"]

CHANGE_EXPIRATION_MS: Final = 15 * 60 * 1000
"""Age in ms after which a notification is removed; every live broker has read it long ago."""
PURGED_AT_ONCE: Final = 100
"""Notifications that are checked after a change, the oldest first."""
RETRY_S: Final = 1.0
"""Pause in seconds after a change could not be read."""


class ChangeNotifications:
    """Follows the notifications below one path.

    Owned by the part whose changes it spreads; used on the control loop.
    """

    def __init__(
        self,
        store: MetadataStore,
        path: str,
        prefix: str,
        process: Callable[[list[bytes]], Awaitable[None]],
        logger: logging.Logger,
        name: str,
    ) -> None:
        """`prefix` is the path of a notification without its number.

        `process` takes the values of new notifications, in order. When it raises StoreUnavailableError, it gets them
        again. `name` stands in log lines, such as "configuration changes".
        """
        self._store = store
        self._path = path
        self._prefix = prefix
        self._process = process
        self._logger = logger
        self._name = name
        self._last = -1
        self._watch: Watch | None = None
        self._processing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to follow. The reads that come after it include all changes from before."""
        await self._store.ensure_path(self._path)
        self._watch = await self._store.watch_children(self._path, self.look)
        names = await self._store.children(self._path)
        self._last = max(map(sequence_number, names), default=-1)

    async def stop(self) -> None:
        """Follow no more."""
        if self._watch is not None:
            self._watch.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def notification(self, value: bytes) -> Create:
        """The operation that tells all brokers of a change, for its transaction."""
        return Create(self._prefix, value, sequential=True)

    def look(self, event: WatchEvent | None = None) -> None:
        """Process new notifications soon, and try again until the store can be read."""
        del event
        task = asyncio.get_running_loop().create_task(self._process_quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def process(self) -> None:
        """Process new notifications now, then remove old ones.

        StoreUnavailableError: the next call begins with the same notifications.
        """
        async with self._processing:
            names = in_sequence(await self._store.children(self._path))
            new = [name for name in names if sequence_number(name) > self._last]
            if not new:
                return
            found = await self._store.get_many([f"{self._path}/{name}" for name in new])
            await self._process([each[0] for each in found if each is not None])
            self._last = sequence_number(new[-1])
            await self._purge(names)

    async def _process_quietly(self) -> None:
        while True:
            try:
                await self.process()
            except StoreUnavailableError as error:
                self._logger.warning(
                    "%s cannot be read, and are tried again: %s", self._name[:1].upper() + self._name[1:], error
                )
                await asyncio.sleep(RETRY_S)
            except Exception:
                self._logger.exception("Error while processing %s", self._name)
                return
            else:
                return

    async def _purge(self, names: list[str]) -> None:
        """Remove the oldest notifications.

        All of them where no other broker reads them, else those that are too old.
        """
        paths = [f"{self._path}/{name}" for name in names[:PURGED_AT_ONCE]]
        if self._store.is_shared:
            now_ms = int(time.time() * 1000)
            found = zip(paths, await self._store.get_many(paths), strict=True)
            paths = [path for path, each in found if each and now_ms - each[1].created_ms > CHANGE_EXPIRATION_MS]
        for path in paths:
            try:
                await self._store.commit([Delete(path)])
            except NoNodeError:
                continue  # another broker was faster
