"""The `local` backend: partition directories with Kafka's own file names in the broker's log.dirs."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kafkapy.log.backends.base import LogStorage, SegmentFile, StorageBackend
from kafkapy.log.checkpoints import sync_directory, sync_file, write_atomically
from kafkapy.log.epochs import LEADER_EPOCH_FILE, format_leader_epochs
from kafkapy.log.shortage import insist
from kafkapy.plugins import hookimpl

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig

__all__ = ["LocalBackend", "LocalLogStorage", "register_storage_backends"]

SEGMENT_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
DELETED_SUFFIX = ".deleted"
READ_SIZE = 1 << 16
PREPARED_NAME = "next-segment.deleted"
"""The file that waits to become a segment. The suffix makes Kafka, and us after a crash, throw an unused one away."""


class LocalLogStorage:
    """One partition directory. See LogStorage for its callers.

    Owns no descriptor: `prepare_segment` hands its own on.

    `later(function, delay_ms)` runs the final removal of files (the broker's scheduler); without it they go at once.
    """

    def __init__(
        self,
        directory: Path | str,
        later: Callable[[Callable[[], None], int], None] | None = None,
        *,
        created: bool = False,
    ) -> None:
        self.directory = str(directory)
        self._later = later
        self._lock = threading.Lock()
        self._prepared = 0
        self._unsynced: set[str] = set()
        self._created = created
        self._changes = threading.Lock()
        """Held while files are changed, and to retire."""
        self._retired = False

    @property
    def _path(self) -> Path:
        return Path(self.directory)

    def retire(self) -> None:
        with self._changes, self._lock:
            self._retired = True

    @property
    def native_segments(self) -> bool:
        """See LogStorage.prepare_segment. A subclass that makes segments itself is asked for them."""
        return type(self).prepare_segment is LocalLogStorage.prepare_segment

    def prepare_segment(self) -> tuple[int, str]:
        with self._lock:
            if self._retired:
                raise FileNotFoundError(errno.ENOENT, "the partition is deleted", self.directory)
            self._prepared += 1
            path = f"{self.directory}/{self._prepared}.{PREPARED_NAME}"
        return insist(os.open, path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644), path

    def segments(self, names: Sequence[str] | None = None) -> list[SegmentFile]:
        found = []
        for name in self.names() if names is None else names:
            stem, _, suffix = name.partition(".")
            if suffix == "log" and stem.isdigit():
                status = os.stat(f"{self.directory}/{name}")  # noqa: PTH116
                found.append(SegmentFile(int(stem), status.st_size, status.st_mtime_ns // 1_000_000))
        return sorted(found, key=lambda segment: segment.base_offset)

    def delete_segments(self, base_offsets: Sequence[int], *, delay_ms: int) -> None:
        """Renames the files with .deleted now and removes them after the delay.

        That is Kafka's way: after a crash the next start finishes the job.
        """
        with self._changes:
            renamed = [] if self._retired else self._mark_deleted(base_offsets)

        def remove() -> None:
            for path in renamed:
                insist(path.unlink, missing_ok=True)

        if self._later is None or delay_ms <= 0:
            remove()
        else:
            self._later(remove, delay_ms)

    def _mark_deleted(self, base_offsets: Sequence[int]) -> list[Path]:
        renamed: list[Path] = []
        for base_offset in base_offsets:
            for suffix in (*SEGMENT_SUFFIXES, ".snapshot"):
                path = self._path / f"{base_offset:020d}{suffix}"
                marked = path.with_name(path.name + DELETED_SUFFIX)
                try:
                    insist(path.rename, marked)
                except FileNotFoundError:
                    continue
                renamed.append(marked)
        return renamed

    def read_file(self, name: str) -> bytes | None:
        try:
            fd = insist(os.open, f"{self.directory}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        # Not a file object: thousands of these small files are read at a start.
        try:
            data = piece = os.read(fd, READ_SIZE)
            while len(piece) == READ_SIZE:
                piece = os.read(fd, READ_SIZE)
                data += piece
            return data
        finally:
            os.close(fd)

    def write_file(self, name: str, data: bytes, *, sync: bool = True) -> None:
        with self._changes:
            if self._retired:
                return
            if not sync:
                with self._lock:
                    self._unsynced.add(name)
            write_atomically(self._path / name, data, sync=sync)

    def sync(self) -> None:
        with self._lock:
            names, self._unsynced = self._unsynced, set()
            created, self._created = self._created, False
        try:
            for name in names:
                sync_file(self._path / name)
            if names:
                sync_directory(self._path)
            if created:
                sync_directory(self._path.parent)
        except OSError:
            with self._lock:
                self._unsynced |= names
                self._created |= created
            if not self._retired:
                raise

    def write_leader_epochs(self, epochs: Iterable[tuple[int, int]]) -> None:
        # The flush that moves the recovery point syncs it: until then recovery reads the epochs from the batches.
        self.write_file(LEADER_EPOCH_FILE, format_leader_epochs(epochs), sync=False)

    def names(self) -> list[str]:
        return sorted(insist(os.listdir, self.directory))

    def remove_file(self, name: str) -> None:
        with self._changes:
            if not self._retired:
                insist((self._path / name).unlink, missing_ok=True)


class LocalBackend:
    """Partition directories in the local file system. Owns nothing; one per broker, any thread."""

    persistent = True

    def __init__(self, later: Callable[[Callable[[], None], int], None] | None = None) -> None:
        self.later = later

    def open_log(self, log_dir: Path, name: str, *, create: bool) -> LogStorage:
        directory = f"{log_dir}/{name}"  # not a Path: a start opens thousands
        if create:
            Path(directory).mkdir(exist_ok=True)
        elif not os.path.isdir(directory):  # noqa: PTH112
            raise FileNotFoundError(2, "no such partition directory", directory)
        return LocalLogStorage(directory, self.later, created=create)

    def list_logs(self, log_dir: Path) -> list[str]:
        with insist(os.scandir, log_dir) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir() and "-" in entry.name)

    def rename_log(self, log_dir: Path, old: str, new: str) -> None:
        insist((log_dir / old).rename, log_dir / new)
        # A deleted partition that came back after a power failure would be taken for a new topic of that name.
        sync_directory(log_dir)

    def delete_log(self, log_dir: Path, name: str) -> None:
        # A writer that was on its way may add a file while the directory is emptied, so try again before giving up.
        for attempt in range(3):
            try:
                insist(shutil.rmtree, log_dir / name)
                return
            except FileNotFoundError:
                if not (log_dir / name).exists():
                    return
            except OSError:
                if attempt == 2:
                    raise
            time.sleep(0.01)


@hookimpl
def register_storage_backends() -> Mapping[str, Callable[[BrokerConfig], StorageBackend]]:
    """The backend `local`."""
    return {"local": lambda config: LocalBackend()}
