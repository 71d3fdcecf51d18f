"""The metadata store of a cluster without ZooKeeper: etcd, 3.4 or newer.

A session is a lease: the ephemeral nodes are attached to it, and etcd deletes them when the broker has not renewed it
for the session's timeout. A commit is one transaction whose comparisons hold only for the state that was read before
(`etcd_plan`). The revision of a node's create is the transaction number, so broker epochs grow. Watches are etcd's own,
one for the children of a watched node's parent, and resume at the revision they have told.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import time
from collections.abc import Sequence
from ssl import SSLContext
from typing import Any, Final

from kafkapy.metadata.etcd_client import (
    NOT_FOUND,
    EtcdClient,
    EtcdRefusedError,
    EtcdUnavailableError,
    decoded,
    encoded,
)
from kafkapy.metadata.etcd_plan import Keys, Node, Plan, Reads, Snapshot, decode_node, flat, nested, plan
from kafkapy.metadata.etcd_watches import EtcdWatches
from kafkapy.metadata.store import (
    Check,
    MetadataStore,
    NoNodeError,
    Operation,
    SessionCallback,
    SessionState,
    Stat,
    StoreUnavailableError,
    Watch,
    WatchCallback,
    check_path,
)

__all__ = ["EtcdStore"]

logger = logging.getLogger("kafkapy.metadata.etcd")

READS_AT_ONCE: Final = 1500
"""Nodes of one request."""
READ_BYTES: Final = 500_000
"""Bytes of their paths; a request to etcd has at most 1.5 MiB."""
CONFLICT_PAUSE_S: Final = 0.05
"""Longest pause in seconds before a commit begins again because the state it had read has changed."""
CLOSE_S: Final = 5.0
"""Seconds that etcd has to confirm the end of a session."""
LEAST_PATIENCE_S: Final = 0.5
"""Seconds that a request waits at least for an answer."""
RETRY_S: Final = 0.2
"""Pause in seconds after the session could not be renewed."""


class EtcdStore(MetadataStore):
    """MetadataStore over an etcd cluster.

    It owns the client, the lease and the task that renews it; used on the control loop. `endpoints` are the client
    URLs of the members. All keys begin with `prefix`, so several clusters may share one etcd. Timeouts in ms; etcd
    counts leases in seconds, so the session's timeout is rounded up.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        prefix: str = "/kafkapy",
        session_timeout_ms: int = 18_000,
        connection_timeout_ms: int = 18_000,
        context: SSLContext | None = None,
        user: str | None = None,
        password: str | None = None,
    ) -> None:
        self._where = ",".join(endpoints)
        self._session_s = session_timeout_ms / 1000
        self._connection_s = connection_timeout_ms / 1000
        # Two members may stay silent before a third one must renew the lease.
        self._attempt_s = max(1.0, self._session_s / 6)
        self._client = EtcdClient(endpoints, self._attempt_s, context=context, user=user, password=password)
        self._timeout_s = max(2.0, self._session_s * 2 / 3)
        self._renewal_s = self._session_s / 6
        self._keys = Keys(prefix)
        self._watches = EtcdWatches(self._client, self._keys, self._timeout_s)
        self._lease = 0
        self._state = SessionState.EXPIRED
        self._broken_since = 0.0
        self._callbacks: list[SessionCallback] = []
        self._renew_now = asyncio.Event()
        self._renewal: asyncio.Task[None] | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect and begin a session.

        StoreUnavailableError after the connection timeout, and at once when etcd refuses the user.
        """
        try:
            self._lease = await self._begin_session(self._connection_s)
        except EtcdUnavailableError as error:
            self._client.close()
            seconds = f"{self._connection_s:g} seconds"
            raise StoreUnavailableError(
                self._where, f"etcd at {self._where} cannot be reached within {seconds}: {error}"
            ) from None
        except EtcdRefusedError as error:
            self._client.close()
            raise StoreUnavailableError(self._where, f"etcd at {self._where} refuses this broker: {error}") from None
        self._state = SessionState.CONNECTED
        self._renewal = asyncio.get_running_loop().create_task(self._renew())

    async def close(self) -> None:
        """End the session in a bounded time, which removes its ephemeral nodes.

        A second call does nothing.
        """
        renewal, self._renewal = self._renewal, None
        if renewal is None:
            return
        renewal.cancel()
        await asyncio.gather(renewal, return_exceptions=True)
        await self._watches.close()
        lease, self._lease = self._lease, 0
        try:
            await self._client.call("/v3/lease/revoke", {"ID": str(lease)}, timeout_s=CLOSE_S, repeatable=True)
        except EtcdUnavailableError as error:
            logger.warning("The session ends later by itself, because etcd does not answer: %s", error)
        except EtcdRefusedError as error:
            logger.info("The session had ended before: %s", error)
        self._client.close()

    @property
    def session_id(self) -> int:
        """The id of the lease, 0 without one."""
        return self._lease

    @property
    def is_shared(self) -> bool:
        """True: an etcd cluster serves many brokers."""
        return True

    @property
    def session_timeout_s(self) -> float:
        """The lease's time to live in seconds."""
        return math.ceil(self._session_s)

    @property
    def is_connected(self) -> bool:
        """Whether the lease has been renewed lately."""
        return self._state is SessionState.CONNECTED

    async def last_transaction(self) -> int:
        """The revision of the latest commit of the cluster's brokers."""
        answer = await self._ask("/v3/kv/range", {"key": encoded(self._keys.commit), "keys_only": True}, "/")
        return _revision_of(answer)

    # --- session ------------------------------------------------------------------------------------------------------

    def listen_session(self, callback: SessionCallback) -> None:
        """Call back when the session is in doubt or over, and when another begins."""
        self._callbacks.append(callback)

    async def _begin_session(self, timeout_s: float) -> int:
        """Grant a lease and attach the session's key to it; returns its id."""
        request = {"TTL": str(math.ceil(self._session_s))}
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        granted = await self._client.call(
            "/v3/lease/grant", request, timeout_s=timeout_s, attempt_s=self._attempt_s, repeatable=True
        )
        lease = int(granted["ID"])
        put = {"key": encoded(self._keys.session(lease)), "lease": str(lease)}
        left_s = max(0.0, end - loop.time())
        await self._client.call("/v3/kv/put", put, timeout_s=left_s, attempt_s=self._attempt_s, repeatable=True)
        return lease

    async def _renew(self) -> None:
        """Keep the session, and begin another one when it has ended."""
        pause_s = self._renewal_s
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._renew_now.wait()
            self._renew_now.clear()
            pause_s = self._renewal_s
            try:
                if await self._is_renewed():
                    self._tell(SessionState.CONNECTED)
                else:
                    self._tell(SessionState.EXPIRED)
                    self._lease = await self._begin_session(self._timeout_s)
                    self._tell(SessionState.CONNECTED)
            except (EtcdUnavailableError, EtcdRefusedError) as error:
                logger.warning("The session cannot be renewed: %s", error)
                pause_s = RETRY_S
                if self._state is SessionState.CONNECTED:
                    self._tell(SessionState.SUSPENDED)

    async def _is_renewed(self) -> bool:
        if self._state is SessionState.EXPIRED:
            return False
        message = {"ID": str(self._lease)}
        answer = await self._client.call(
            "/v3/lease/keepalive", message, timeout_s=self._attempt_s, attempt_s=self._attempt_s, repeatable=True
        )
        return int(answer.get("result", {}).get("TTL", 0)) > 0

    def _tell(self, state: SessionState) -> None:
        if state is self._state:
            return
        if self._state is SessionState.CONNECTED:
            self._broken_since = asyncio.get_running_loop().time()
        self._state = state
        logger.info("The etcd session is %s", state.value)
        for callback in self._callbacks:
            callback(state)

    # --- reads --------------------------------------------------------------------------------------------------------

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Values and stats in the order asked; None for a missing node."""
        for path in paths:
            check_path(path)
        found: list[tuple[bytes, Stat] | None] = []
        for chunk in _chunks(paths):
            answers, _ = await self._read([{"request_range": {"key": encoded(self._keys.node(p))}} for p in chunk])
            for path, answer in zip(chunk, answers, strict=True):
                node = _node_in(path, answer)
                found.append(None if node is None else (node.value, node.stat))
        return found

    async def children(self, path: str) -> list[str]:
        """The names of the children, sorted; "/" lists the top. NoNodeError."""
        if path != "/":
            check_path(path)
        answers, _ = await self._read([self._count_of(path), self._names_below(path)])
        if path != "/" and int(answers[0].get("count", 0)) == 0:
            raise NoNodeError(path)
        return _names_in(answers[1])

    def _count_of(self, path: str) -> dict[str, Any]:
        return {"request_range": {"key": encoded(self._keys.node(path)), "count_only": True}}

    def _names_below(self, path: str, limit: int = 0) -> dict[str, Any]:
        start, end = map(encoded, self._keys.children(path))
        return {"request_range": {"key": start, "range_end": end, "keys_only": True, "limit": str(limit)}}

    async def _read(self, ranges: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
        """Answers to ranges, all of one revision, and that revision."""
        answer = await self._ask("/v3/kv/txn", {"success": nested(ranges)}, "/")
        revision = int(answer["header"]["revision"])
        return [each["response_range"] for each in flat(answer.get("responses", ()))], revision

    async def _ask(self, path: str, message: dict[str, Any], node: str, *, repeatable: bool = True) -> dict[str, Any]:
        """One call, with the store's errors."""
        if self._renewal is None:
            raise StoreUnavailableError(node, "the session with etcd is not open")
        try:
            return await self._client.call(path, message, timeout_s=self._patience_s(), repeatable=repeatable)
        except EtcdUnavailableError as error:
            raise StoreUnavailableError(node, f"etcd could not be asked about {node}: {error}") from None
        except EtcdRefusedError as error:
            if error.code == NOT_FOUND and "lease" in str(error):
                self._renew_now.set()
                raise StoreUnavailableError(node, f"the session that would own {node} has expired") from None
            raise StoreUnavailableError(node, f"etcd refused a request about {node}: {error}") from None

    def _patience_s(self) -> float:
        """Seconds that a request waits; those of a broken session wait together."""
        if self._state is SessionState.CONNECTED:
            return self._timeout_s
        return max(LEAST_PATIENCE_S, self._broken_since + self._timeout_s - asyncio.get_running_loop().time())

    # --- writes -------------------------------------------------------------------------------------------------------

    async def commit(self, operations: Sequence[Operation]) -> list[str | Stat | None]:
        """Apply all operations or none, in one etcd transaction.

        A transaction that meets a change made since its reads begins again with new reads.
        """
        for operation in operations:
            check_path(operation.path)
        if not operations:
            return []
        names: list[str] = []
        while True:
            session = self._lease
            snapshot = await self._snapshot(Reads.of(operations, names))
            planned = plan(self._keys, snapshot, operations, session, time.time_ns() // 1_000_000)
            if all(isinstance(operation, Check) for operation in operations):
                return planned.finish(snapshot.revision)
            revision = await self._write(planned, session, operations[0].path)
            if revision is not None:
                return planned.finish(revision)
            names = planned.names
            await asyncio.sleep(random.random() * CONFLICT_PAUSE_S)

    async def _write(self, planned: Plan, session: int, path: str) -> int | None:
        """The revision of the transaction; None when what it compares has changed."""
        own = {"request_range": {"key": encoded(self._keys.session(session)), "count_only": True}}
        message = {"compare": planned.compares, "success": nested(planned.operations), "failure": [own]}
        answer = await self._ask("/v3/kv/txn", message, path, repeatable=False)
        if answer.get("succeeded"):
            return int(answer["header"]["revision"])
        if int(answer["responses"][0]["response_range"].get("count", 0)) == 0:
            self._renew_now.set()
            raise StoreUnavailableError(path, f"{path} was not written, because this broker's session has expired")
        return None

    async def _snapshot(self, reads: Reads) -> Snapshot:
        """The present state, of one revision."""
        keys = self._keys
        ranges = [{"request_range": {"key": encoded(keys.commit), "keys_only": True}}]
        ranges += [{"request_range": {"key": encoded(keys.node(path))}} for path in reads.nodes]
        ranges += [{"request_range": {"key": encoded(keys.sequence(path))}} for path in reads.sequences]
        ranges += [self._names_below(path, limit) for path, limit in reads.children.items()]
        answers, revision = await self._read(ranges)
        commit, rest = answers[0], iter(answers[1:])
        nodes: dict[str, Node | None] = {path: _node_in(path, next(rest)) for path in reads.nodes}
        sequences = {path: _sequence_in(next(rest)) for path in reads.sequences}
        children = {path: _names_in(next(rest)) for path in reads.children}
        return Snapshot(revision, _revision_of(commit), nodes, children, sequences)

    # --- watches ------------------------------------------------------------------------------------------------------

    async def watch_node(self, path: str, callback: WatchCallback) -> Watch:
        """Call back after the node is created, changed or deleted."""
        check_path(path)
        return await self._watches.add_node(path, callback)

    async def watch_children(self, path: str, callback: WatchCallback) -> Watch:
        """Call back after a child of the node is created or deleted. NoNodeError."""
        watch = await self._watches.add_children(path, callback)
        try:
            if path != "/" and await self.exists(path) is None:
                raise NoNodeError(path)
        except BaseException:
            watch.cancel()
            raise
        return watch


def _chunks(paths: Sequence[str]) -> list[list[str]]:
    """The paths in requests of a bounded size."""
    chunks: list[list[str]] = []
    size = READ_BYTES
    for path in paths:
        if size + len(path) > READ_BYTES or len(chunks[-1]) == READS_AT_ONCE:
            chunks.append([])
            size = 0
        chunks[-1].append(path)
        size += len(path)
    return chunks


def _node_in(path: str, answer: dict[str, Any]) -> Node | None:
    found = answer.get("kvs")
    return decode_node(path, found[0]) if found else None


def _names_in(answer: dict[str, Any]) -> list[str]:
    return sorted(decoded(kv["key"]).rpartition(b"/")[2].decode() for kv in answer.get("kvs", ()))


def _sequence_in(answer: dict[str, Any]) -> tuple[int, int]:
    found = answer.get("kvs")
    return (int(decoded(found[0]["value"])), int(found[0]["mod_revision"])) if found else (0, 0)


def _revision_of(answer: dict[str, Any]) -> int:
    found = answer.get("kvs")
    return int(found[0]["mod_revision"]) if found else 0
