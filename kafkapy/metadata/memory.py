"""The metadata store of brokers that persist nothing: dictionaries of nodes.

A broker alone has a tree for itself; the brokers of a cluster in one process share one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

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
    SessionCallback,
    SessionState,
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

__all__ = ["MemoryStore", "MemoryTree"]

Undo = Callable[[], object]


class MemoryTree:
    """The nodes, and the sessions of the stores that share them.

    The stores use it under its lock, each on its control loop; the loops may run in different threads.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.nodes: dict[str, tuple[bytes, Stat]] = {}
        self.names: dict[str, set[str]] = {"/": set()}
        """Path to the names of its children; every node has an entry."""
        self.sequences: dict[str, int] = {}
        self.transaction = 0
        self.sessions: dict[int, MemoryStore] = {}
        self._last_session = 0

    def open_session(self, store: MemoryStore) -> int:
        """A new session of the store."""
        with self.lock:
            self._last_session += 1
            self.sessions[self._last_session] = store
            return self._last_session

    def end_session(self, session: int) -> None:
        """Delete the session's ephemeral nodes, and tell the others. A second call does nothing."""
        with self.lock:
            if self.sessions.pop(session, None) is None:
                return
            gone = [path for path, (_, stat) in self.nodes.items() if stat.ephemeral_owner == session]
            if gone:
                self.transaction += 1
            events = []
            for path in gone:
                self.remove(path)
                events.append(WatchEvent(WatchEventType.DELETED, path))
                events.append(WatchEvent(WatchEventType.CHILDREN, parent_of(path)))
            self.tell(events)

    def expire(self, session: int) -> None:
        """End a session, as ZooKeeper does after its timeout.

        The store hears it, and gets a new session. Any thread may call this.
        """
        with self.lock:
            store = self.sessions.get(session)
            self.end_session(session)
            if store is not None:
                store.expired()

    def tell(self, events: Sequence[WatchEvent]) -> None:
        """Give events to all sessions, in the order of the commits."""
        if events:
            for store in list(self.sessions.values()):
                store.hear(events)

    def put(self, path: str, node: tuple[bytes, Stat]) -> None:
        """Add a node below its parent."""
        self.nodes[path] = node
        self.names[path] = set()
        self.names[parent_of(path)].add(path.rpartition("/")[2])

    def remove(self, path: str) -> None:
        """Remove a node without children."""
        del self.nodes[path]
        del self.names[path]
        self.names[parent_of(path)].discard(path.rpartition("/")[2])


class MemoryStore(MetadataStore):
    """MetadataStore over a tree of dictionaries: one for itself by default.

    Used on the control loop; no method waits.
    """

    def __init__(self, tree: MemoryTree | None = None) -> None:
        self._shared = tree is not None
        self._tree = tree or MemoryTree()
        self._session = 0
        self._watches = Watches()
        self._session_callbacks: list[SessionCallback] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def _nodes(self) -> dict[str, tuple[bytes, Stat]]:
        return self._tree.nodes

    @property
    def _names(self) -> dict[str, set[str]]:
        return self._tree.names

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin a session; a tree for one store begins empty."""
        self._loop = asyncio.get_running_loop()
        self._session = self._tree.open_session(self)

    async def close(self) -> None:
        """End the session; a tree for one store drops all nodes.

        A second call does nothing.
        """
        self._loop = None
        self._watches.clear()
        self._tree.end_session(self._session)
        if not self._shared:
            self._tree = MemoryTree()

    @property
    def session_id(self) -> int:
        """The session id; it changes when the session expires."""
        return self._session

    @property
    def is_shared(self) -> bool:
        """Whether the tree is for several stores."""
        return self._shared

    def listen_session(self, callback: SessionCallback) -> None:
        """Call back when the session expires, and when the next one begins."""
        self._session_callbacks.append(callback)

    async def last_transaction(self) -> int:
        """The number of commits so far."""
        return self._tree.transaction

    def hear(self, events: Sequence[WatchEvent]) -> None:
        """Deliver events on the control loop. Called under the tree's lock, by any thread."""
        self._on_loop(self._watches.tell, events)

    def expired(self) -> None:
        """Tell of the session's end on the control loop, and begin another.

        Any thread may call this.
        """
        self._on_loop(self._begin_again)

    def _begin_again(self) -> None:
        if self._loop is None:
            return
        for callback in list(self._session_callbacks):
            callback(SessionState.EXPIRED)
        self._session = self._tree.open_session(self)
        for callback in list(self._session_callbacks):
            callback(SessionState.CONNECTED)

    def _on_loop(self, call: Callable[..., object], *arguments: object) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended without close()
                self._loop.call_soon_threadsafe(call, *arguments)

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
        with self._tree.lock:
            return [self._tree.nodes.get(path) for path in paths]

    async def children(self, path: str) -> list[str]:
        """The names of the children, sorted; "/" lists the top. NoNodeError."""
        self._running_loop()
        if path != "/":
            check_path(path)
        with self._tree.lock:
            names = self._tree.names.get(path)
            if names is None:
                raise NoNodeError(path)
            return sorted(names)

    # --- writes -------------------------------------------------------------------------------------------------------

    async def commit(self, operations: Sequence[Operation]) -> list[str | Stat | None]:
        """Apply all operations or none."""
        self._running_loop()
        for operation in operations:
            check_path(operation.path)
        events: list[WatchEvent] = []
        undo: list[Undo] = []
        results: list[str | Stat | None] = []
        with self._tree.lock:
            self._tree.transaction += 1
            try:
                for operation in operations:
                    results.append(self._apply(operation, events, undo))
            except MetadataStoreError:
                for step in reversed(undo):
                    step()
                raise
            self._tree.tell(events)
        if events:
            # As in every other store: events are delivered after the write, and before the writer goes on.
            await asyncio.sleep(0)
        return results

    def _apply(self, operation: Operation, events: list[WatchEvent], undo: list[Undo]) -> str | Stat | None:
        path = operation.path
        if isinstance(operation, Create):
            return self._create(operation, events, undo)
        found = self._tree.nodes.get(path)
        if found is None:
            raise NoNodeError(path)
        stat = found[1]
        if operation.version not in (ANY_VERSION, stat.version):
            raise BadVersionError(path)
        if isinstance(operation, Check):
            return None
        if isinstance(operation, SetData):
            changed = stat._replace(version=stat.version + 1, modified_transaction=self._tree.transaction)
            self._tree.nodes[path] = (bytes(operation.value), changed)
            undo.append(lambda: self._tree.nodes.update({path: found}))
            events.append(WatchEvent(WatchEventType.CHANGED, path))
            return changed
        assert isinstance(operation, Delete)
        if self._tree.names[path]:
            raise NotEmptyError(path)
        sequence = self._tree.sequences.pop(path, 0)
        self._tree.remove(path)

        def put_back() -> None:
            self._tree.put(path, found)
            self._tree.sequences[path] = sequence

        undo.append(put_back)
        events.append(WatchEvent(WatchEventType.DELETED, path))
        events.append(WatchEvent(WatchEventType.CHILDREN, parent_of(path)))
        return None

    def _create(self, operation: Create, events: list[WatchEvent], undo: list[Undo]) -> str:
        path = operation.path
        parent = parent_of(path)
        if parent not in self._tree.names:
            raise NoNodeError(parent)
        if operation.sequential:
            number = self._tree.sequences.get(parent, 0)
            self._tree.sequences[parent] = number + 1
            undo.append(lambda: self._tree.sequences.update({parent: number}))
            path = f"{path}{number:010d}"
        if path in self._tree.nodes:
            raise NodeExistsError(path)
        owner = self._session if operation.ephemeral else 0
        if owner and owner not in self._tree.sessions:
            raise StoreUnavailableError(path, "the session of the metadata store has expired")
        stat = Stat(0, self._tree.transaction, self._tree.transaction, time.time_ns() // 1_000_000, owner)
        self._tree.put(path, (bytes(operation.value), stat))
        undo.append(lambda: self._tree.remove(path))
        events.append(WatchEvent(WatchEventType.CREATED, path))
        events.append(WatchEvent(WatchEventType.CHILDREN, parent))
        return path

    # --- watches ------------------------------------------------------------------------------------------------------

    async def watch_node(self, path: str, callback: WatchCallback) -> Watch:
        """Call back after the node is created, changed or deleted."""
        check_path(path)
        return self._watches.add_node(path, callback)

    async def watch_children(self, path: str, callback: WatchCallback) -> Watch:
        """Call back after a child of the node is created or deleted. NoNodeError."""
        if path != "/":
            check_path(path)
        if path not in self._tree.names:
            raise NoNodeError(path)
        return self._watches.add_children(path, callback)
