"""The `memory` backend: segments in memfd files; no record survives a restart.

The data plane is the same, sendfile included.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kafkapy.log.backends.base import LogStorage, SegmentFile, StorageBackend
from kafkapy.log.epochs import LEADER_EPOCH_FILE, format_leader_epochs
from kafkapy.plugins import hookimpl

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

__all__ = ["MemoryBackend", "MemoryLogStorage", "register_storage_backends"]


class MemoryLogStorage:
    """One partition in memory. See LogStorage for its callers.

    The kernel frees a segment when its last descriptor is closed, so it lives as long as the log or a reply that is
    still being sent.
    """

    directory = ""

    def __init__(self, name: str) -> None:
        self._name = name
        self._files: dict[str, bytes] = {}

    @property
    def native_segments(self) -> bool:
        """See LogStorage.prepare_segment. A subclass that makes segments itself is asked for them."""
        return type(self).prepare_segment is MemoryLogStorage.prepare_segment

    def prepare_segment(self) -> tuple[int, str]:
        return os.memfd_create(f"kafkapy:{self._name}"[:200], os.MFD_CLOEXEC), ""

    def segments(self, names: Sequence[str] | None = None) -> list[SegmentFile]:
        """None: a log in memory begins empty."""
        return []

    def delete_segments(self, base_offsets: Sequence[int], *, delay_ms: int) -> None:
        """The descriptors are the segments; the log drops them itself."""

    def read_file(self, name: str) -> bytes | None:
        return self._files.get(name)

    def write_file(self, name: str, data: bytes, *, sync: bool = True) -> None:
        self._files[name] = bytes(data)

    def sync(self) -> None:
        """Nothing: there is no disk."""

    def retire(self) -> None:
        """Nothing: the files belong to this object, not to a name."""

    def write_leader_epochs(self, epochs: Iterable[tuple[int, int]]) -> None:
        self.write_file(LEADER_EPOCH_FILE, format_leader_epochs(epochs))

    def names(self) -> list[str]:
        return sorted(self._files)

    def remove_file(self, name: str) -> None:
        self._files.pop(name, None)


class MemoryBackend:
    """Partitions in memory, by log directory and name. One per broker, any thread."""

    persistent = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logs: dict[tuple[Path, str], MemoryLogStorage] = {}

    def open_log(self, log_dir: Path, name: str, *, create: bool) -> LogStorage:
        with self._lock:
            storage = self._logs.get((log_dir, name))
            if storage is None:
                if not create:
                    raise FileNotFoundError(2, "no such partition in memory", name)
                storage = self._logs[log_dir, name] = MemoryLogStorage(name)
            return storage

    def list_logs(self, log_dir: Path) -> list[str]:
        with self._lock:
            return sorted(name for directory, name in self._logs if directory == log_dir)

    def rename_log(self, log_dir: Path, old: str, new: str) -> None:
        with self._lock:
            self._logs[log_dir, new] = self._logs.pop((log_dir, old))

    def delete_log(self, log_dir: Path, name: str) -> None:
        with self._lock:
            self._logs.pop((log_dir, name), None)


@hookimpl
def register_storage_backends() -> Mapping[str, Callable[[BrokerConfig], StorageBackend]]:
    """The backend `memory`."""
    return {"memory": lambda config: MemoryBackend()}
