"""Watches on etcd: one stream for all watches of a node's children.

So a controller that watches the data of each topic needs one stream, not one a topic. A stream that breaks resumes
after the last revision it has told. When etcd has compacted that revision, every watcher hears of a change.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from kafkapy.metadata.etcd_client import EtcdClient, EtcdRefusedError, EtcdUnavailableError, decoded, encoded
from kafkapy.metadata.etcd_plan import Keys
from kafkapy.metadata.store import (
    StoreUnavailableError,
    Watch,
    WatchCallback,
    WatchEvent,
    WatchEventType,
    parent_of,
)
from kafkapy.metadata.watches import Watches

__all__ = ["EtcdWatches"]

logger = logging.getLogger("kafkapy.metadata.etcd")

RESUME_PAUSE_S: Final = 0.2
"""Pause in seconds before a broken stream is opened again."""


class EtcdWatches:
    """Owns the callbacks and the streams.

    Part of one EtcdStore; used on the control loop.
    """

    def __init__(self, client: EtcdClient, keys: Keys, timeout_s: float) -> None:
        self._client = client
        self._keys = keys
        self._timeout_s = timeout_s
        self._watches = Watches()
        self._streams: dict[str, _Stream] = {}
        """By the node whose children the stream tells of."""
        self._closed = False

    async def add_node(self, path: str, callback: WatchCallback) -> Watch:
        """Call back after the node is created, changed or deleted. StoreUnavailableError."""
        return await self._add(parent_of(path), lambda: self._watches.add_node(path, callback))

    async def add_children(self, path: str, callback: WatchCallback) -> Watch:
        """Call back after a child of the node is created or deleted. StoreUnavailableError."""
        return await self._add(path, lambda: self._watches.add_children(path, callback))

    async def _add(self, parent: str, register: Any) -> Watch:
        if self._closed:
            raise StoreUnavailableError(parent, "the session with etcd is not open")
        stream = self._streams.get(parent)
        if stream is None:
            stream = self._streams[parent] = _Stream(self._client, self._keys, parent, self._watches)
        stream.watchers += 1
        registered: Watch = register()
        open_ = True

        def cancel() -> None:
            nonlocal open_
            if not open_:
                return
            open_ = False
            registered.cancel()
            stream.watchers -= 1
            if stream.watchers == 0:
                if self._streams.get(parent) is stream:
                    del self._streams[parent]
                stream.stop()

        try:
            async with asyncio.timeout(self._timeout_s):
                await stream.ready.wait()
        except TimeoutError:
            cancel()
            raise StoreUnavailableError(parent, f"etcd did not watch {parent}: {stream.problem}") from None
        except BaseException:
            cancel()
            raise
        return Watch(cancel)

    async def close(self) -> None:
        """Drop all watches."""
        self._closed = True
        streams = list(self._streams.values())
        self._streams.clear()
        self._watches.clear()
        for stream in streams:
            stream.stop()
        await asyncio.gather(*(stream.task for stream in streams), return_exceptions=True)


class _Stream:
    """Follows the children of one node. Owned by EtcdWatches."""

    def __init__(self, client: EtcdClient, keys: Keys, parent: str, watches: Watches) -> None:
        self._client = client
        self._keys = keys
        self._parent = parent
        self._told = watches
        self._revision = 0
        """The last revision that was told; 0: from now on."""
        self._missed = False
        """Whether changes may have been missed."""
        self.watchers = 0
        self.problem = "no answer"
        self.ready = asyncio.Event()
        """Set once changes are told."""
        self.task = asyncio.get_running_loop().create_task(self._follow())

    def stop(self) -> None:
        """End the stream."""
        self.task.cancel()

    async def _follow(self) -> None:
        start, end = map(encoded, self._keys.children(self._parent))
        while True:
            request: dict[str, Any] = {"key": start, "range_end": end, "progress_notify": True}
            if self._revision:
                request["start_revision"] = str(self._revision + 1)
            stream = self._client.stream("/v3/watch", {"create_request": request})
            try:
                async for result in stream:
                    if not self._take(result):
                        break
            except (EtcdUnavailableError, EtcdRefusedError) as error:
                self.problem = str(error)
                logger.info("The watch of %s is opened again: %s", self._parent, error)
            except (KeyError, TypeError, ValueError) as error:
                self.problem = f"an answer that is none of etcd's: {error!r}"
                self._revision, self._missed = 0, True
                logger.error("The watch of %s is opened again: %s", self._parent, self.problem)
            finally:
                await stream.aclose()
            await asyncio.sleep(RESUME_PAUSE_S)

    def _take(self, result: dict[str, Any]) -> bool:
        """Handle one answer; False when etcd has ended the watch."""
        revision = int(result["header"].get("revision", 0))
        if result.get("canceled"):
            self.problem = result.get("cancel_reason", "the watch was cancelled")
            if int(result.get("compact_revision", 0)):
                self._revision, self._missed = 0, True
            return False
        events = result.get("events")
        if events:
            # An answer may hold a part of the revisions only, so its header says too much.
            self._revision = max(int(event["kv"]["mod_revision"]) for event in events)
            self._told.tell([each for event in events for each in self._events(event)])
        elif result.get("created"):
            self._revision = self._revision or revision
            self.ready.set()
            if self._missed:
                self._missed = False
                self._told.tell_all_below(self._parent)
        else:
            self._revision = max(self._revision, revision)
        return True

    def _events(self, event: dict[str, Any]) -> list[WatchEvent]:
        kv = event["kv"]
        path = self._keys.path(decoded(kv["key"]).decode())
        children = WatchEvent(WatchEventType.CHILDREN, self._parent)
        if event.get("type") == "DELETE":
            return [WatchEvent(WatchEventType.DELETED, path), children]
        head = decoded(kv.get("value", "")).partition(b"\n")[0].split(b" ")
        if len(head) == 3 and head[1] == b"0":  # no earlier revision has created it
            return [WatchEvent(WatchEventType.CREATED, path), children]
        return [WatchEvent(WatchEventType.CHANGED, path)]
