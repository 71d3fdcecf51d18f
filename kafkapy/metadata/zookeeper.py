"""The metadata store of a cluster: a ZooKeeper ensemble, through kazoo.

Every write is a ZooKeeper transaction, so single and combined operations take the same path. ZooKeeper's watches fire
once; here each is armed again before its event is delivered, so a reader sees every change that causes no further
event. kazoo calls back on its own threads; call_soon_threadsafe brings each result to the control loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from kazoo import exceptions as zk  # type: ignore[import-untyped]
from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.handlers.threading import KazooTimeoutError  # type: ignore[import-untyped]
from kazoo.protocol.states import (  # type: ignore[import-untyped]
    EventType,
    KazooState,
    KeeperState,
    WatchedEvent,
    ZnodeStat,
)

from kafkapy.metadata.store import (
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
from kafkapy.metadata.zookeeper_connection import ZooKeeperHandler, ZooKeeperSecurity, acl_of
from kafkapy.metadata.zookeeper_multi_read import MultiRead

__all__ = ["ZooKeeperStore"]

T = TypeVar("T")
R = TypeVar("R")

logger = logging.getLogger("kafka.zookeeper.ZooKeeperClient")

REARM_PAUSE_S: Final = 0.2
"""Pause in seconds between two attempts to arm a watch while the ensemble is unreachable."""
CLOSE_S: Final = 5.0
"""Seconds that an ensemble has to confirm the end of a session."""
RECONNECT_LOOK_S: Final = 0.05
"""Pause in seconds between two looks whether a connection answers again."""
REVIVE_PAUSE_S: Final = 1.0
"""Pause in seconds before a client that has given up connects again."""
MULTI_READ: Final = 128
"""Nodes of one multi-read: a node may have hundreds of KB, and the answer has them all."""
MULTI_READ_FROM: Final = 3
"""Fewer nodes are read one by one."""
LEAST_PATIENCE_S: Final = 0.5
"""Seconds that a request waits at least for a connection."""

_EVENT_TYPES: Final = {
    EventType.CREATED: WatchEventType.CREATED,
    EventType.DELETED: WatchEventType.DELETED,
    EventType.CHANGED: WatchEventType.CHANGED,
    EventType.CHILD: WatchEventType.CHILDREN,
}
_SESSION_STATES: Final = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.EXPIRED,
}


class ZooKeeperStore(MetadataStore):
    """MetadataStore over a ZooKeeper ensemble.

    It owns the kazoo client; used on the control loop. `connect` is Kafka's zookeeper.connect: host:port pairs
    separated by commas, then perhaps /a/chroot. Timeouts in ms. At most `max_in_flight` requests have no answer yet.
    """

    def __init__(
        self,
        connect: str,
        session_timeout_ms: int = 18_000,
        connection_timeout_ms: int = 18_000,
        *,
        max_in_flight: int = 10,
        security: ZooKeeperSecurity | None = None,
    ) -> None:
        self.connect = connect
        security = security or ZooKeeperSecurity()
        self._secure = security.set_acl
        self._session_s = session_timeout_ms / 1000
        self._connection_timeout_s = connection_timeout_ms / 1000
        self._handler = ZooKeeperHandler(security.context)
        self._client = KazooClient(
            hosts=connect,
            timeout=self._session_s,
            handler=self._handler,
            sasl_options=None if security.sasl is None else dict(security.sasl),
            connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": 1.0},
        )
        self._max_in_flight = max_in_flight
        self._in_flight = asyncio.Semaphore(max_in_flight)
        self._connected = asyncio.Event()
        self._disconnected_since = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session_callbacks: list[SessionCallback] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._reads_many: bool | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect, and create the chroot if there is one.

        StoreUnavailableError after the connection timeout.
        """
        self._loop = asyncio.get_running_loop()
        self._disconnected_since = self._loop.time()
        self._client.add_listener(self._session_changed)
        self._client.start_async()
        try:
            async with asyncio.timeout(self._connection_timeout_s):
                await self._connected.wait()
                await self._make_chroot()
        except TimeoutError:
            await self._stop_client()
            seconds = f"{self._connection_timeout_s:g} seconds"
            raise StoreUnavailableError(
                self.connect,
                f"ZooKeeper at {self.connect} cannot be reached within {seconds}: {self._handler.problem}",
            ) from None
        except MetadataStoreError as error:
            await self._stop_client()
            raise StoreUnavailableError(
                self.connect, f"ZooKeeper at {self.connect} refuses this broker: {error}"
            ) from None
        except BaseException:
            await self._stop_client()
            raise

    async def _make_chroot(self) -> None:
        """Ask for the root, which needs the login, and create the nodes of the chroot."""
        if await self._ask(lambda: self._client.exists_async("/"), "/") is None:
            await self._ask(lambda: self._client.ensure_path_async("/", acl=acl_of("/", self._secure)), "/")

    async def close(self) -> None:
        """End the session in a bounded time, which removes its ephemeral nodes.

        A second call does nothing.
        """
        if self._closed:
            return
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stop_client()

    async def _stop_client(self) -> None:
        self._closed = True
        if not self._connected.is_set():
            self._handler.abort()  # nobody to say goodbye to

        def stop() -> None:
            # A frozen server confirms nothing: the session then ends by its timeout.
            abort = threading.Timer(CLOSE_S, self._handler.abort)
            abort.start()
            try:
                self._client.stop()
                self._client.close()
            except Exception as error:
                logger.warning("The connection to ZooKeeper did not end: %s", error)
            finally:
                abort.cancel()

        await asyncio.to_thread(stop)

    @property
    def session_id(self) -> int:
        """ZooKeeper's id of the session, 0 without one."""
        client_id = self._client.client_id
        return 0 if client_id is None else int(client_id[0])

    @property
    def is_shared(self) -> bool:
        """True: an ensemble serves many brokers."""
        return True

    @property
    def session_timeout_s(self) -> float:
        """The configured session timeout in seconds."""
        return self._session_s

    @property
    def is_connected(self) -> bool:
        """Whether a server of the ensemble has this session."""
        return bool(self._client.connected)

    async def last_transaction(self) -> int:
        """The latest zxid that the ensemble has told this session."""
        return int(self._client.last_zxid)

    def listen_session(self, callback: SessionCallback) -> None:
        """Call back when the session ends, and when its successor begins."""
        self._session_callbacks.append(callback)

    def _session_changed(self, state: str) -> None:
        """Forward a change of the session from one of kazoo's threads."""
        given_up = self._client.client_state in (KeeperState.AUTH_FAILED, KeeperState.CLOSED)
        if self._loop is not None and not self._closed:
            self._loop.call_soon_threadsafe(self._tell_session, _SESSION_STATES[state], given_up)

    def _tell_session(self, state: SessionState, given_up: bool) -> None:
        if self._closed:
            return
        logger.info("The ZooKeeper session is %s", state.value)
        if state is SessionState.CONNECTED:
            self._connected.set()
        elif self._connected.is_set():
            self._connected.clear()
            self._disconnected_since = asyncio.get_running_loop().time()
        if given_up:
            self._spawn(self._revive())
        for callback in self._session_callbacks:
            callback(state)

    async def _revive(self) -> None:
        """Connect again: kazoo's thread ends after a refused login, and after an error it does not know."""
        await asyncio.sleep(REVIVE_PAUSE_S)

        def begin_again() -> None:
            self._client.stop()
            self._client.start_async()

        if not self._closed:
            await asyncio.to_thread(begin_again)

    # --- reads --------------------------------------------------------------------------------------------------------

    async def get(self, path: str) -> tuple[bytes, Stat]:
        """The value and stat. NoNodeError."""
        check_path(path)
        value, stat = await self._ask(lambda: self._client.get_async(path), path)
        return value or b"", _stat(stat)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Values and stats in the order asked; None for a missing node.

        Many nodes in one request, and the requests are pipelined. An ensemble before 3.6 is asked for each node.
        """
        if len(paths) < MULTI_READ_FROM or not await self._knows_multi_read():
            return await self._get_each(paths)
        for path in paths:
            check_path(path)
        chunks = [paths[start : start + MULTI_READ] for start in range(0, len(paths), MULTI_READ)]
        answers = await self._pipelined(chunks, self._multi_read)
        return [each for answer in answers for each in answer]

    async def _knows_multi_read(self) -> bool:
        """Whether the ensemble reads many nodes in one request; the first call finds it out.

        A server that does not know the request closes the connection, and the session goes on. One connection may be
        lost by chance, so it is asked twice. StoreUnavailableError when the ensemble does not answer afterwards.
        """
        if self._reads_many is None:
            self._reads_many = await self._reads_root() or await self._reads_root()
        return self._reads_many

    async def _reads_root(self) -> bool:
        try:
            await self._multi_read(["/"])
        except MetadataStoreError as error:
            logger.info("ZooKeeper at %s does not read several nodes at once: %s", self.connect, error)
            await self._wait_for_an_answer()
            return False
        return True

    async def _wait_for_an_answer(self) -> None:
        """Ask until the next connection answers: kazoo also fails requests that it got while it noticed the loss."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._session_s
        while True:
            try:
                await self._ask(lambda: self._client.exists_async("/"), "/")
                return
            except StoreUnavailableError:
                if loop.time() >= ends:
                    raise
                await asyncio.sleep(RECONNECT_LOOK_S)

    async def _multi_read(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        found: list[tuple[bytes, Stat] | None] = []
        request = MultiRead(paths, self._client.chroot)
        for path, each in zip(paths, await self._ask(lambda: request.send(self._client), paths[0]), strict=True):
            if isinstance(each, zk.NoNodeError):
                found.append(None)
            elif isinstance(each, Exception):
                raise _translated(each, path)
            else:
                value, stat = each
                found.append((value or b"", _stat(stat)))
        return found

    async def _get_each(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        async def get(path: str) -> tuple[bytes, Stat] | None:
            try:
                return await self.get(path)
            except NoNodeError:
                return None

        return await self._pipelined(paths, get)

    async def _pipelined(self, items: Sequence[T], ask: Callable[[T], Coroutine[Any, Any, R]]) -> list[R]:
        """The answers about all items, of which as many are asked at once as the ensemble may have."""
        found: dict[int, R] = {}
        numbered = iter(enumerate(items))

        async def work() -> None:
            for number, item in numbered:
                found[number] = await ask(item)

        workers = [asyncio.ensure_future(work()) for _ in range(min(self._max_in_flight, len(items)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
        return [found[number] for number in range(len(items))]

    async def exists(self, path: str) -> Stat | None:
        """The stat, or None for a missing node."""
        check_path(path)
        stat = await self._ask(lambda: self._client.exists_async(path), path)
        return None if stat is None else _stat(stat)

    async def children(self, path: str) -> list[str]:
        """The names of the children, sorted. NoNodeError."""
        if path != "/":
            check_path(path)
        return sorted(await self._ask(lambda: self._client.get_children_async(path), path))

    async def _ask(self, send: Callable[[], Any], path: str) -> Any:
        """The result of an asynchronous call of kazoo, or the store's error."""
        loop = asyncio.get_running_loop()
        # Once the connection is lost, requests wait together as long as a session may live without one.
        patience_s = self._session_s
        if not self._connected.is_set():
            patience_s = max(LEAST_PATIENCE_S, self._disconnected_since + patience_s - loop.time())
        try:
            async with asyncio.timeout(patience_s), self._in_flight:
                return await self._answer(send, path)
        except TimeoutError:
            raise StoreUnavailableError(path, f"ZooKeeper could not be asked about {path}: no answer in time") from None

    async def _answer(self, send: Callable[[], Any], path: str) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def arrived(result: Any) -> None:
            if result.exception is not None:
                if not future.done():
                    future.set_exception(_translated(result.exception, path))
            elif not future.done():
                future.set_result(result.value)

        try:
            send().rawlink(lambda result: loop.call_soon_threadsafe(arrived, result))
        except (zk.KazooException, KazooTimeoutError) as error:
            raise _translated(error, path) from None
        return await future

    # --- writes -------------------------------------------------------------------------------------------------------

    async def commit(self, operations: Sequence[Operation]) -> list[str | Stat | None]:
        """Apply all operations or none, in one ZooKeeper transaction."""
        transaction = self._client.transaction()
        for operation in operations:
            check_path(operation.path)
            if isinstance(operation, Create):
                transaction.create(
                    operation.path,
                    operation.value,
                    acl_of(operation.path, self._secure),
                    operation.ephemeral,
                    operation.sequential,
                )
                if not operation.value:
                    # Apache Kafka's brokers make such nodes without data, and read an empty value as broken JSON.
                    transaction.operations[-1] = transaction.operations[-1]._replace(data=None)
            elif isinstance(operation, SetData):
                transaction.set_data(operation.path, operation.value, operation.version)
            elif isinstance(operation, Delete):
                transaction.delete(operation.path, operation.version)
            else:
                assert isinstance(operation, Check)
                transaction.check(operation.path, operation.version)
        if not operations:
            return []
        results = await self._ask(transaction.commit_async, operations[0].path)
        for operation, result in zip(operations, results, strict=True):
            # Results before the failed one say "rolled back", results after it "inconsistency".
            if isinstance(result, Exception) and not isinstance(result, (zk.RolledBackError, zk.RuntimeInconsistency)):
                missing_parent = isinstance(operation, Create) and isinstance(result, zk.NoNodeError)
                raise _translated(result, parent_of(operation.path) if missing_parent else operation.path)
        return [
            _stat(each) if isinstance(each, ZnodeStat) else each if isinstance(each, str) else None for each in results
        ]

    # --- watches ------------------------------------------------------------------------------------------------------

    async def watch_node(self, path: str, callback: WatchCallback) -> Watch:
        """Call back after the node is created, changed or deleted."""
        check_path(path)
        return await self._watch(
            lambda fired: self._client.exists_async(path, watch=fired), path, WatchEventType.CHANGED, callback
        )

    async def watch_children(self, path: str, callback: WatchCallback) -> Watch:
        """Call back after a child of the node is created or deleted. NoNodeError."""
        if path != "/":
            check_path(path)
        return await self._watch(
            lambda fired: self._client.get_children_async(path, watch=fired), path, WatchEventType.CHILDREN, callback
        )

    async def _watch(
        self,
        arm: Callable[[Callable[[WatchedEvent], None]], Any],
        path: str,
        otherwise: WatchEventType,
        told: WatchCallback,
    ) -> Watch:
        active = True
        loop = asyncio.get_running_loop()

        def fired(event: WatchedEvent) -> None:
            """Handle an event on one of kazoo's threads."""
            if active and not self._closed:
                loop.call_soon_threadsafe(lambda: self._spawn(again(event)))

        async def again(event: WatchedEvent) -> None:
            while active and not self._closed:
                try:
                    await self._ask(lambda: arm(fired), path)
                    break
                except NoNodeError:
                    break  # the watched parent itself is gone: this is the last event
                except MetadataStoreError:
                    await asyncio.sleep(REARM_PAUSE_S)
            if active and not self._closed:
                # After a lost session (an event of no type) anything may have changed.
                told(WatchEvent(_EVENT_TYPES.get(event.type, otherwise), path))

        def cancel() -> None:
            nonlocal active
            active = False

        await self._ask(lambda: arm(fired), path)
        return Watch(cancel)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(stat.version, stat.czxid, stat.mzxid, stat.ctime, stat.ephemeralOwner)


def _translated(error: BaseException, path: str) -> MetadataStoreError:
    for theirs, ours in (
        (zk.NoNodeError, NoNodeError),
        (zk.NodeExistsError, NodeExistsError),
        (zk.BadVersionError, BadVersionError),
        (zk.NotEmptyError, NotEmptyError),
    ):
        if isinstance(error, theirs):
            return ours(path)
    return StoreUnavailableError(path, f"ZooKeeper could not be asked about {path}: {type(error).__name__} {error}")
