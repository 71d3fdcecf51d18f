"""The interface of the metadata store: a tree of nodes with ZooKeeper's guarantees.

A node ("znode") has a value of bytes, a version that counts its changes, and children. The controller builds on these
guarantees:

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
    "STORE_FAILED",
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
"""An expected version that matches every version."""


class MetadataStoreError(Exception):
    """Base of the store's errors.

    `path` is the node, or the file for the errors about the store itself.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


class NoNodeError(MetadataStoreError):
    """The node, or the parent of a new node, does not exist."""

    def __init__(self, path: str) -> None:
        super().__init__(path, f"metadata node {path} does not exist")


class NodeExistsError(MetadataStoreError):
    """The node exists already."""

    def __init__(self, path: str) -> None:
        super().__init__(path, f"metadata node {path} exists already")


class BadVersionError(MetadataStoreError):
    """The node's version is not the expected one: another writer changed it."""

    def __init__(self, path: str) -> None:
        super().__init__(path, f"metadata node {path} was changed by somebody else")


class NotEmptyError(MetadataStoreError):
    """The node to be deleted has children."""

    def __init__(self, path: str) -> None:
        super().__init__(path, f"metadata node {path} has children")


class StoreCorruptError(MetadataStoreError):
    """The store's data on disk is no valid metadata."""


class StoreUnavailableError(MetadataStoreError):
    """The store is unreachable, locked by another process, or met an I/O error.

    The outcome of a write is unknown. A client may ask again. It is no KafkaError, because it concerns the store and
    not the request.
    """

    code = ErrorCode.REQUEST_TIMED_OUT


STORE_FAILED: Final = (StoreUnavailableError, StoreCorruptError)
"""The store failed, whatever it was asked. One page that cannot be read may be readable at the next attempt."""


class Stat(NamedTuple):
    """A node's version, transaction, time and owner."""

    version: int
    """Counts changes of the value; 0 after the create."""
    created_transaction: int
    """The transaction that created the node (ZooKeeper's czxid).

    For a broker's node this is the broker epoch.
    """
    modified_transaction: int
    created_ms: int
    """The creation time in ms since the epoch, by the store's clock."""
    ephemeral_owner: int
    """The session that owns the node, 0 for a persistent node."""


class WatchEventType(Enum):
    """The kind of change of a watched node."""

    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    CHILDREN = "children"
    """A child was created or deleted."""


class WatchEvent(NamedTuple):
    """A node at `path` has changed; read it for its present value."""

    type: WatchEventType
    path: str


class SessionState(Enum):
    """The state of a session, as session listeners hear it."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """The connection is gone; the session, and with it the ephemeral nodes, may still live."""
    EXPIRED = "expired"
    """The session and its ephemeral nodes are gone for good; a new session follows with CONNECTED."""


class Watch:
    """A registered watch.

    Owned by its creator; used on the control loop.
    """

    def __init__(self, cancel: Callable[[], None]) -> None:
        self._cancel = cancel

    def cancel(self) -> None:
        """End the delivery of events. A second call does nothing."""
        self._cancel()


class Create(NamedTuple):
    """Creates a node.

    The name of a sequential node ends in ten digits that grow with every such create below the parent.
    """

    path: str
    value: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class SetData(NamedTuple):
    """Replaces a node's value if its version is the expected one."""

    path: str
    value: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Deletes a node without children if its version is the expected one."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Fails the commit unless the node exists with that version."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check
WatchCallback = Callable[[WatchEvent], None]
SessionCallback = Callable[[SessionState], None]


class MetadataStore(ABC):
    """A tree of nodes, one store for each broker process.

    All methods and callbacks run on the control loop. Every coroutine raises StoreUnavailableError when the store
    cannot be reached.
    """

    @abstractmethod
    async def start(self) -> None:
        """Open the file or connect.

        StoreUnavailableError or StoreCorruptError with a sentence for the operator.
        """

    @abstractmethod
    async def close(self) -> None:
        """End the session: its ephemeral nodes are deleted, its watches dropped."""

    @property
    @abstractmethod
    def session_id(self) -> int:
        """The session that owns ephemeral nodes made through this store."""

    @property
    def is_shared(self) -> bool:
        """Whether other brokers may use the store."""
        return False

    @property
    def session_timeout_s(self) -> float:
        """Seconds until a killed process's session ends; 0: at once."""
        return 0.0

    @property
    def is_connected(self) -> bool:
        """Whether the store answers now; without a connection, requests may wait for long."""
        return True

    @abstractmethod
    async def last_transaction(self) -> int:
        """The number of the latest transaction; every commit raises it."""

    async def get(self, path: str) -> tuple[bytes, Stat]:
        """The value and stat. NoNodeError."""
        found = (await self.get_many([path]))[0]
        if found is None:
            raise NoNodeError(path)
        return found

    @abstractmethod
    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Values and stats in the order asked; None for a missing node.

        Cheap for thousands of paths.
        """

    async def exists(self, path: str) -> Stat | None:
        """The stat, or None for a missing node."""
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
        """Call back after the node is created, changed or deleted.

        The node need not exist.
        """

    @abstractmethod
    async def watch_children(self, path: str, callback: WatchCallback) -> Watch:
        """Call back after a child of the node is created or deleted.

        The node must exist: NoNodeError.
        """

    def listen_session(self, callback: SessionCallback) -> None:
        """Call back when the session's state changes.

        A store whose session cannot end calls nobody.
        """
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
        """Create a node and return its path.

        NodeExistsError; NoNodeError when the parent is missing. With `make_parents` missing parents are created first,
        empty and persistent.
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
        """Create the node and its parents where they are missing, empty."""
        await self.ensure_paths([path])

    async def ensure_paths(self, paths: Iterable[str]) -> None:
        """Create nodes and their missing parents, empty, in one transaction."""
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
        """The node and all its descendants, children first (the order to delete in).

        Empty for a missing node.
        """
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
    """The path of the parent, "/" for a node at the top."""
    return path.rpartition("/")[0] or "/"


def check_path(path: str) -> None:
    """Check that a path is absolute and well formed.

    ValueError for an empty part, or a slash at the end.
    """
    if not path.startswith("/") or path == "/" or path.endswith("/") or "//" in path or "\x00" in path:
        raise ValueError(f"{path!r} is not a path of a metadata node")
