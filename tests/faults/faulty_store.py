"""A metadata store of which one operation fails, is delayed, or loses its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from kafkapy.metadata.memory import MemoryStore
from kafkapy.metadata.store import (
    BadVersionError,
    Delete,
    MetadataStoreError,
    Operation,
    SetData,
    Stat,
    StoreCorruptError,
    StoreUnavailableError,
)

T = TypeVar("T")

KINDS = ("unavailable", "corrupt", "reply lost", "delayed", "overtaken", "down for a while")
"""How an operation goes wrong. "overtaken": somebody else has written the node in between, where that is possible."""
DELAY_TURNS = 300
"""Turns of the loop that a delayed operation takes: all others that can go on have gone on by then."""
DOWN_FOR = 6
"""Operations that fail one after the other."""


class FaultyStore(MemoryStore):
    """Counts its operations; the one that `arm` names goes wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.spoiled: list[str] = []
        self._at = -1
        self._kind = ""

    def arm(self, at: int, kind: str) -> None:
        """The operation with this number from now on goes wrong."""
        self.count, self._at, self._kind = 0, at, kind

    def disarm(self) -> None:
        self._at = -1

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        return await self._do("read", list(paths), lambda: super(FaultyStore, self).get_many(paths))

    async def children(self, path: str) -> list[str]:
        return await self._do("read", [path], lambda: super(FaultyStore, self).children(path))

    async def commit(self, operations: Sequence[Operation]) -> list[str | Stat | None]:
        versioned = any(isinstance(each, (SetData, Delete)) and each.version >= 0 for each in operations)
        name = "versioned write" if versioned else "write"
        return await self._do(
            name, [each.path for each in operations], lambda: super(FaultyStore, self).commit(operations)
        )

    async def _do(self, name: str, paths: list[str], run: Callable[[], Awaitable[T]]) -> T:
        number = self.count
        self.count += 1
        last = self._at + DOWN_FOR if self._kind == "down for a while" else self._at + 1
        if self._at < 0 or not self._at <= number < last:
            return await run()
        path = paths[0] if paths else "/"
        self.spoiled.append(f"{name} {number}: {', '.join(paths[:3])}")
        if self._kind == "delayed":
            for _ in range(DELAY_TURNS):
                await asyncio.sleep(0)
            return await run()
        if self._kind == "reply lost" and name != "read":
            await run()
        if self._kind == "overtaken":
            if name != "versioned write":
                return await run()
            raise BadVersionError(path)
        raise self._error(path)

    def _error(self, path: str) -> MetadataStoreError:
        if self._kind == "corrupt":
            return StoreCorruptError(path, "a page could not be read")
        return StoreUnavailableError(path, "the connection is gone")
