"""The interface to where cluster metadata is kept: a tree of small nodes, with ZooKeeper's guarantees.

A node ("znode") has a value of bytes, a version that counts its changes, and children. What the controller builds on:

- every write is atomic and durable when its coroutine returns, and writes take effect in the order they are awaited;
- `set` and `delete` may name the version they expect, so two writers cannot overwrite each other unseen;
- `commit` applies several operations together or none of them;
- an ephemeral node lives as long as the session that made it, so a dead broker's registration goes away by itself;
- a watch tells that something changed, not what: the reader reads again.

Watches are persistent (they stay until cancelled), unlike ZooKeeper's own. Several changes may be told as one event.
Source of the model: ZooKeeper, and kafka.zk.KafkaZkClient for how it is used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from kafkapy.errors import ErrorCode

__all__ = [
    "ANY_VERSION",
    "BadVersionError",
    "Check",
    "Create",
    "Delete",
    "MetadataStore",
    "MetadataStoreError",
    "NoNodeError",
    "NodeExistsError",
    "NotEmptyError",
    "Operation",
    "SessionState",
    "SetData",
    "Stat",
    "StoreCorruptError",
    "StoreUnavailableError",
    "Watch",
    "WatchEvent",
    "WatchEventType",
    "parent_of",
]

ANY_VERSION: Final = -1
"""As an expected version: whatever the node's version is."""


class MetadataStoreError(Exception):
    """Base of the store's errors; `path` is the node, or the file for the errors about the store itself."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


class NoNodeError(MetadataStoreError):
    """The node (or, for a create, its parent) does not exist."""

    def __init__(self, path: str) -> None:
        super().__init__(path, f"metadata node {path} does not exist")


class NodeExistsError(MetadataStoreError):
    """The node to be created exists already."""

    def __init__(self, path: str) -> None:
        super().__init__(path, f"metadata node {path} exists already")


class BadVersionError(MetadataStoreError):
    """The node's version is not the expected one: somebody else has written it."""

    def __init__(self, path: str) -> None:
        super().__init__(path, f"metadata node {path} was changed by somebody else")


class NotEmptyError(MetadataStoreError):
    """The node to be deleted has children."""

    def __init__(self, path: str) -> None:
        super().__init__(path, f"metadata node {path} has children")


class StoreCorruptError(MetadataStoreError):
    """What the store has on disk cannot be read as metadata."""


class StoreUnavailableError(MetadataStoreError):
    """The store cannot be reached, is held by another process, or met an I/O error. Nothing is known of the write.

    A client may ask again. (No KafkaError: it is about the store, whatever was asked of it.)
    """

    code = ErrorCode.REQUEST_TIMED_OUT


class Stat(NamedTuple):
    """What the store knows of a node besides its value."""

    version: int
    """Counts changes of the value; 0 after the create."""
    created_transaction: int
    """Number of the transaction that created the node (ZooKeeper's czxid); of a broker's node this is its epoch."""
    modified_transaction: int
    created_ms: int
    """When the node was created: ms since the epoch, by the store's clock."""
    ephemeral_owner: int
    """The session the node lives with, 0 for a persistent node."""


class WatchEventType(Enum):
    """What happened to a watched node."""

    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    CHILDREN = "children"
    """A child was created or deleted."""


class WatchEvent(NamedTuple):
    """Something changed at `path`. Read the node to see what it is now."""

    type: WatchEventType
    path: str


class SessionState(Enum):
    """What a session listener is told."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """The connection is gone; the session, and with it the ephemeral nodes, may still live."""
    EXPIRED = "expired"
    """The session and its ephemeral nodes are gone for good; a new session follows with CONNECTED."""


class Watch:
    """A registered watch. Owned by whoever asked for it; used on the control loop."""

    def __init__(self, cancel: Callable[[], None]) -> None:
        self._cancel = cancel

    def cancel(self) -> None:
        """No event is delivered after this returns. Calling it again does nothing."""
        self._cancel()


class Create(NamedTuple):
    """Create a node. A sequential one gets ten digits appended that grow with every such create below the parent."""

    path: str
    value: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class SetData(NamedTuple):
    """Replace a node's value if its version is the expected one."""

    path: str
    value: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Delete a node without children if its version is the expected one."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Go on only if the node exists with that version."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check
WatchCallback = Callable[[WatchEvent], None]
SessionCallback = Callable[[SessionState], None]


class MetadataStore(ABC):
    """A tree of nodes. One for each broker process; all methods and callbacks on the control loop.

    Every coroutine raises StoreUnavailableError when the store cannot be asked.
    """

    @abstractmethod
    async def start(self) -> None:
        """Open or connect. StoreUnavailableError or StoreCorruptError with a sentence for the operator."""

    @abstractmethod
    async def close(self) -> None:
        """End the session: ephemeral nodes of it go away. Watches are dropped."""

    @property
    @abstractmethod
    def session_id(self) -> int:
        """The owner of ephemeral nodes made through this store."""

    @property
    def is_shared(self) -> bool:
        """Whether other brokers may use the store."""
        return False

    @abstractmethod
    async def last_transaction(self) -> int:
        """The number of the latest transaction; it grows with every commit."""

    async def get(self, path: str) -> tuple[bytes, Stat]:
        """The value and stat. NoNodeError."""
        found = (await self.get_many([path]))[0]
        if found is None:
            raise NoNodeError(path)
        return found

    @abstractmethod
    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Values and stats in the order asked, None where there is no node. Cheap for thousands of paths."""

    async def exists(self, path: str) -> Stat | None:
        """The stat, or None where there is no node."""
        found = (await self.get_many([path]))[0]
        return None if found is None else found[1]

    @abstractmethod
    async def children(self, path: str) -> list[str]:
        """The names (not paths) of the children, sorted. NoNodeError."""

    @abstractmethod
    async def commit(self, operations: Sequence[Operation]) -> list[str | Stat | None]:
        """Apply all operations or none, in order.

        The result of a Create is the path made, of a SetData the new Stat, of the others None. Raises the error of the
        first operation that cannot be applied; then nothing was written.
        """

    @abstractmethod
    async def watch_node(self, path: str, callback: WatchCallback) -> Watch:
        """Call back after the node is created, changed or deleted. It need not exist."""

    @abstractmethod
    async def watch_children(self, path: str, callback: WatchCallback) -> Watch:
        """Call back after a child of the node is created or deleted. The node must exist: NoNodeError."""

    def listen_session(self, callback: SessionCallback) -> None:
        """Hear of session changes. A store whose session cannot end calls nobody."""
        del callback

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Create a node and return its path. NodeExistsError; NoNodeError when the parent is missing.

        With `make_parents` missing parents are created first, empty and persistent.
        """
        operation = Create(path, value, ephemeral, sequential)
        try:
            result = await self.commit([operation])
        except NoNodeError:
            if not make_parents:
                raise
            await self.ensure_path(parent_of(path))
            result = await self.commit([operation])
        created = result[0]
        assert isinstance(created, str)
        return created

    async def set(self, path: str, value: bytes, version: int = ANY_VERSION) -> Stat:
        """Replace the value. NoNodeError, BadVersionError."""
        stat = (await self.commit([SetData(path, value, version)]))[0]
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node without children. NoNodeError, BadVersionError, NotEmptyError."""
        await self.commit([Delete(path, version)])

    async def ensure_path(self, path: str) -> None:
        """Create the node and its parents, empty, where they are missing."""
        await self.ensure_paths([path])

    async def ensure_paths(self, paths: Iterable[str]) -> None:
        """Create the nodes and their parents, empty, where they are missing, in one transaction."""
        wanted: set[str] = set()
        for path in paths:
            while path != "/":
                wanted.add(path)
                path = parent_of(path)
        ordered = sorted(wanted)  # a parent's path is shorter than its child's, so it comes first
        while True:
            found = await self.get_many(ordered)
            missing = [path for path, each in zip(ordered, found, strict=True) if each is None]
            if not missing:
                return
            try:
                await self.commit([Create(path) for path in missing])
            except NodeExistsError:
                continue  # another broker of the cluster was faster

    async def subtree(self, path: str) -> list[str]:
        """The node and everything below it, children first (the order to delete in). Empty without the node."""
        try:
            names = await self.children(path)
        except NoNodeError:
            return []
        found: list[str] = []
        for name in names:
            found += await self.subtree(f"{path}/{name}")
        found.append(path)
        return found


def parent_of(path: str) -> str:
    """The path of the parent; that of a node at the top is "/"."""
    return path.rpartition("/")[0] or "/"


def check_path(path: str) -> None:
    """ValueError unless the path is absolute, without empty parts and without a slash at its end."""
    if not path.startswith("/") or path == "/" or path.endswith("/") or "//" in path or "\x00" in path:
        raise ValueError(f"{path!r} is not a path of a metadata node")
