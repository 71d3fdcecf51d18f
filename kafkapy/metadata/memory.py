"""The metadata store of a broker that persists nothing: a dictionary of nodes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from kafkapy.metadata.store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    MetadataStore,
    MetadataStoreError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SetData,
    Stat,
    StoreUnavailableError,
    Watch,
    WatchCallback,
    WatchEvent,
    WatchEventType,
    check_path,
    parent_of,
)
from kafkapy.metadata.watches import Watches

__all__ = ["MemoryStore"]

SESSION = 1
"""The only session; its nodes, ephemeral or not, live as long as the store is open."""

Undo = Callable[[], object]


class MemoryStore(MetadataStore):
    """MetadataStore over dictionaries.

    Used on the control loop; no method waits.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[bytes, Stat]] = {}
        self._names: dict[str, set[str]] = {"/": set()}
        """Path to the names of its children; every node has an entry."""
        self._sequences: dict[str, int] = {}
        self._transaction = 0
        self._watches = Watches()
        self._loop: asyncio.AbstractEventLoop | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin with an empty tree."""
        self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        """Drop all nodes. A second call does nothing."""
        self._loop = None
        self._watches.clear()
        self._nodes.clear()
        self._names = {"/": set()}
        self._sequences.clear()

    @property
    def session_id(self) -> int:
        """The session id, which is constant."""
        return SESSION

    async def last_transaction(self) -> int:
        """The number of commits so far."""
        return self._transaction

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise StoreUnavailableError("/", "the metadata store is not open")
        return self._loop

    # --- reads --------------------------------------------------------------------------------------------------------

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Values and stats in the order asked; None for a missing node."""
        self._running_loop()
        for path in paths:
            check_path(path)
        return [self._nodes.get(path) for path in paths]

    async def children(self, path: str) -> list[str]:
        """The names of the children, sorted; "/" lists the top. NoNodeError."""
        self._running_loop()
        if path != "/":
            check_path(path)
        names = self._names.get(path)
        if names is None:
            raise NoNodeError(path)
        return sorted(names)

    # --- writes -------------------------------------------------------------------------------------------------------

    async def commit(self, operations: Sequence[Operation]) -> list[str | Stat | None]:
        """Apply all operations or none."""
        loop = self._running_loop()
        for operation in operations:
            check_path(operation.path)
        self._transaction += 1
        events: list[WatchEvent] = []
        undo: list[Undo] = []
        results: list[str | Stat | None] = []
        try:
            for operation in operations:
                results.append(self._apply(operation, events, undo))
        except MetadataStoreError:
            for step in reversed(undo):
                step()
            raise
        if events:
            # As in every other store: events are delivered after the write, and before the writer goes on.
            loop.call_soon(self._watches.tell, events)
            await asyncio.sleep(0)
        return results

    def _apply(self, operation: Operation, events: list[WatchEvent], undo: list[Undo]) -> str | Stat | None:
        path = operation.path
        if isinstance(operation, Create):
            return self._create(operation, events, undo)
        found = self._nodes.get(path)
        if found is None:
            raise NoNodeError(path)
        stat = found[1]
        if operation.version not in (ANY_VERSION, stat.version):
            raise BadVersionError(path)
        if isinstance(operation, Check):
            return None
        if isinstance(operation, SetData):
            changed = stat._replace(version=stat.version + 1, modified_transaction=self._transaction)
            self._nodes[path] = (bytes(operation.value), changed)
            undo.append(lambda: self._nodes.update({path: found}))
            events.append(WatchEvent(WatchEventType.CHANGED, path))
            return changed
        assert isinstance(operation, Delete)
        if self._names[path]:
            raise NotEmptyError(path)
        sequence = self._sequences.pop(path, 0)
        self._remove(path)

        def put_back() -> None:
            self._put(path, found)
            self._sequences[path] = sequence

        undo.append(put_back)
        events.append(WatchEvent(WatchEventType.DELETED, path))
        events.append(WatchEvent(WatchEventType.CHILDREN, parent_of(path)))
        return None

    def _create(self, operation: Create, events: list[WatchEvent], undo: list[Undo]) -> str:
        path = operation.path
        parent = parent_of(path)
        if parent not in self._names:
            raise NoNodeError(parent)
        if operation.sequential:
            number = self._sequences.get(parent, 0)
            self._sequences[parent] = number + 1
            undo.append(lambda: self._sequences.update({parent: number}))
            path = f"{path}{number:010d}"
        if path in self._nodes:
            raise NodeExistsError(path)
        owner = SESSION if operation.ephemeral else 0
        stat = Stat(0, self._transaction, self._transaction, time.time_ns() // 1_000_000, owner)
        self._put(path, (bytes(operation.value), stat))
        undo.append(lambda: self._remove(path))
        events.append(WatchEvent(WatchEventType.CREATED, path))
        events.append(WatchEvent(WatchEventType.CHILDREN, parent))
        return path

    def _put(self, path: str, node: tuple[bytes, Stat]) -> None:
        self._nodes[path] = node
        self._names[path] = set()
        self._names[parent_of(path)].add(path.rpartition("/")[2])

    def _remove(self, path: str) -> None:
        del self._nodes[path]
        del self._names[path]
        self._names[parent_of(path)].discard(path.rpartition("/")[2])

    # --- watches ------------------------------------------------------------------------------------------------------

    async def watch_node(self, path: str, callback: WatchCallback) -> Watch:
        """Call back after the node is created, changed or deleted."""
        check_path(path)
        return self._watches.add_node(path, callback)

    async def watch_children(self, path: str, callback: WatchCallback) -> Watch:
        """Call back after a child of the node is created or deleted. NoNodeError."""
        if path not in self._names:
            raise NoNodeError(path)
        return self._watches.add_children(path, callback)
