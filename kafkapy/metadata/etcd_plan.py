"""The tree of nodes in etcd's keys, and a commit as one etcd transaction.

    <prefix>/<depth, 2 hex digits><path>    a node; the depth keeps grandchildren out of the range of the children
        text: version, transaction of the create (0: that of this write), ms of the create; then a newline and the value
    <prefix>/sequence<path>                 number of the next sequential child of the node
    <prefix>/session/<lease>                a session lives while its key exists
    <prefix>/commit                         written by every commit

A commit reads a snapshot, applies the operations to it, and writes the result in a transaction that holds only if the
snapshot is still true: each touched node has its revision, a parent exists, a deleted node has got no child, and the
session lives. etcd limits comparisons to 128; a larger commit compares the key `commit` instead, so it fails when
anything was committed since. The caller then begins again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kafkapy.metadata.etcd_client import decoded, encoded
from kafkapy.metadata.store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SetData,
    Stat,
    StoreCorruptError,
    parent_of,
)

__all__ = ["Keys", "Node", "Plan", "Reads", "Snapshot", "decode_node", "flat", "nested", "plan"]

WIDTH: Final = 42
"""Operations of one level of nested transactions.

etcd's --max-txn-ops is 128, and the widths of all levels together count: three levels make 74,088 operations, more than
a request of 1.5 MiB holds.
"""
MAX_COMPARES: Final = WIDTH


class Keys:
    """Keys of the tree below one prefix. Immutable."""

    def __init__(self, prefix: str) -> None:
        self._prefix = f"{prefix.rstrip('/')}/"
        self.commit = f"{self._prefix}commit"

    def node(self, path: str) -> str:
        """The key of a node."""
        return f"{self._prefix}{path.count('/'):02x}{path}"

    def children(self, path: str) -> tuple[str, str]:
        """The range of the keys of a node's children, its end exclusive."""
        parent, depth = ("", 1) if path == "/" else (path, path.count("/") + 1)
        start = f"{self._prefix}{depth:02x}{parent}/"
        return start, f"{start[:-1]}0"  # "0" comes after "/"

    def path(self, key: str) -> str:
        """The path of a node's key."""
        return key[len(self._prefix) + 2 :]

    def sequence(self, path: str) -> str:
        """The key of the counter of sequential children."""
        return f"{self._prefix}sequence{path}"

    def session(self, lease: int) -> str:
        """The key that lives with a session."""
        return f"{self._prefix}session/{lease:x}"


class Node(NamedTuple):
    """A node as it stands in etcd."""

    value: bytes
    version: int
    created: int
    """The revision that created it; 0 within the commit that does."""
    created_ms: int
    owner: int
    revision: int
    """The revision of the last write."""

    @property
    def stat(self) -> Stat:
        """As readers get it."""
        return Stat(self.version, self.created, self.revision, self.created_ms, self.owner)


def decode_node(path: str, kv: dict[str, Any]) -> Node:
    """A node from a key-value pair of etcd. StoreCorruptError."""
    revision = int(kv["mod_revision"])
    try:
        head, separator, value = decoded(kv.get("value", "")).partition(b"\n")
        version, created, created_ms = map(int, head.split(b" "))
        if not separator:
            raise ValueError
    except ValueError:
        raise StoreCorruptError(path, f"the value of {path} in etcd is no metadata node of kafkapy") from None
    return Node(value, version, created or revision, created_ms, int(kv.get("lease", 0)), revision)


def _encode_node(node: Node) -> bytes:
    return f"{node.version} {node.created} {node.created_ms}\n".encode() + node.value


@dataclass(slots=True)
class Reads:
    """The keys that a commit has to read."""

    nodes: list[str] = field(default_factory=list)
    children: dict[str, int] = field(default_factory=dict)
    """Nodes that are deleted, and how many names of their children decide."""
    sequences: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, operations: Sequence[Operation], names: Iterable[str] = ()) -> Reads:
        """The reads of the operations.

        `names` are paths of sequential nodes that an earlier attempt met.
        """
        nodes: dict[str, None] = dict.fromkeys(names)
        sequences: dict[str, None] = {}
        children: dict[str, int] = {}
        for operation in operations:
            parent = parent_of(operation.path)
            if isinstance(operation, Create):
                if parent != "/":
                    nodes[parent] = None
                if operation.sequential:
                    sequences[parent] = None
                    continue
            elif isinstance(operation, Delete):
                children.setdefault(operation.path, 1)
                if parent in children:
                    children[parent] += 1
            nodes[operation.path] = None
        for operation in operations:  # a child may be deleted before its parent
            if isinstance(operation, Delete) and parent_of(operation.path) in children:
                children[parent_of(operation.path)] += 1
        return cls(list(nodes), children, list(sequences))


@dataclass(slots=True)
class Snapshot:
    """The state that a commit is planned on."""

    revision: int
    commit_revision: int
    """Of the key `commit`, 0 before the first commit."""
    nodes: dict[str, Node | None]
    children: dict[str, list[str]] = field(default_factory=dict)
    sequences: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Next number, and the revision of the counter (0 for none)."""


@dataclass(slots=True)
class Plan:
    """A commit as comparisons and operations of one etcd transaction."""

    compares: list[dict[str, Any]]
    operations: list[dict[str, Any]]
    results: list[Callable[[int], str | Stat | None]]
    names: list[str]
    """Paths of the sequential nodes."""

    def finish(self, revision: int) -> list[str | Stat | None]:
        """The results of the operations, once etcd has given the transaction a revision."""
        return [result(revision) for result in self.results]


def plan(keys: Keys, snapshot: Snapshot, operations: Sequence[Operation], session: int, now_ms: int) -> Plan:
    """The transaction of a commit.

    Raises the error of the first operation that cannot be applied.
    """
    planner = _Planner(keys, snapshot, session, now_ms)
    results = [planner.apply(operation) for operation in operations]
    return Plan(planner.compares(), planner.operations(), results, planner.names)


class _Planner:
    """Applies operations to a snapshot."""

    def __init__(self, keys: Keys, snapshot: Snapshot, session: int, now_ms: int) -> None:
        self._keys = keys
        self._snapshot = snapshot
        self._session = session
        self._now_ms = now_ms
        self._changed: dict[str, Node | None] = {}
        self._touched: dict[str, None] = {}
        """Paths whose present state the commit depends on."""
        self._parents: dict[str, None] = {}
        self._deleted: dict[str, None] = {}
        self._sequences: dict[str, int] = {}
        self.names: list[str] = []

    # --- the operations -----------------------------------------------------------------------------------------------

    def apply(self, operation: Operation) -> Callable[[int], str | Stat | None]:
        if isinstance(operation, Create):
            path = self._create(operation)
            return lambda revision: path
        path = operation.path
        node = self._at(path)
        self._touched[path] = None
        if node is None:
            raise NoNodeError(path)
        if operation.version not in (ANY_VERSION, node.version):
            raise BadVersionError(path)
        if isinstance(operation, SetData):
            changed = node._replace(value=bytes(operation.value), version=node.version + 1)
            self._changed[path] = changed
            return lambda revision: changed._replace(created=changed.created or revision, revision=revision).stat
        if isinstance(operation, Delete):
            if self._has_children(path):
                raise NotEmptyError(path)
            self._changed[path] = None
            self._deleted[path] = None
        else:
            assert isinstance(operation, Check)
        return lambda revision: None

    def _create(self, operation: Create) -> str:
        path, parent = operation.path, parent_of(operation.path)
        if parent != "/":
            if self._at(parent) is None:
                raise NoNodeError(parent)
            self._parents[parent] = None
        if operation.sequential:
            number = self._sequences.get(parent, self._snapshot.sequences[parent][0])
            path = f"{path}{number:010d}"
            self._sequences[parent] = number + 1
            self.names.append(path)
        self._touched[path] = None
        if self._at(path) is not None:
            raise NodeExistsError(path)
        owner = self._session if operation.ephemeral else 0
        self._changed[path] = Node(bytes(operation.value), 0, 0, self._now_ms, owner, 0)
        return path

    def _at(self, path: str) -> Node | None:
        return self._changed[path] if path in self._changed else self._snapshot.nodes.get(path)

    def _has_children(self, path: str) -> bool:
        if any(parent_of(each) == path and node is not None for each, node in self._changed.items()):
            return True
        return any(self._changed.get(f"{path}/{name}", self) is self for name in self._snapshot.children[path])

    # --- the transaction ----------------------------------------------------------------------------------------------

    def compares(self) -> list[dict[str, Any]]:
        """Everything that must still be true."""
        keys, snapshot = self._keys, self._snapshot
        found = [_same(keys.node(path), snapshot.nodes.get(path)) for path in self._touched]
        for path in self._parents:
            if path not in self._touched:
                found.append(_compare(keys.node(path), "CREATE", "GREATER", 0))
        for path in self._deleted:
            start, end = keys.children(path)
            found.append(_compare(start, "CREATE", "LESS", snapshot.revision + 1) | {"range_end": encoded(end)})
        for path in self._sequences:
            found.append(_compare(keys.sequence(path), "MOD", "EQUAL", snapshot.sequences[path][1]))
        if len(found) >= MAX_COMPARES:
            # Ends of sessions remove nodes without a commit.
            ephemeral = [path for path in (*self._touched, *self._parents) if self._is_ephemeral(path)]
            found = [_same(keys.node(path), snapshot.nodes[path]) for path in dict.fromkeys(ephemeral)]
            found.append(_compare(keys.commit, "MOD", "EQUAL", snapshot.commit_revision))
        found.append(_compare(keys.session(self._session), "CREATE", "GREATER", 0))
        return found

    def _is_ephemeral(self, path: str) -> bool:
        node = self._snapshot.nodes.get(path)
        return node is not None and node.owner != 0

    def operations(self) -> list[dict[str, Any]]:
        """The writes. Each key stands once, as etcd demands."""
        keys = self._keys
        writes: list[dict[str, Any]] = []
        for path, node in self._changed.items():
            if node is not None:
                writes.append(_put(keys.node(path), _encode_node(node), node.owner))
            elif self._snapshot.nodes.get(path) is not None:
                writes.append({"request_delete_range": {"key": encoded(keys.node(path))}})
        for path, number in self._sequences.items():
            if self._changed.get(path, self) is not None:
                writes.append(_put(keys.sequence(path), str(number).encode(), 0))
        for path in self._deleted:
            if self._changed[path] is None:
                writes.append({"request_delete_range": {"key": encoded(keys.sequence(path))}})
        if writes:
            writes.append(_put(keys.commit, f"{self._session:x}".encode(), 0))
        return writes


def _compare(key: str, target: str, result: str, value: int) -> dict[str, Any]:
    name = {"MOD": "mod_revision", "CREATE": "create_revision"}[target]
    return {"key": encoded(key), "target": target, "result": result, name: str(value)}


def _same(key: str, node: Node | None) -> dict[str, Any]:
    """The node is the one of the snapshot, or is still missing."""
    return _compare(key, "MOD", "EQUAL", 0 if node is None else node.revision)


def _put(key: str, value: bytes, lease: int) -> dict[str, Any]:
    return {"request_put": {"key": encoded(key), "value": encoded(value), "lease": str(lease)}}


def nested(operations: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The operations in groups, because etcd limits the width of a transaction."""
    level = list(operations)
    while len(level) > WIDTH:
        level = [{"request_txn": {"success": level[start : start + WIDTH]}} for start in range(0, len(level), WIDTH)]
    return level


def flat(responses: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    """The responses of `nested` operations in their order."""
    for response in responses:
        inner = response.get("response_txn")
        if inner is None:
            yield response
        else:
            yield from flat(inner.get("responses", ()))
