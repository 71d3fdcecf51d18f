"""The metadata store of a single broker: one SQLite file.

The file is in the broker's data directory.

Schema (user_version 1):

    znode(path, parent, value, version, created, modified, created_ms, owner, sequence)   each node but the root
    counter(name, value)          "transaction": the last transaction number; "session": the last session number

`sequence` is the number the next sequential child of the node gets. The file is in WAL mode with synchronous=FULL: a
commit is on the disk before its coroutine returns, so a power cut loses nothing that was answered. The connection
holds the file's lock for as long as it is open, which keeps a second broker out. All sessions before this one
belonged to processes that are gone, so their ephemeral nodes are removed when the file is opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from kafkapy.metadata.store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SetData,
    Stat,
    StoreCorruptError,
    StoreUnavailableError,
    Watch,
    WatchCallback,
    WatchEvent,
    WatchEventType,
    check_path,
    parent_of,
)
from kafkapy.metadata.watches import Watches

T = TypeVar("T")

FILE_NAME: Final = "kafkapy-metadata.db"
OF_OTHERS: Final = 0o007
APPLICATION_ID: Final = 0x6B706D31  # "kpm1"
SCHEMA_VERSION: Final = 1
PATHS_AT_ONCE: Final = 250
"""Nodes that one statement reads; SQLite's limit of variables was 999 for many versions."""
_SCHEMA = """
CREATE TABLE znode (
    path TEXT PRIMARY KEY, parent TEXT NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL,
    created INTEGER NOT NULL, modified INTEGER NOT NULL, created_ms INTEGER NOT NULL,
    owner INTEGER NOT NULL, sequence INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX znode_parent ON znode (parent);
CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counter VALUES ('transaction', 0), ('session', 0), ('root_sequence', 0);
"""


class EmbeddedStore(MetadataStore):
    """MetadataStore over one SQLite file.

    Used on the control loop. It owns the connection and one thread that touches the file. Reads and writes run on that
    thread one after the other, so the loop never waits for a disk and the order of writes is the order of the calls.
    """

    def __init__(self, directory: str | Path) -> None:
        self.path = Path(directory) / FILE_NAME
        self._executor: ThreadPoolExecutor | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: sqlite3.Connection | None = None
        self._session = 0
        self._watches = Watches()

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open or create the file, and begin a session."""
        self._loop = asyncio.get_running_loop()
        self._executor = ThreadPoolExecutor(1, "metadata-store")
        try:
            await self._run(self._open)
        except BaseException:
            self._executor.shutdown(wait=False)
            self._executor = None
            raise

    async def close(self) -> None:
        """Remove the session's ephemeral nodes and close the file.

        A second call does nothing.
        """
        executor, self._executor = self._executor, None
        if executor is None or self._loop is None:
            return
        self._watches.clear()
        try:
            await self._loop.run_in_executor(executor, self._shut)
        finally:
            executor.shutdown()  # its thread has nothing left to do

    @property
    def session_id(self) -> int:
        """The number of the session, which grows by one with each start."""
        return self._session

    async def last_transaction(self) -> int:
        """The transaction number in the file; it keeps growing across restarts."""
        return await self._run(self._last_transaction)

    def _last_transaction(self) -> int:
        try:
            row = self._open_connection().execute("SELECT value FROM counter WHERE name='transaction'").fetchone()
        except sqlite3.Error as error:
            raise self._failed(error) from error
        return int(row[0])

    def _open(self) -> None:
        new = not self.path.exists()
        try:
            _hide(self.path)
            connection = sqlite3.connect(self.path, isolation_level=None, timeout=0.2)
        except (sqlite3.Error, OSError) as error:
            raise StoreUnavailableError(
                str(self.path), f"the metadata file {self.path} cannot be opened: {error}"
            ) from None
        try:
            # In this order: with the lock held for good, WAL needs no shared-memory file and nobody else gets in.
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("BEGIN EXCLUSIVE")
            self._prepare_schema(connection, new)
            session = connection.execute("SELECT value FROM counter WHERE name='session'").fetchone()[0] + 1
            connection.execute("UPDATE counter SET value=? WHERE name='session'", (session,))
            connection.execute("DELETE FROM znode WHERE owner<>0")
            connection.execute("COMMIT")
        except StoreCorruptError:
            connection.close()
            raise
        except sqlite3.OperationalError as error:
            connection.close()
            if "locked" in str(error):
                raise StoreUnavailableError(
                    str(self.path), f"the metadata file {self.path} is in use by another process"
                ) from None
            raise StoreUnavailableError(
                str(self.path), f"the metadata file {self.path} cannot be opened: {error}"
            ) from None
        except (sqlite3.DatabaseError, TypeError) as error:
            connection.close()
            raise self._corrupt(str(error)) from None
        if new:
            _sync_directory(self.path.parent)
        self._session = session
        self._connection = connection

    def _prepare_schema(self, connection: sqlite3.Connection, new: bool) -> None:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if version == 0 and tables == 0:
            # Also a file whose very first transaction never finished: SQLite has rolled it back to empty.
            for statement in filter(str.strip, _SCHEMA.split(";")):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            return
        if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise StoreCorruptError(str(self.path), f"{self.path} is not a kafkapy metadata file")
        if version != SCHEMA_VERSION:
            raise StoreCorruptError(
                str(self.path),
                f"the metadata file {self.path} has format {version}; this version reads format {SCHEMA_VERSION}",
            )
        problem = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if problem != "ok":
            raise self._corrupt(problem)

    def _corrupt(self, detail: str) -> StoreCorruptError:
        return StoreCorruptError(
            str(self.path),
            f"the metadata file {self.path} is corrupt ({detail}); restore it from a backup, "
            "or move it away to start without topics and settings",
        )

    def _shut(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.execute("DELETE FROM znode WHERE owner<>0")
            finally:
                connection.close()

    async def _run(self, work: Callable[..., T], *arguments: object) -> T:
        if self._executor is None or self._loop is None:
            raise StoreUnavailableError(str(self.path), f"the metadata file {self.path} is not open")
        return await self._loop.run_in_executor(self._executor, work, *arguments)

    def _open_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreUnavailableError(str(self.path), f"the metadata file {self.path} is not open")
        return self._connection

    # --- reads --------------------------------------------------------------------------------------------------------

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Values and stats in the order asked; None for a missing node."""
        for path in paths:
            check_path(path)
        return await self._run(self._get_many, list(paths))

    def _get_many(self, paths: list[str]) -> list[tuple[bytes, Stat] | None]:
        connection = self._open_connection()
        found: dict[str, tuple[bytes, Stat]] = {}
        try:
            for start in range(0, len(paths), PATHS_AT_ONCE):
                chunk = paths[start : start + PATHS_AT_ONCE]
                rows = connection.execute(
                    "SELECT path, value, version, created, modified, created_ms, owner FROM znode "
                    f"WHERE path IN ({','.join('?' * len(chunk))})",
                    chunk,
                )
                for path, value, *stat in rows:
                    found[path] = (value, Stat(*stat))
        except sqlite3.Error as error:
            raise self._failed(error) from error
        return [found.get(path) for path in paths]

    async def children(self, path: str) -> list[str]:
        """The names of the children, sorted; "/" lists the top. NoNodeError."""
        if path != "/":
            check_path(path)
        return await self._run(self._children, path)

    def _children(self, path: str) -> list[str]:
        connection = self._open_connection()
        try:
            rows = connection.execute("SELECT path FROM znode WHERE parent=? ORDER BY path", (path,)).fetchall()
            if not rows and path != "/" and not self._has(connection, path):
                raise NoNodeError(path)
        except sqlite3.Error as error:
            raise self._failed(error) from error
        skip = len(path) + (path != "/")
        return [row[0][skip:] for row in rows]

    # --- writes -------------------------------------------------------------------------------------------------------

    async def commit(self, operations: Sequence[Operation]) -> list[str | Stat | None]:
        """Apply all operations or none, in one SQLite transaction."""
        for operation in operations:
            check_path(operation.path)
        return await self._run(self._commit, list(operations))

    def _commit(self, operations: list[Operation]) -> list[str | Stat | None]:
        connection = self._open_connection()
        events: list[WatchEvent] = []
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute("UPDATE counter SET value=value+1 WHERE name='transaction'")
                number = connection.execute("SELECT value FROM counter WHERE name='transaction'").fetchone()[0]
                results = [self._apply(connection, operation, number, events) for operation in operations]
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise self._failed(error) from error
        if events and self._loop is not None:
            # Told from here, so that a caller that was cancelled while waiting does not swallow the events.
            self._loop.call_soon_threadsafe(self._watches.tell, events)
        return results

    def _apply(
        self, connection: sqlite3.Connection, operation: Operation, number: int, events: list[WatchEvent]
    ) -> str | Stat | None:
        path = operation.path
        if isinstance(operation, Create):
            return self._create(connection, operation, number, events)
        row = connection.execute(
            "SELECT version, created, created_ms, owner FROM znode WHERE path=?", (path,)
        ).fetchone()
        if row is None:
            raise NoNodeError(path)
        version, created, created_ms, owner = row
        if operation.version not in (ANY_VERSION, version):
            raise BadVersionError(path)
        if isinstance(operation, Check):
            return None
        if isinstance(operation, SetData):
            connection.execute(
                "UPDATE znode SET value=?, version=?, modified=? WHERE path=?",
                (operation.value, version + 1, number, path),
            )
            events.append(WatchEvent(WatchEventType.CHANGED, path))
            return Stat(version + 1, created, number, created_ms, owner)
        assert isinstance(operation, Delete)
        if connection.execute("SELECT 1 FROM znode WHERE parent=? LIMIT 1", (path,)).fetchone() is not None:
            raise NotEmptyError(path)
        connection.execute("DELETE FROM znode WHERE path=?", (path,))
        events.append(WatchEvent(WatchEventType.DELETED, path))
        events.append(WatchEvent(WatchEventType.CHILDREN, parent_of(path)))
        return None

    def _create(self, connection: sqlite3.Connection, operation: Create, number: int, events: list[WatchEvent]) -> str:
        path = operation.path
        parent = parent_of(path)
        if parent != "/" and not self._has(connection, parent):
            raise NoNodeError(parent)
        if operation.sequential:
            path = f"{path}{self._next_sequence(connection, parent):010d}"
        owner = self._session if operation.ephemeral else 0
        try:
            connection.execute(
                "INSERT INTO znode VALUES (?, ?, ?, 0, ?, ?, ?, ?, 0)",
                (path, parent, operation.value, number, number, int(time.time() * 1000), owner),
            )
        except sqlite3.IntegrityError:
            raise NodeExistsError(path) from None
        events.append(WatchEvent(WatchEventType.CREATED, path))
        events.append(WatchEvent(WatchEventType.CHILDREN, parent))
        return path

    @staticmethod
    def _next_sequence(connection: sqlite3.Connection, parent: str) -> int:
        if parent == "/":
            row = connection.execute("SELECT value FROM counter WHERE name='root_sequence'").fetchone()
            connection.execute("UPDATE counter SET value=value+1 WHERE name='root_sequence'")
        else:
            row = connection.execute("SELECT sequence FROM znode WHERE path=?", (parent,)).fetchone()
            connection.execute("UPDATE znode SET sequence=sequence+1 WHERE path=?", (parent,))
        return int(row[0])

    @staticmethod
    def _has(connection: sqlite3.Connection, path: str) -> bool:
        return connection.execute("SELECT 1 FROM znode WHERE path=?", (path,)).fetchone() is not None

    def _failed(self, error: sqlite3.Error) -> StoreUnavailableError | StoreCorruptError:
        if isinstance(error, sqlite3.OperationalError):
            return StoreUnavailableError(str(self.path), f"the metadata file {self.path} cannot be used: {error}")
        return self._corrupt(str(error))

    # --- watches ------------------------------------------------------------------------------------------------------

    async def watch_node(self, path: str, callback: WatchCallback) -> Watch:
        """Call back after the node is created, changed or deleted."""
        check_path(path)
        return self._watches.add_node(path, callback)

    async def watch_children(self, path: str, callback: WatchCallback) -> Watch:
        """Call back after a child of the node is created or deleted. NoNodeError."""
        if path != "/" and await self.exists(path) is None:
            raise NoNodeError(path)
        return self._watches.add_children(path, callback)


def _hide(path: Path) -> None:
    """Keep other users from reading the file: it holds SCRAM credentials and encrypted passwords.

    A new file is its owner's alone; an older one keeps the rights of its group. SQLite gives the log beside it the same
    rights. OSError.
    """
    # An existing file is not opened here: the close would drop the locks that this process may have on it.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    for each in (path, path.with_name(f"{path.name}-wal")):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            mode = each.stat().st_mode & 0o777
            if mode & OF_OTHERS:
                each.chmod(mode & ~OF_OTHERS)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
