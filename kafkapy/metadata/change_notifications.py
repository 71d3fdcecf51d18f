"""Change notifications: sequential nodes by which brokers tell each other what they wrote.

A writer creates a node below a common parent, and each broker that watches the parent reads the new nodes and then the
changed things themselves. Configurations, ACLs and delegation tokens spread this way. Source:
kafka.common.ZkNodeChangeNotificationListener.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from kafkapy.metadata.store import (
    STORE_FAILED,
    Create,
    MetadataStore,
    NoNodeError,
    SessionState,
    Watch,
    WatchEvent,
)
from kafkapy.metadata.znodes import in_sequence, sequence_number

__all__ = ["ChangeNotifications"]

logger = logging.getLogger("kafka.common.ZkNodeChangeNotificationListener")

EXPIRATION_MS: Final = 15 * 60 * 1000
"""Age in ms after which a notification is removed; every live broker has read it long ago."""
PURGED_AT_ONCE: Final = 100
"""Notifications whose age is checked after a change, the oldest first."""
RETRY_S: Final = 1.0
"""Pause in seconds after notifications could not be read."""


class ChangeNotifications:
    """Follows the notifications below one node.

    Owned by the reader of the changed things; used on the control loop. `path` is the parent node, `prefix` the
    beginning of the children's names. `handle` gets the values of the new notifications, in order. Its errors are
    logged, except those of the store (STORE_FAILED): the same notifications come again.
    """

    def __init__(
        self,
        store: MetadataStore,
        path: str,
        prefix: str,
        handle: Callable[[list[bytes]], Awaitable[None]],
        *,
        logger: logging.Logger = logger,
    ) -> None:
        self._store = store
        self.path = path
        self._prefix = f"{path}/{prefix}"
        self._handle = handle
        self._logger = logger
        self._last = -1
        self._watch: Watch | None = None
        self._processing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def announcement(self, value: bytes) -> Create:
        """The operation that notifies all brokers. It belongs into the transaction of the change."""
        return Create(self._prefix, value, sequential=True)

    async def start(self) -> None:
        """Follow the notifications from now on.

        The caller reads all things afterwards, so older notifications tell nothing new. StoreUnavailableError.
        """
        await self._store.ensure_path(self.path)
        self._watch = await self._store.watch_children(self.path, self._on_change)
        names = await self._store.children(self.path)
        self._last = max(map(sequence_number, names), default=-1)
        self._store.listen_session(self._on_session)

    async def stop(self) -> None:
        """Stop following notifications."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def look(self) -> None:
        """Handle new notifications soon, and try again until they can be read."""
        self._on_change()

    async def process(self) -> None:
        """Handle the new notifications, then remove expired ones. StoreUnavailableError."""
        async with self._processing:
            names = in_sequence(await self._store.children(self.path))
            new = [name for name in names if sequence_number(name) > self._last]
            if not new:
                return
            found = await self._store.get_many([f"{self.path}/{name}" for name in new])
            values = [each[0] for each in found if each is not None]
            try:
                await self._handle(values)
            except STORE_FAILED:
                raise
            except Exception:
                self._logger.exception("The notifications below %s cannot be processed", self.path)
            self._last = sequence_number(new[-1])
            await self._purge(names)

    def _on_session(self, state: SessionState) -> None:
        """A new session may have missed notifications."""
        if state is SessionState.CONNECTED:
            self._on_change()

    def _on_change(self, event: WatchEvent | None = None) -> None:
        del event
        if self._watch is None:
            return
        task = asyncio.get_running_loop().create_task(self._process_quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _process_quietly(self) -> None:
        while True:
            try:
                await self.process()
            except STORE_FAILED as error:
                said = "The notifications below %s cannot be read; the broker retries: %s"
                self._logger.warning(said, self.path, error)
                await asyncio.sleep(RETRY_S)
            except Exception:
                self._logger.exception("The reading of the notifications below %s failed", self.path)
                return
            else:
                return

    async def _purge(self, names: list[str]) -> None:
        """Remove the oldest notifications: all where no other broker reads them, else the expired ones."""
        paths = [f"{self.path}/{name}" for name in names[:PURGED_AT_ONCE]]
        if self._store.is_shared:
            now_ms = int(time.time() * 1000)
            found = zip(paths, await self._store.get_many(paths), strict=True)
            paths = [path for path, each in found if each and now_ms - each[1].created_ms > EXPIRATION_MS]
        for path in paths:
            try:
                await self._store.delete(path)
            except NoNodeError:
                continue  # another broker was faster
