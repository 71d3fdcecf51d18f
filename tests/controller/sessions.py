"""Several sessions on one memory store, as several brokers have with one ZooKeeper ensemble.

A session can expire, can lose its connection for a while, and can lose the reply to a write that was done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from kafkapy.metadata.memory import MemoryStore
from kafkapy.metadata.store import (
    Create,
    Delete,
    MetadataStore,
    MetadataStoreError,
    NoNodeError,
    Operation,
    SessionCallback,
    SessionState,
    Stat,
    StoreUnavailableError,
    Watch,
    WatchCallback,
    WatchEvent,
)


class Ensemble:
    """The nodes that all sessions share."""

    def __init__(self) -> None:
        self.tree = MemoryStore()
        self.owners: dict[str, int] = {}
        """Ephemeral nodes and the sessions that they end with."""
        self._last_session = 0x100

    async def start(self) -> None:
        await self.tree.start()

    def session(self) -> Session:
        """A store of one more broker."""
        return Session(self)

    def new_session_id(self) -> int:
        self._last_session += 1
        return self._last_session

    async def end(self, session_id: int) -> None:
        """Remove the nodes of a session that has ended."""
        gone = [path for path, owner in self.owners.items() if owner == session_id]
        for path in gone:
            self.owners.pop(path, None)
            with suppress(NoNodeError):
                await self.tree.commit([Delete(path)])


class Session(MetadataStore):
    """A broker's store. The controller sees an ensemble that others use too."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble
        self._id = ensemble.new_session_id()
        self._listeners: list[SessionCallback] = []
        self._watches: list[Watch] = []
        self.cut = False
        """The connection is gone: every call fails, and watches are told when it is back."""
        self.lose_reply: Callable[[Sequence[Operation]], bool] | None = None
        """Which write's reply is lost: it is done, and fails here."""
        self._missed: list[tuple[WatchCallback, WatchEvent]] = []

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        return

    async def close(self) -> None:
        """As the end of the process: the ephemeral nodes go."""
        self.cut = True
        self.drop_watches()
        await self.ensemble.end(self._id)

    def drop_watches(self) -> None:
        for watch in self._watches:
            watch.cancel()
        self._watches.clear()
        self._missed.clear()

    async def expire(self) -> None:
        """The ensemble ends the session; the client hears of it when its connection is back."""
        ended, self._id = self._id, 0
        await self.ensemble.end(ended)

    async def reconnect(self) -> None:
        """The connection is back; after an expiry with a new session."""
        self.cut = False
        if self._id == 0:
            self._tell(SessionState.EXPIRED)
            self._id = self.ensemble.new_session_id()
        self._tell(SessionState.CONNECTED)
        missed, self._missed = self._missed, []
        for callback, event in missed:
            callback(event)
        await asyncio.sleep(0)

    def listen_session(self, callback: SessionCallback) -> None:
        self._listeners.append(callback)

    def _tell(self, state: SessionState) -> None:
        for listener in self._listeners:
            listener(state)

    @property
    def session_id(self) -> int:
        return self._id

    @property
    def is_shared(self) -> bool:
        return True

    def _check(self, path: str) -> None:
        if self.cut or self._id == 0:
            raise StoreUnavailableError(path, "the connection is gone")

    # --- reads and writes ---------------------------------------------------------------------------------------------

    async def last_transaction(self) -> int:
        self._check("/")
        return await self.ensemble.tree.last_transaction()

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        self._check(paths[0] if paths else "/")
        await asyncio.sleep(0)
        found = await self.ensemble.tree.get_many(paths)
        return [
            None if each is None else (each[0], each[1]._replace(ephemeral_owner=self.ensemble.owners.get(path, 0)))
            for path, each in zip(paths, found, strict=True)
        ]

    async def children(self, path: str) -> list[str]:
        self._check(path)
        await asyncio.sleep(0)
        return await self.ensemble.tree.children(path)

    async def commit(self, operations: Sequence[Operation]) -> list[str | Stat | None]:
        self._check(operations[0].path if operations else "/")
        await asyncio.sleep(0)
        self._check(operations[0].path if operations else "/")
        owner, owners = self._id, self.ensemble.owners
        # The owner is known at once: a caller that is cancelled meanwhile has made its node nevertheless.
        made = [each.path for each in operations if isinstance(each, Create) and each.ephemeral]
        mine = [path for path in made if owners.setdefault(path, owner) == owner]
        try:
            results = await self.ensemble.tree.commit(operations)
        except MetadataStoreError:
            for path in mine:
                if await self.ensemble.tree.exists(path) is None:
                    owners.pop(path, None)
            raise
        for operation in operations:
            if isinstance(operation, Delete):
                owners.pop(operation.path, None)
        if owner != self._id:
            # The session ended in the middle of the write.
            await self.ensemble.end(owner)
            raise StoreUnavailableError(operations[0].path, "the session is over")
        if self.lose_reply is not None and self.lose_reply(operations):
            self.lose_reply = None
            raise StoreUnavailableError(operations[0].path, "the reply is lost")
        return results

    # --- watches ------------------------------------------------------------------------------------------------------

    async def watch_node(self, path: str, callback: WatchCallback) -> Watch:
        self._check(path)
        return self._keep(await self.ensemble.tree.watch_node(path, lambda event: self._told(callback, event)))

    async def watch_children(self, path: str, callback: WatchCallback) -> Watch:
        self._check(path)
        return self._keep(await self.ensemble.tree.watch_children(path, lambda event: self._told(callback, event)))

    def _keep(self, watch: Watch) -> Watch:
        self._watches.append(watch)
        return watch

    def _told(self, callback: WatchCallback, event: WatchEvent) -> None:
        if self.cut or self._id == 0:
            self._missed.append((callback, event))
        else:
            callback(event)
