"""Writes small files and a metadata store, and cuts the power after each of their file operations.

Started by test_power_failures.py with the library of file_faults.c preloaded:

    python power_failures.py <directory> <scenario>

A scenario takes numbered steps. After a crash its files show what step `n` left, where `n` is the last step that was
done, or the one after that; nothing else, nothing in between. Prints `{"states": ..., "failures": [...]}`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from file_faults import LOST, Disk, Faults, crash_states, put

from kafkapy.broker import meta_properties
from kafkapy.log.backends.local import LocalBackend
from kafkapy.log.checkpoints import read_checkpoint, write_atomically, write_checkpoint
from kafkapy.log.loader import read_topic_id, write_topic_id
from kafkapy.log.log_dir import CLEAN_SHUTDOWN_FILE, LogDir
from kafkapy.metadata.embedded import EmbeddedStore
from kafkapy.metadata.store import Create, Delete, SetData
from kafkapy.types import TopicPartition

STEPS = 6
LARGE = 3000
"""Bytes: some pages of the simulated disk."""


class Scenario(ABC):
    """What is written, and how it is read again. `root` holds nothing at first."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @abstractmethod
    def step(self, number: int) -> Any:
        """Do it; what `look` has to find from then on. `number` is 1 for the first one."""

    @abstractmethod
    def look(self) -> Any:
        """What is there after a start. None before the first step."""

    def release(self) -> None:  # noqa: B027
        """Let go of files that are open; most scenarios have none."""


class WholeFile(Scenario):
    """Any file that is replaced at once."""

    def step(self, number: int) -> bytes:
        data = b"%d" % number * (LARGE + number * 100)
        write_atomically(self.root / "file", data)
        return data

    def look(self) -> bytes | None:
        path = self.root / "file"
        return path.read_bytes() if path.exists() else None


class Checkpoint(Scenario):
    """An offset checkpoint: an empty one would be read as "no log starts", and deleted records would be back."""

    def step(self, number: int) -> dict[TopicPartition, int]:
        offsets = {TopicPartition("orders", each): 10 * number + each for each in range(20 * number)}
        write_checkpoint(self.root / "log-start-offset-checkpoint", offsets)
        return offsets

    def look(self) -> dict[TopicPartition, int] | None:
        return read_checkpoint(self.root / "log-start-offset-checkpoint") or None


class CleanShutdown(Scenario):
    """The marker that lets a start believe files without looking at them."""

    def step(self, number: int) -> int:
        LogDir(self.root).write_clean_shutdown_marker(number)
        return number

    def look(self) -> int | None:
        path = self.root / CLEAN_SHUTDOWN_FILE
        return int(json.loads(path.read_bytes())["brokerEpoch"]) if path.exists() else None


class Identity(Scenario):
    """meta.properties: without it the next start makes another broker."""

    def step(self, number: int) -> str:
        meta_properties.write_all([str(self.root)], number, f"cluster-{number}")
        return f"cluster-{number}"

    def look(self) -> str | None:
        path = self.root / meta_properties.FILE_NAME
        if not path.exists():
            return None
        lines = dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)
        return lines["cluster.id"]


class TopicIds(Scenario):
    """partition.metadata: on the disk from the new log's first flush on; before that the id may be unknown."""

    def step(self, number: int) -> dict[str, UUID]:
        storage = LocalBackend().open_log(self.root, f"orders-{number}", create=True)
        write_topic_id(storage, UUID(int=number))
        storage.sync()
        return {f"orders-{each}": UUID(int=each) for each in range(1, number + 1)}

    def look(self) -> dict[str, UUID] | None:
        backend = LocalBackend()
        found = {
            path.name: read_topic_id(backend.open_log(self.root, path.name, create=False))
            for path in sorted(self.root.iterdir())
        }
        return {name: topic_id for name, topic_id in found.items() if topic_id.int} or None


class Metadata(Scenario):
    """The embedded store: what a commit has answered is there, and a transaction is there as a whole or not."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.loop = asyncio.new_event_loop()
        self.store: EmbeddedStore | None = None

    def step(self, number: int) -> dict[str, str]:
        return self.loop.run_until_complete(self._step(number))

    async def _step(self, number: int) -> dict[str, str]:
        if self.store is None:
            self.store = EmbeddedStore(self.root)
            await self.store.start()
        store = self.store
        await store.commit(
            [
                *([Create("/state", b"")] if number == 1 else [Delete(f"/state/{number - 1}")]),
                Create(f"/state/{number}", b"%d" % number * LARGE),
                SetData("/state", b"%d" % number),
            ]
        )
        found = await contents(store)
        if number % 3 == 0:
            # The file of the next start.
            await store.close()
            self.store = None
        return found

    def look(self) -> dict[str, str] | None:
        return self.loop.run_until_complete(self._look())

    async def _look(self) -> dict[str, str] | None:
        store = EmbeddedStore(self.root)
        await store.start()
        try:
            return await contents(store) or None
        finally:
            await store.close()

    def release(self) -> None:
        if self.store is not None:
            self.loop.run_until_complete(self.store.close())


async def contents(store: EmbeddedStore) -> dict[str, str]:
    """All nodes below /state and their values."""
    if await store.exists("/state") is None:
        return {}
    paths = ["/state", *(f"/state/{name}" for name in await store.children("/state"))]
    found = await store.get_many(paths)
    return {path: each[0].decode() for path, each in zip(paths, found, strict=True) if each is not None}


SCENARIOS = {
    "whole file": WholeFile,
    "checkpoint": Checkpoint,
    "clean shutdown": CleanShutdown,
    "identity": Identity,
    "topic ids": TopicIds,
    "metadata": Metadata,
}


def main(root: Path, name: str) -> dict[str, Any]:
    """Every crash state of one scenario."""
    put(root, {}, set())
    disk, faults, scenario = Disk(root), Faults(), SCENARIOS[name](root)
    left: list[Any] = [None]
    faults.begin(root)
    for number in range(1, STEPS + 1):
        left.append(scenario.step(number))
        faults.mark(number)
    journal = faults.journal()
    faults.begin(Path("/nowhere"))
    scenario.release()
    failures, states = [], 0
    for number, mark, how, files, dirs in crash_states(disk, journal, LOST, Random(1)):
        put(root, files, dirs)
        states += 1
        try:
            found = SCENARIOS[name](root).look()
        except Exception as error:
            failures.append(f"after operation {number}, step {mark}, {how}: {type(error).__name__}: {error}")
            continue
        if found not in left[mark : mark + 2]:
            failures.append(f"after operation {number}, step {mark}, {how}: {str(found)[:200]}")
    return {"states": states, "failures": failures}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2])))
