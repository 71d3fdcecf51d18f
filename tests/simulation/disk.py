"""A broker's disk: a directory in memory whose unsynced bytes a power failure takes away.

The broker's own code writes and reads it (LocalBackend, LogDir), so a killed process leaves what a killed process
leaves. A power failure cuts each segment somewhere behind its last sync, and puts back files that were replaced since.
"""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from kafkapy._speedups.log.partition_log import PartitionLog
from kafkapy.log.backends.base import LogStorage
from kafkapy.log.backends.local import LocalBackend, LocalLogStorage

BATCH_HEAD = 61
"""Bytes of a batch before its records."""


class RememberingStorage(LocalLogStorage):
    """Knows the small files as the disk has them: those that were replaced, but not synced yet."""

    def __init__(self, directory: Path, *, created: bool) -> None:
        super().__init__(directory, created=created)
        self.older: dict[str, bytes | None] = {}

    def write_file(self, name: str, data: bytes, *, sync: bool = True) -> None:
        if sync:
            self.older.pop(name, None)
        elif name not in self.older:
            self.older[name] = self.read_file(name)
        super().write_file(name, data, sync=sync)

    def sync(self) -> None:
        super().sync()
        self.older.clear()


class SimulatedBackend(LocalBackend):
    """The `local` backend, with storages that remember."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: dict[str, RememberingStorage] = {}

    def open_log(self, log_dir: Path, name: str, *, create: bool) -> LogStorage:
        directory = log_dir / name
        if create:
            directory.mkdir(exist_ok=True)
        elif not directory.is_dir():
            raise FileNotFoundError(2, "no such partition directory", str(directory))
        storage = self.storages[name] = RememberingStorage(directory, created=create)
        return storage


def wipe(directory: Path) -> None:
    """A new disk."""
    shutil.rmtree(directory, ignore_errors=True)


def fail_power(logs: Iterable[PartitionLog], dice: random.Random) -> None:
    """Take unsynced bytes of a dead broker's logs away: at least none, at most all."""
    for log in logs:
        storage = log.storage
        assert isinstance(storage, RememberingStorage)
        directory = Path(storage.directory)
        if not directory.is_dir():
            continue
        for name, data in storage.older.items():
            if dice.random() < 0.5:
                continue
            path = directory / name
            if data is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(data)
        synced = log.recovery_point
        lost = False
        for path in sorted(directory.glob("*.log")):
            if lost:
                # A later segment may have reached the disk before the end of an earlier one. Recovery stops there.
                continue
            size = path.stat().st_size
            kept = max((end for end, offset in _ends(path.read_bytes()) if offset < synced), default=0)
            if kept < size and dice.random() < 0.8:
                at = dice.randrange(kept, size + 1)
                with path.open("r+b") as file:
                    file.truncate(at)
                    if dice.random() < 0.3:
                        file.truncate(size)  # the length was on the disk before the bytes: zeros
                lost = at < size


def _ends(data: bytes) -> Iterator[tuple[int, int]]:
    """Each batch of a segment: the position of its end, and its last offset."""
    at = 0
    while len(data) - at >= BATCH_HEAD:
        base, length = struct.unpack_from(">qi", data, at)
        (delta,) = struct.unpack_from(">i", data, at + 23)
        if length <= 0 or at + 12 + length > len(data):
            return
        at += 12 + length
        yield at, base + delta
